r"""Scores a Hugging Face model on benchmarks by name: prompts, sampling, room.

The recipe trains nothing. The question goes through the tokenizer's chat template, if
it has one, with a request to box the answer. The answer is the content of the last box.
Tables of avg@k often use sixteen samples at temperature 0.6 and top-p 0.95. Set the
values of the table that you compare with.

Command, with a folder of evaluation sets (docs/use/data_sets.md):
    python -m rlvr_jax.evaluate --config=suite --suite=math5 \
        --suite_dir=benchmarks --checkpoint=models/NAME --out=scores/NAME --table=md

To score a checkpoint of a run, use the config.json of its workdir instead, because it
has the prompts that the run trained on.

NOT RUN on weights that can answer: we had none. We ran it with a tiny random model on
the real files of math5 and GSM8K (docs/use/data_sets.md).
"""

from rlvr_jax.config import (
    Config,
    EvalConfig,
    ModelConfig,
    PretrainedConfig,
    SamplingConfig,
    SFTConfig,
    TokenizerConfig,
)
from rlvr_jax.tasks import FilesTask, RecordConfig


def get_config() -> Config:
    """Returns the recipe; --checkpoint replaces `pretrained.path`."""
    return Config(
        name="suite",
        task=FilesTask(
            record=RecordConfig(
                prompt_template=(
                    "{prompt}\n"
                    "Reason step by step, and put the final answer within \\boxed{}."
                ),
                answer_format="boxed",
            )
        ),
        pretrained=PretrainedConfig(path="models/NAME"),
        model=ModelConfig(
            family="pretrained",
            compute_dtype="bfloat16",
            param_dtype="bfloat16",
            scan_layers=True,
            max_seq_len=4096,
        ),
        tokenizer=TokenizerConfig(kind="huggingface"),
        sft=SFTConfig(steps=0),
        eval=EvalConfig(
            num_samples=16,
            batch_size=32,
            sampling=SamplingConfig(temperature=0.6, top_p=0.95, max_new_tokens=3072),
        ),
        prompt_pad_multiple=128,
    )
