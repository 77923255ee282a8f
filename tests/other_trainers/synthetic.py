"""Makes logs as TRL, verl and prime-rl write them: a healthy run, with planted faults.

A run is a list of dicts of plain quantities, one a step; `write` puts them into the
trainer's own names and file.
"""

import json
import math
import pathlib
import random
from collections.abc import Callable, Sequence
from typing import Any

Run = list[dict[str, float]]
TRAINERS = ("trl", "verl", "prime-rl")


def healthy(seed: int, *, steps: int = 80, noise: float = 1.0) -> Run:
    """Returns a run that learns: its reward rises, its length drifts, and all scatters.

    Small batches scatter more, so `noise` multiplies every deviation.
    """
    rng = random.Random(seed)
    start, gain = rng.uniform(0.15, 0.5), rng.uniform(0.0, 0.4)
    length, growth = rng.uniform(80, 3000), rng.uniform(-0.25, 0.8)
    entropy, norm = rng.uniform(0.1, 1.2), 10 ** rng.uniform(-2, 0.5)
    silent, clipped = rng.uniform(0.1, 0.6), rng.uniform(0.0, 0.15)

    def scattered(value: float, deviation: float) -> float:
        return value * math.exp(rng.gauss(0, noise * deviation))

    def share(value: float, deviation: float) -> float:
        return min(1.0, max(0.0, rng.gauss(value, noise * deviation)))

    run = []
    for step in range(steps):
        done = step / max(1, steps - 1)
        reward = share(start + gain * done, 0.05)
        same = share(silent, 0.08)
        run.append(
            {
                "reward": reward,
                "same": min(same, 0.95),
                "right": min(same, 0.95) * reward,
                "length": scattered(length * (1 + growth * done), 0.1),
                "truncated": share(clipped, 0.03),
                "entropy": scattered(entropy * (1 - 0.5 * done), 0.1),
                "grad_norm": scattered(norm, 0.4),
                "loss": rng.gauss(0, 0.02),
                "gap": scattered(0.01, 0.3),
            }
        )
    return run


def plant(run: Run, first: int, **changes: float | Callable[[int], float]) -> Run:
    """Returns the run with other numbers from step index `first` on."""
    planted = [dict(row) for row in run]
    for at in range(first, len(run)):
        for name, change in changes.items():
            planted[at][name] = change(at) if callable(change) else change
    return planted


def trl_row(step: int, row: dict[str, float]) -> dict[str, Any]:
    truncated = row["truncated"]
    return {
        "clip_ratio/high_max": 0.0,
        "clip_ratio/region_mean": 0.0,
        "completions/clipped_ratio": truncated,
        "completions/max_length": 2 * row["length"],
        "completions/mean_length": row["length"],
        "completions/mean_terminated_length": row["length"] * (truncated < 1),
        "completions/min_length": 0.2 * row["length"],
        "entropy": row["entropy"],
        "epoch": step / 100,
        "frac_reward_zero_std": row["same"],
        "grad_norm": row["grad_norm"],
        "kl": 0.001,
        "learning_rate": 1e-6,
        "loss": row["loss"],
        "num_tokens": 1000.0 * step,
        "reward": row["reward"],
        "reward_std": 0.0 if row["same"] == 1 else 0.3,
        "rewards/accuracy/mean": row["reward"],
        "rewards/accuracy/std": 0.3,
        "sampling/sampling_logp_difference/mean": row["gap"],
        "sampling/importance_sampling_ratio/mean": 1.0,
        "step": step,
        "step_time": 12.5,
    }


def verl_row(step: int, row: dict[str, float]) -> dict[str, Any]:
    spread = 0.0 if row["same"] == 1 else 1.2
    data = {
        "actor/entropy": row["entropy"],
        "actor/grad_norm": row["grad_norm"],
        "actor/pg_clipfrac": 0.001,
        "actor/pg_loss": row["loss"],
        "actor/ppo_kl": 0.0002,
        "critic/advantages/max": spread,
        "critic/advantages/mean": 0.0,
        "critic/advantages/min": -spread,
        "critic/rewards/mean": row["reward"] - 0.05,  # minus the KL penalty
        "critic/score/max": max(1.0, row["reward"]),
        "critic/score/mean": row["reward"],
        "critic/score/min": min(0.0, row["reward"]),
        "perf/throughput": 2000.0,
        "response_length/clip_ratio": row["truncated"],
        "response_length/max": 2 * row["length"],
        "response_length/mean": row["length"],
        "training/global_step": step,
        "training/rollout_probs_diff_mean": row["gap"] / 5,
    }
    nulls = {n: None for n, v in data.items() if not math.isfinite(v)}
    return {"step": step, "data": data | nulls}


def prime_rows(step: int, row: dict[str, float]) -> tuple[list[Any], list[Any]]:
    """Returns the orchestrator's rows of a step, and the trainer's."""
    agent = "train/agg/all/agent"
    right = row["right"]
    orchestrator = {
        "step": step,
        "time": 1.7e9 + step,
        f"{agent}/reward/mean": row["reward"],
        f"{agent}/reward/max": max(1.0, row["reward"]),
        f"{agent}/is_truncated/mean": row["truncated"],
        f"{agent}/solved_all": right,
        f"{agent}/solved_none": row["same"] - right,
        f"{agent}/metrics/format/mean": 0.9,
        "train/agg/all/num_output_tokens/mean": row["length"],
        "train/agg/effective/agent/reward/mean": 0.5,
        "progress/tokens": 1e5,
    }
    updates = [
        {"perf/throughput": 2000.0, "step": step},
        {"optim/lr": 1e-6, "optim/grad_norm": row["grad_norm"], "step": step},
        {
            "loss/mean": row["loss"],
            "entropy/all/mean": row["entropy"],
            "mismatch_kl/all/mean": row["gap"] ** 2,
            "step": step,
        },
        {"time/step": 12.0, "step": step},
    ]
    finite = [{n: v for n, v in u.items() if math.isfinite(v)} for u in updates]
    return [orchestrator], finite


def write(
    folder: pathlib.Path, trainer: str, run: Run, *, steps: Sequence[int] = ()
) -> list[pathlib.Path]:
    """Writes a run's log and returns its files; `steps` are 1, 2 .. by default."""
    numbered = list(zip(steps or range(1, len(run) + 1), run, strict=True))
    if trainer == "trl":
        history = [trl_row(step, row) for step, row in numbered]
        file = folder / "trainer_state.json"
        state = {"best_metric": None, "global_step": len(run), "log_history": history}
        file.write_text(json.dumps(state, indent=2))
        return [file]
    if trainer == "verl":
        return [write_lines(folder / "verl.jsonl", [verl_row(*n) for n in numbered])]
    files = [folder / name / "metrics.jsonl" for name in ("orchestrator", "trainer")]
    sides = zip(*(prime_rows(*n) for n in numbered), strict=True)
    for file, side in zip(files, sides, strict=True):
        file.parent.mkdir(exist_ok=True)
        write_lines(file, [row for rows in side for row in rows])
    return files


def write_lines(file: pathlib.Path, rows: Sequence[object]) -> pathlib.Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file
