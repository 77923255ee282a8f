"""The stage `eval`, and evaluation on held-out problems during training."""

import functools
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx

from job_jax.checkpoint import params_sha256
from job_jax.processes import broadcast, is_primary
from job_jax.working import working
from rlvr_jax.config import Config
from rlvr_jax.data import Pool
from rlvr_jax.data.difficulty import INITIAL_STEP
from rlvr_jax.metrics.crossing import count_correct, summarize_gain
from rlvr_jax.metrics.memorization import summarize_memorization
from rlvr_jax.metrics.scores import (
    bands_from_verdicts,
    summarize_completions,
)
from rlvr_jax.rollouts.graded import GradedCompletion, Verdicts, verdicts_by_problem
from rlvr_jax.stages.context import RunContext, load_stage_params, require_finished
from rlvr_jax.stages.held_out import evaluate_held_out
from rlvr_jax.stages.probe import write_probe_noise

# Held-out candidates for each seen problem, to choose its fresh partner from.
_FRESH_PER_SEEN = 4


def evaluate(ctx: RunContext) -> None:
    """Evaluates the policy before and after RL on the same problems and draws.

    The gain of RL is paired by problem. Both evaluations use the bands of the first
    one, from its file. A probe also reads its texts under weight noise, as a baseline
    for RL's changes.
    """
    train = ctx.setup.config.train
    require_finished(ctx, "sft", "train")
    write_probe_noise(ctx)
    summary = broadcast(ctx.workdir.read_summary)
    done, seconds = summary.get("eval", {}), summary.get("stages", {}).get("eval", 0.0)
    for name, stage in (("before", "sft"), ("after", "train")):
        if name in done:
            continue
        ctx.stop_signal.check()
        params = load_stage_params(ctx, stage)
        start = time.monotonic()
        judged = evaluate_held_out(
            ctx,
            params,
            f"eval {name}",
            weight_version=train.optimizer_steps if stage == "train" else 0,
            after_batch=ctx.stop_signal.check,
        )
        seconds += time.monotonic() - start
        own, initial = _save_completions(ctx, name, judged)
        scores = summarize_completions(ctx.setup.config, judged, initial)
        with working("measuring memorization"):
            memorization = _measure_memorization(ctx, params)
        if memorization:
            scores["memorization"] = memorization
        if is_primary():
            print(describe_score(name, scores), file=sys.stderr)
        found: dict[str, Any] = {name: scores}
        if name == "after":
            with working("the gain and its interval"):
                found["gain"] = _summarize_gain(ctx.setup.config, initial, own)
        ctx.update_summary(
            {
                "eval": found,
                "stages": {"eval": seconds},
                "params": sum(leaf.size for leaf in jax.tree.leaves(params)),
                "params_sha256": params_sha256(params),
            }
        )


def describe_score(name: str, scores: Mapping[str, Any]) -> str:
    """Returns "eval before: pass@1 62.3 % [57.2, 67.0]", with its 95 % interval."""
    k, score = next(iter(scores["pass@k"].items()))
    text = f"eval {name}: pass@{k} {100 * score['mean']:.1f} %"
    if score["low"] is None:
        return text
    return f"{text} [{100 * score['low']:.1f}, {100 * score['high']:.1f}]"


def _summarize_gain(
    config: Config, before: Verdicts, after: Verdicts
) -> dict[str, Any]:
    return summarize_gain(
        count_correct(before),
        count_correct(after),
        k=config.eval.ks,
        resamples=config.eval.bootstrap_resamples,
        seed=config.seed,
    )


def _measure_memorization(ctx: RunContext, params: nnx.State) -> dict[str, Any] | None:
    """Returns the results of `metrics.memorization` on problems that RL has used.

    None with eval.num_gold_problems=0. Before RL these problems are as new to the
    policy as held-out ones, unless SFT used them.
    """
    setup, count = ctx.setup, ctx.setup.config.eval.num_gold_problems
    if count == 0:
        return None
    asked = {
        row["id"]
        for row in broadcast(ctx.workdir.read_difficulty)
        if any(step != INITIAL_STEP for step, *_ in row["history"])
    }
    pool = Pool(setup.sources["train"], setup.config)
    numbers = [n for n, name in enumerate(pool.problem_ids()) if name in asked]
    seen = pool.problems(np.array(numbers[:count], int))
    fresh = setup.problems("eval", _FRESH_PER_SEEN * count)
    return summarize_memorization(setup, params, seen, fresh)


def _save_completions(
    ctx: RunContext, when: str, graded: Sequence[GradedCompletion]
) -> tuple[Verdicts, Verdicts]:
    """Saves the completions with their bands; returns their verdicts.

    Also returns the verdicts before RL, which decide the bands.
    """
    stage = f"eval_{when}"
    rows = [one.to_json(stage, 0) for one in graded]
    own: Verdicts = verdicts_by_problem(rows)
    initial = own
    if when != "before":
        read = functools.partial(ctx.workdir.read_rollouts, "eval_before", 0)
        initial = broadcast(lambda: verdicts_by_problem(read()))
    cut = bands_from_verdicts(initial, ctx.setup.config.difficulty)
    ctx.workdir.write_rollouts(
        stage, 0, ({**row, "band": cut.get(row["id"], "unknown")} for row in rows)
    )
    return own, initial
