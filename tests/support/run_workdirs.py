"""Workdirs that look like finished runs, for tests of their readers."""

import gzip
import json
import math
import pathlib
import random

from job_jax.config_io import to_json
from job_jax.metrics import MetricsWriter
from rlvr_jax.config import Config
from rlvr_jax.metrics.crossing import count_correct, summarize_gain
from rlvr_jax.metrics.statistics import ProblemResult, summarize_results
from rlvr_jax.types import BANDS

LEVELS = (4, 5, 6)
KS = (1, 2, 4, 8)
TYPES = ("evaluation", "inversion")
NASTY = "<script>alert('x')</script> & \ud800 \"quoted\" <b>"


def config(steps):
    """Returns the default configuration as stored in a workdir, with a few settings."""
    record = to_json(Config())
    record |= {"name": "quickstart", "seed": 0}
    record["train"] |= {"steps": steps, "batch_size": 16, "group_size": 8}
    record["train"]["max_logprob_mismatch"] = 0.5
    record["probe"] |= {"max_unexplained_growth": 0.5, "max_splice_cost": 0.1}
    record["log"]["alarm_window"] = 20
    return record


def train_row(step, steps, rng):
    """Returns metrics for one step of a run that learns the easiest level first."""
    done = step / steps

    def noisy(value, spread=0.05):
        return min(1.0, max(0.0, value + rng.gauss(0, spread)))

    passes = {n: noisy(1 / (1 + math.exp(-6 * done + n - 4))) for n in LEVELS}
    row = {
        "reward/mean": sum(passes.values()) / 3,
        "groups/nonzero_std": noisy(0.7 - 0.3 * done),
        "groups/all_incorrect": noisy(0.2 - 0.2 * done, 0.02),
        "groups/truncated": 0.02,
        "groups/unverified": 0.0,
        "rollout/length_mean": 38 + 6 * done + rng.gauss(0, 1),
        "rollout/entropy": 0.25 - 0.12 * done + rng.gauss(0, 0.01),
        "logprob_mismatch/mean": 2e-6 + rng.random() * 1e-6,
        "optimizer/grad_norm": 0.5 + rng.random() * 0.2,
        "optimizer/skipped": 0.0,
    }
    row["groups/all_correct"] = max(0.0, 1 - sum(row[f"groups/{c}"] for c in CAUSES))
    for n, value in passes.items():
        row[f"level_{n}/pass"] = value
        row[f"level_{n}/nonzero_std"] = noisy(1 - value**8 - (1 - value) ** 8)
        row[f"level_{n}/advantage_mass"] = value * (1 - value)
        row[f"level_{n}/length"] = 6.0 * n
    row |= {
        f"difficulty/{band}": share
        for band, share in zip(
            BANDS, (0.2 * done, 0.3, 0.3, 0.4 - 0.2 * done), strict=True
        )
    }
    row["difficulty/changed_band"] = 0.25 * done
    for at, band in enumerate(BANDS[:3]):
        row |= {
            f"band_{band}/share": 1 / 3,
            f"band_{band}/pass": 0.9 - 0.4 * at + 0.05 * done,
            f"band_{band}/length": 40 - 18 * done * (band == "hard"),
            f"band_{band}/nonzero_std": 0.1 if band == "easy" else 0.5,
            f"band_{band}/all_correct": 0.9 if band == "easy" else 0.0,
            f"band_{band}/all_incorrect": 0.0 if band == "easy" else 0.5,
            f"band_{band}/advantage_mass": (0.1, 0.6, 0.3)[at],
            f"band_{band}/bare_answer": 0.5 * done if band == "hard" else 0.0,
            f"band_{band}/repetition": 0.0,
        }
    for kind, forward in zip(TYPES, (0.5 + 0.4 * done, 0.5 - 0.4 * done), strict=True):
        row[f"strategy_{kind}/forward"] = noisy(forward)
        row[f"strategy_{kind}/backward"] = 1 - row[f"strategy_{kind}/forward"]
    return row


CAUSES = ("nonzero_std", "all_incorrect", "truncated", "unverified")


def evaluation(rate, rng, num_problems=120):
    """Returns the results of a policy that is correct at `rate`, lower if harder.

    Bands follow the levels: 2 and 3 easy, 4 and 5 medium, 6 hard.
    """
    results = []
    for index in range(num_problems):
        level, kind = 2 + index % 5, TYPES[index // 5 % 2]
        chance = min(0.95, max(0.03, rate - 0.08 * (level - 4)))
        correct = [rng.random() < chance for _ in range(8)]
        results.append(
            ProblemResult(
                id=str(index),
                level=level,
                type=kind,
                statuses=tuple("correct" if c else "incorrect" for c in correct),
                answers=tuple(
                    "e3" if c else f"e{rng.randrange(4, 7)}" for c in correct
                ),
                lengths=(40,) * 8,
                finished=(True,) * 8,
                band=("easy", "easy", "medium", "medium", "hard")[level - 2],
                strategies=tuple(
                    rng.choice(("forward", "forward", "backward")) for _ in correct
                ),
            )
        )
    return results


def eval_summary(*evals):
    """Returns summary.json's part on the results before and after RL."""
    summary = {}
    for when, results in zip(("before", "after"), evals, strict=True):
        found = summarize_results(results, k=KS, resamples=100, seed=0)
        cut = found["by_band"].items()
        fresh = {band: scores for band, scores in cut if band != "easy"}
        summary[when] = found | {"by_band_fresh": fresh}
    before, after = (count_correct({r.id: r.statuses for r in each}) for each in evals)
    return summary | {
        "gain": summarize_gain(before, after, k=KS, resamples=100, seed=0)
    }


def rollout(step, index, completion="x y z"):
    verdict = ("correct", "incorrect", "incorrect", "correct", "correct", "unverified")[
        index
    ]
    return {
        "stage": "train",
        "step": step,
        "id": f"p{index}",
        "level": 4 + index % 3,
        "type": TYPES[index % 2],
        "prompt": "start e3 ; add e2 ; multiply e5 ; result ?",
        "gold": "e3",
        "completion": completion,
        "answer": {"correct": "e3", "incorrect": f"e{index + 3}"}.get(verdict),
        "verdict": verdict,
        "reason": "",
        "reward": float(verdict == "correct"),
        "advantage": 0.5 if verdict == "correct" else -0.5,
        "band": BANDS[index % 3],
        "length": 31,
        "finished": True,
        "strategy": "forward",
        "weight_version": step,
    }


def make_workdir(
    path: pathlib.Path,
    *,
    steps=120,
    evals=(0.42, 0.68),
    num_problems=120,
    sick_from=None,
):
    """Writes a workdir as a run does; by default finished, with both evaluations."""
    rng = random.Random(0)
    path.mkdir(parents=True, exist_ok=True)
    record = {
        "config": config(120),
        "seed": 0,
        "device": "2 x cpu",
        "commit": "0123456",
        "versions": {"jax": "0.10.2"},
    }
    (path / "config.json").write_text(json.dumps(record))
    with MetricsWriter(path) as writer:
        for step in range(steps // 2):
            decay = math.exp(-step / 15)
            writer.write("sft", step, {"loss/total": 2 * decay + 0.1})
        for step in range(steps):
            row = train_row(step, 120, rng)
            if sick_from is not None and step >= sick_from:
                row["rollout/length_mean"] = row["band_hard/length"] = 3.0
            writer.write("train", step, row)
    (path / "rollouts").mkdir(exist_ok=True)
    for step, text in ((0, "early words"), (50, "middle words"), (110, NASTY)):
        lines = [json.dumps(rollout(step, i, text)) + "\n" for i in range(6)]
        with gzip.open(path / f"rollouts/train_{step:06d}.jsonl.gz", "wt") as file:
            file.writelines(lines)
    if evals is not None:
        results = [evaluation(rate, rng, num_problems) for rate in evals]
        summary = {
            "task": "arithmetic in GF(7)",
            "algorithm": "DAPO",
            "params": 612_352,
            "params_sha256": "ab" * 32,
            "stages": {"sft": 81.0, "train": 190.5, "eval": 21.0},
            "throughput": {"rollout_tokens_per_s": 7400.0, "mfu": None},
            "compile_count": 14,
            "logprob_mismatch": {"mean": 2e-6, "max": 9e-6},
            "eval": eval_summary(*results),
        }
        (path / "summary.json").write_text(json.dumps(summary))
    return path


STATUS = {"r": "correct", "w": "incorrect", "u": "unverified"}
BEFORE = {"a": "rrrr", "b": "rrww", "c": "wwww", "d": "wwww"}


def contender(path, after, *, before=BEFORE, seed=0, types=("t",), gold="12", **train):
    """Returns the workdir of a run that answered "rrww" ... to each problem.

    The text states the gold if the answer is right or could not be judged.
    """
    make_workdir(path, steps=20, evals=None)
    record = json.loads((path / "config.json").read_text())
    record["config"] = config(20) | {"seed": seed}
    record["config"]["train"] |= train
    (path / "config.json").write_text(json.dumps(record))
    for when, answers in (("before", before), ("after", after)):
        rows = [
            {
                "id": name,
                "type": types[i % len(types)],
                "gold": gold,
                "completion": "9" if letter == "w" else f"it is {gold}",
                "verdict": STATUS[letter],
                "length": 10 * (i + 1),
            }
            for i, (name, letters) in enumerate(answers.items())
            for letter in letters
        ]
        file = path / f"rollouts/eval_{when}_000000.jsonl.gz"
        with gzip.open(file, "wt") as lines:
            lines.writelines(json.dumps(row) + "\n" for row in rows)
    k = {
        "1": {"mean": 0.5, "low": 0.25, "high": 0.75},
        "4": {"mean": 1.0, "low": None, "high": None},
    }
    after_ = {"pass@k": {"1": k["1"]}, "length_mean": 25.0}
    summary = {
        "eval": {"after": after_ | {"pass@k": k}},
        "stages": {"sft": 10.0, "train": 50.0 + seed},
    }
    (path / "summary.json").write_text(json.dumps(summary))
    return str(path)
