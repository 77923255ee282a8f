r"""DeepScaleR with a policy of half a million parameters: measured levels; no result.

The problems have answers but no worked solutions (`problem`, `answer`, `level`, `id`),
so there is no SFT. The policy starts from random weights and writes noise. The recipe
shows that the stages run on this kind of data. To learn from it, bring a policy that
can already solve some problems.

Data: https://huggingface.co/datasets/agentica-org/DeepScaleR-Preview-Dataset (MIT).
With `datasets`:
    HubTask(
        path="agentica-org/DeepScaleR-Preview-Dataset",
        eval_split="train[:500]",
        train_split="train[500:]",
        record=RecordConfig(prompt_field="problem", answer_prefix=""),
    )

Command:
    python -m rlvr_jax.main --config=deepscaler_tiny --workdir=DIR \
        --config.task.train_path=PATH/level1.jsonl \
        --config.task.eval_path=PATH/level2.jsonl

Run once with this command, seed 0, on 200 problems of level 1 and 200 of level 2. They
are a sample of the data with levels that others measured (fields `problem`, `answer`,
`level`, `id`). On 2 busy CPU cores, JAX 0.10.2, it took 59 s of CPU time, most of it
compiling.
    left out    2 of 200 and 6 of 200 (prompt over 448 tokens); 0 golds unreadable
    verdicts    of 96 RL completions 1 correct, 95 incorrect, 0 unverified
    pass@1      0.8 % [0.0, 2.3] before, 1.6 % [0.0, 3.9] after 3 steps: chance hits
We did not run the hub variant above. The tests run it with a folder instead.
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
from rlvr_jax.tasks import FilesTask, RecordConfig


def get_config() -> Config:
    """Returns the recipe."""
    return Config(
        name="deepscaler_tiny",
        task=FilesTask(
            train_path="data/deepscaler/level1.jsonl",
            eval_path="data/deepscaler/level2.jsonl",
            record=RecordConfig(
                prompt_field="problem",
                answer_prefix="",
                level_field="level",
                id_field="id",
                prompt_template="Problem: {prompt}\nAnswer:",
            ),
        ),
        tokenizer=TokenizerConfig(kind="sentencepiece", vocab_size=512),
        model=ModelConfig(num_layers=2, max_seq_len=512),
        sft=SFTConfig(steps=0),
        train=TrainConfig(
            steps=3,
            batch_size=8,
            group_size=4,
            optimizer=OptimizerConfig(learning_rate=1e-4, warmup_steps=2),
            sampling=SamplingConfig(max_new_tokens=64),
        ),
        eval=EvalConfig(
            num_problems=32,
            num_samples=4,
            k=(1, 2, 4),
            batch_size=32,
            sampling=SamplingConfig(max_new_tokens=64),
        ),
        log=LogConfig(rollouts_every=1, progress_every=1, alarm_window=3),
        prompt_pad_multiple=128,
        completion_pad_multiple=64,
    )
