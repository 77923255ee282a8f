r"""GSM8K with a policy of half a million parameters: the real-data pipeline, no result.

It learns a tokenizer of 512 pieces from the train split, does a short SFT on the worked
solutions and a few steps of GRPO graded by math-verify, and evaluates on the test
split. The recipe shows that every stage runs on real problems. A policy this small,
trained from scratch, learns the form of a worked solution and solves next to nothing.

Data: https://github.com/openai/grade-school-math (MIT). All 7,473 + 1,319 lines are
checked before anything starts. In pieces of this tokenizer, a prompt and its worked
solution have 255 together at the median, 591 at the 99th percentile, 952 at most.

Command:
    python -m rlvr_jax.main --config=gsm8k_tiny --workdir=DIR \
        --config.task.train_path=PATH/train.jsonl \
        --config.task.eval_path=PATH/test.jsonl

Measured with seed 0 on 2 CPU cores, JAX 0.10.2, nothing compiled before:
    time        214 s with other work on the same cores, 206 s of CPU: SFT 119,
                RL 60, evaluations 27, the rest imports, tokenizer and report
    left out    SFT 597 of 7,473 (prompt over 384 tokens or solution over 256);
                RL 8 of 7,473 and evaluation 1 of 1,319 (prompt over 384)
    sft         loss 6.8 -> 4.0 nats a token
    verdicts    of 192 RL completions 1 correct, 191 incorrect, 0 unverified
    signal      1 of 48 groups split
    pass@1      0.8 % [0.0, 2.0] before RL and after it (64 problems x 4 samples)
After 5 steps the run doctor reports that there is no learning signal: all wrong.
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
from rlvr_jax.tasks import FilesTask


def get_config() -> Config:
    """Returns the recipe."""
    return Config(
        name="gsm8k_tiny",
        task=FilesTask(
            train_path="data/gsm8k/train.jsonl", eval_path="data/gsm8k/test.jsonl"
        ),
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
        # Few, wide buckets: each pair of lengths takes seconds to compile.
        prompt_pad_multiple=128,
        completion_pad_multiple=128,
    )
