r"""Problems of a data set of the Hugging Face hub, read through `datasets`.

GSM8K with a policy of half a million parameters, as in `gsm8k_tiny`: the recipe shows
how a data set of the hub becomes problems, not what can be learned from it. A folder
that `datasets` can load (parquet files, or one of `save_to_disk`) stands in for the
hub's name where there is no network.

Command:
    python -m rlvr_jax.main --config=configs/hub.py --workdir=DIR
    python -m rlvr_jax.main --config=configs/hub.py --workdir=DIR \
        --config.task.path=FOLDER --config.task.subset=

Needs the hub or such a folder. Only folders of a few problems were run (the tests).
"""

from rlvr_jax.config import (
    Config,
    EvalConfig,
    LogConfig,
    ModelConfig,
    OptimizerConfig,
    SamplingConfig,
    SFTConfig,
    TokenizerConfig,
    TrainConfig,
)
from rlvr_jax.tasks import HubTask


def get_config() -> Config:
    """Returns the recipe."""
    return Config(
        name="hub",
        task=HubTask(path="openai/gsm8k", subset="main"),
        tokenizer=TokenizerConfig(kind="sentencepiece", vocab_size=512),
        model=ModelConfig(num_layers=2, max_seq_len=640),
        sft=SFTConfig(steps=60, batch_size=16),
        train=TrainConfig(
            steps=6,
            batch_size=8,
            group_size=4,
            optimizer=OptimizerConfig(learning_rate=1e-4, warmup_steps=2),
            sampling=SamplingConfig(max_new_tokens=256),
        ),
        eval=EvalConfig(
            num_problems=64,
            num_samples=4,
            k=(1, 2, 4),
            sampling=SamplingConfig(max_new_tokens=256),
        ),
        log=LogConfig(rollouts_every=2, progress_every=5, alarm_window=5),
        prompt_pad_multiple=128,
        completion_pad_multiple=128,
    )
