r"""MATH with a policy of half a million parameters: levels, subjects, boxes; no result.

Problems and worked solutions in the layout of MATH-500 (`problem`, `solution`,
`answer`, `subject`, `level`, `unique_id`). Answers count only in \boxed{...}. What is
logged is cut by level 1-5 and by subject.

Data: https://github.com/hendrycks/math (MIT), split of openai/prm800k.

Command:
    python -m rlvr_jax.main --config=configs/math_tiny.py --workdir=DIR \
        --config.task.train_path=PATH/train.jsonl \
        --config.task.eval_path=PATH/test.jsonl

Run once, seed 0, with MATH-500's 500 problems as train and eval both, so the numbers
say that the stages run and nothing about held-out mathematics. 2 crowded CPU cores,
JAX 0.10.2; stopped once after the warm start and gone on:
    left out    warm start 250 of 500 (prompt over 384 tokens or solution over 256), RL
                and evaluation 15 each (prompt over 384); 0 golds unreadable
    warm start  loss 6.6 -> 4.8 nats a token in 30 steps
    verdicts    of 96 RL completions 0 right, 96 wrong, 0 unjudged
    pass@1      0 of 32 problems x 4 samples before RL and after it
"""

import dataclasses

from rlvr_jax.config import (
    MATH_RECORD,
    Config,
    EvalConfig,
    FilesConfig,
    LogConfig,
    ModelConfig,
    OptimizerConfig,
    RewardConfig,
    SamplingConfig,
    TokenizerConfig,
    TrainConfig,
    WarmupConfig,
)


def get_config() -> Config:
    """Returns the recipe."""
    return Config(
        name="math_tiny",
        task=FilesConfig(
            train_path="data/math/train.jsonl",
            eval_path="data/math/test.jsonl",
            record=dataclasses.replace(
                MATH_RECORD,
                prompt_template="Problem: {prompt}\nBox the answer.\nSolution:",
            ),
        ),
        tokenizer=TokenizerConfig(kind="sentencepiece", vocab_size=512),
        model=ModelConfig(layers=2, max_length=640),
        warmup=WarmupConfig(steps=30, batch_size=16),
        train=TrainConfig(
            steps=3,
            prompts_per_step=8,
            samples_per_prompt=4,
            optimizer=OptimizerConfig(learning_rate=1e-4, warmup_steps=2),
            sampling=SamplingConfig(max_new_tokens=256),
            # A policy that boxes nothing yet has something to learn all the same.
            reward=RewardConfig(names=("verdict", "format"), weights=(1.0, 0.1)),
        ),
        eval=EvalConfig(
            problems=32,
            samples_per_problem=4,
            k=(1, 2, 4),
            batch_size=32,
            sampling=SamplingConfig(max_new_tokens=256),
        ),
        log=LogConfig(rollouts_every=1, progress_every=5, alarm_window=3),
        prompt_bucket=128,
        completion_bucket=128,
    )
