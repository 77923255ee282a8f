"""Sections of the report on gains of RL, and on retained capabilities.

Gains are paired: each problem's pass rate after RL minus its pass rate before, on the
same draws. Each function returns its section, or None if the run has no data for it.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from job_jax.resampling import Interval
from rlvr_jax.metrics.bootstrap import mean_interval
from rlvr_jax.metrics.scores import bands_from_verdicts
from rlvr_jax.report.run_files import RunArtifacts
from rlvr_jax.report.sections import Part, Section
from rlvr_jax.report.tables import Table, format_percent
from rlvr_jax.rollouts.graded import Verdicts, verdicts_by_problem
from rlvr_jax.types import BANDS

_INTERVAL_NOTE = (
    "The brackets show where the gain would be with other problems of the same kind; "
    "if they include 0, the gain may be luck."
)
_HEAD = ("problems", "before RL", "after RL", "gain, points [95\u00a0%]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _HeldOut:
    """Each held-out problem's verdicts before and after RL, and its level."""

    before: Verdicts
    after: Verdicts
    levels: Mapping[str, int]
    resamples: int
    seed: int

    def row(self, label: str, names: Sequence[str], *, skip: int = 0) -> list[str]:
        """Returns a row of the table: pass rates of these problems, and the gain.

        Each problem's first `skip` samples are left out.
        """
        before_N, after_N = (
            np.array([_pass_rate(verdicts[name][skip:]) for name in names])
            for verdicts in (self.before, self.after)
        )
        gain = mean_interval(
            after_N - before_N,
            bounds=(-1.0, 1.0),
            resamples=self.resamples,
            seed=self.seed,
        )
        return [
            label,
            str(len(names)),
            format_percent(float(before_N.mean())),
            format_percent(float(after_N.mean())),
            _format_points(gain),
        ]


def gain_by_band(run: RunArtifacts) -> Section | None:
    """RL's gain by a held-out problem's band before RL."""
    if (held_out := _read_held_out(run)) is None:
        return None
    half = min(map(len, held_out.before.values())) // 2
    if half == 0:
        return None
    first = {name: statuses[:half] for name, statuses in held_out.before.items()}
    band_of = bands_from_verdicts(first, run.band_thresholds)
    groups = {band: [n for n in first if band_of[n] == band] for band in BANDS}
    rows = [
        held_out.row(band, names, skip=half) for band, names in groups.items() if names
    ]
    return Section(
        title="What RL gained, by difficulty",
        text=f"The first {half} samples of each held-out problem before RL choose its "
        "band, and only the others are scored, before and after RL. Luck in the first "
        f"samples thus does not bias the scores. {_INTERVAL_NOTE}",
        table=Table(head=("band before RL", *_HEAD), rows=rows),
    )


def prior_capability(run: RunArtifacts) -> Section | None:
    """Whether levels that RL never trained on are still solved."""
    asked = {int(n) for n in run.match_metrics("train", r"level_(\d+)/pass")}
    if not asked or (held_out := _read_held_out(run)) is None:
        return None
    levels = sorted(set(held_out.levels.values()) - asked)
    groups = {
        level: [name for name, at in held_out.levels.items() if at == level]
        for level in levels
    }
    if not groups:
        return None
    rows = [
        held_out.row(run.level_label(level), names) for level, names in groups.items()
    ]
    if len(rows) > 1:
        rows.append(held_out.row("all of these", _join(groups.values())))
    return Section(
        title="Skills from before RL: kept or forgotten",
        text="Held-out problems of levels that RL never trained on. Skill on them is "
        f"from before RL, so a gain below 0 is forgetting. {_INTERVAL_NOTE}",
        table=Table(head=("", *_HEAD), rows=rows),
    )


def _read_held_out(run: RunArtifacts) -> _HeldOut | None:
    """Returns the verdicts before and after RL, None if one side is missing."""
    if not all(run.rollout_steps(f"eval_{when}") for when in ("before", "after")):
        return None
    before, after = (run.rollouts(f"eval_{when}", 0) for when in ("before", "after"))
    return _HeldOut(
        before=verdicts_by_problem(before),
        after=verdicts_by_problem(after),
        levels={row["id"]: row["level"] for row in before},
        resamples=run.config["eval"]["bootstrap_resamples"],
        seed=run.config["seed"],
    )


def _pass_rate(statuses: Sequence[str]) -> float:
    return sum(status == "correct" for status in statuses) / len(statuses)


def _join(groups: Iterable[Sequence[str]]) -> list[str]:
    return [name for names in groups for name in names]


def _format_points(gain: Interval) -> str:
    """Returns "+12.3 [8.1, 16.4]", in points; only the gain for one problem."""
    value, low, high = (100 * part for part in gain)
    return f"{value:+.1f}" + ("" if np.isnan(low) else f" [{low:.1f}, {high:.1f}]")


PARTS = (
    Part(gain_by_band, order=10, is_first=True),
    Part(prior_capability, order=140),
)
