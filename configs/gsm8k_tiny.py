r"""GSM8K with a policy of a million parameters: the real-data pipeline, not a result.

A tokenizer of 512 pieces learnt from the train split, a short warm start on the worked
solutions, a few steps of GRPO graded by math-verify, evaluation on the test split. A
policy this small, started from nothing, learns the shape of a worked solution and
solves next to none of the problems: most groups fail whole and carry no signal, which
the run doctor says. What the recipe is for is to run every stage on real problems.

Data: https://github.com/openai/grade-school-math (MIT); all 7,473 + 1,319 lines
are checked before anything starts. In pieces of this tokenizer, prompt and worked
solution take 255 together at the median, 591 at the 99th percentile, 952 at most.

Command:
    python -m rlvr_jax.main --config=configs/gsm8k_tiny.py --workdir=DIR \
        --config.task.train_path=PATH/train.jsonl \
        --config.task.eval_path=PATH/test.jsonl
"""

from rlvr_jax.config import (
    Config,
    EvalConfig,
    JsonLinesConfig,
    LogConfig,
    ModelConfig,
    OptimizerConfig,
    SamplingConfig,
    TokenizerConfig,
    TrainConfig,
    WarmupConfig,
)


def get_config() -> Config:
    """Returns the recipe."""
    return Config(
        name="gsm8k_tiny",
        task=JsonLinesConfig(
            train_path="data/gsm8k/train.jsonl", eval_path="data/gsm8k/test.jsonl"
        ),
        tokenizer=TokenizerConfig(kind="sentencepiece", vocab_size=512),
        model=ModelConfig(layers=2, max_length=640),
        warmup=WarmupConfig(steps=60, batch_size=16),
        train=TrainConfig(
            steps=6,
            prompts_per_step=8,
            samples_per_prompt=4,
            optimizer=OptimizerConfig(learning_rate=1e-4, warmup_steps=2),
            sampling=SamplingConfig(max_new_tokens=256),
        ),
        eval=EvalConfig(
            problems=64,
            samples_per_problem=4,
            k=(1, 2, 4),
            sampling=SamplingConfig(max_new_tokens=256),
        ),
        log=LogConfig(rollouts_every=2, progress_every=2, alarm_window=5),
        # Few, wide buckets: a program for each pair of lengths met takes seconds.
        prompt_bucket=128,
        completion_bucket=128,
    )
