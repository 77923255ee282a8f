"""What is known of each train problem: a posterior of its pass rate, and other scores.

Difficulty is relative to the policy, and the policy moves, so a problem's evidence
fades: at every visit what was counted before weighs `decay` times what it did. With d
the decay, and k_v of n_v judged completions right at visit v of V,

    Beta(1/2 + sum_v d^(V-v) k_v, 1/2 + sum_v d^(V-v) (n_v - k_v))

is the posterior under Jeffreys' prior. A jump in ability is thus forgotten at the rate
d^visits: with d = 0.7 a sixth of it is left after five. The decay is our choice.

Evidence that is thin is no evidence: a problem's band is the one that holds at least
`confidence` of the posterior's mass, and `unknown` where none does. No success in 8 is
unknown (mass 0.70 below 1/16), no success in 16 is hard (0.85). The bucket, in
contrast, is the share of successes of the policy before RL, taken at its word.

All this is a pure function of the visits, on the host, and plain JSON in a checkpoint.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import betainc

from rlvr_jax.config import DifficultyConfig
from rlvr_jax.types import BANDS

_PRIOR = 0.5  # pseudo-counts of right and of wrong
_SOLVED = 0.5  # a visit at which at least half of the judged completions were right
_COUNTS = (
    *("asked", "solved", "first_asked", "first_solved"),
    *("visits", "forgotten", "rated"),
)
_HISTORY = 16  # visits of a problem that are remembered one by one
BEFORE_RL = -1  # the step of the visits of the policy before RL


@dataclasses.dataclass(frozen=True, kw_only=True)
class Visit:
    """One group of a problem's completions. Written by the stages, read here.

    `entropy` is that of the answers given, in nats; 0 where all are the same.
    """

    problem: int  # its number within the pool
    judged: int
    right: int
    entropy: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difficulty:
    """What is known of the N problems of a pool. Read by curricula, guards, telemetry.

    `right` and `wrong` fade, `asked` and `solved` are all that was ever counted; the
    `first` two are the counts of the policy before RL. `last`, `entropy` (of the last
    visit) and `variance` (VCRL's, a moving average) are NaN before a problem's first
    judged visit. `draws` counts the batches that curricula have served.
    """

    draws: int
    right: Float[np.ndarray, " N"]
    wrong: Float[np.ndarray, " N"]
    asked: Int[np.ndarray, " N"]
    solved: Int[np.ndarray, " N"]
    first_asked: Int[np.ndarray, " N"]
    first_solved: Int[np.ndarray, " N"]
    visits: Int[np.ndarray, " N"]
    forgotten: Int[
        np.ndarray, " N"
    ]  # visits that did not solve what the one before did
    passes: Float[np.ndarray, " N"]  # sum over judged visits of the share right
    squares: Float[np.ndarray, " N"]  # ... and of its square
    rated: Int[np.ndarray, " N"]  # judged visits
    last: Float[np.ndarray, " N"]
    entropy: Float[np.ndarray, " N"]
    variance: Float[np.ndarray, " N"]
    history: Mapping[int, tuple[tuple[int, int, int], ...]]  # (step, judged, right)

    @property
    def size(self) -> int:
        """Returns N."""
        return len(self.right)

    @property
    def mean(self) -> Float[np.ndarray, " N"]:
        """Returns the posterior's mean pass rate, 1/2 before any evidence."""
        return (self.right + _PRIOR) / (self.right + self.wrong + 2 * _PRIOR)

    @property
    def spread(self) -> Float[np.ndarray, " N"]:
        """Returns the posterior's mean of p (1 - p), a group's learning signal."""
        a_N, b_N = self.right + _PRIOR, self.wrong + _PRIOR
        return a_N * b_N / ((a_N + b_N) * (a_N + b_N + 1))

    @property
    def lost(self) -> Bool[np.ndarray, " N"]:
        """Returns which problems were solved once and were not at their last visit."""
        return (self.forgotten > 0) & (self.last < _SOLVED)

    @property
    def pass_variance(self) -> Float[np.ndarray, " N"]:
        """Returns the variance of the share right over a problem's visits."""
        count_N = np.maximum(self.rated, 1)
        return np.maximum(self.squares / count_N - (self.passes / count_N) ** 2, 0.0)

    def below(self, pass_rate: float) -> Float[np.ndarray, " N"]:
        """Returns the posterior's mass below a pass rate."""
        return betainc(self.right + _PRIOR, self.wrong + _PRIOR, pass_rate)

    def bands(self, config: DifficultyConfig) -> Int[np.ndarray, " N"]:
        """Returns each problem's band by its posterior, as an index into BANDS."""
        hard_N = self.below(config.hard_below)
        easy_N = 1.0 - self.below(config.easy_above)
        mass_3N = np.stack([easy_N, 1.0 - easy_N - hard_N, hard_N])
        sure_N = mass_3N.max(axis=0) >= config.confidence
        return np.where(sure_N, mass_3N.argmax(axis=0), BANDS.index("unknown"))

    def buckets(self, config: DifficultyConfig) -> Int[np.ndarray, " N"]:
        """Returns each problem's bucket before RL, as an index into BANDS."""
        return buckets(self.first_solved, self.first_asked, config)

    def take(self, problems: Sequence[int]) -> "Difficulty":
        """Returns what is known of these problems, asked by number; -1 is a stranger.

        A stranger is a problem outside the pool, of which nothing is ever known.
        """
        index = np.asarray(problems, int)
        known = index >= 0
        blank = unknown(len(index))
        arrays: dict[str, Any] = {
            name: np.where(known, array[np.where(known, index, 0)], vars(blank)[name])
            for name, array in _arrays(self)
        }
        return dataclasses.replace(blank, draws=self.draws, **arrays)

    def to_json(self) -> dict[str, Any]:
        """Returns all of it as plain JSON; problems never met take no room."""
        met = np.flatnonzero(self.visits)
        columns = {name: array[met] for name, array in _arrays(self)}
        return {
            "size": self.size,
            "draws": self.draws,
            "problem": met.tolist(),
            **{name: _nulls(column.tolist()) for name, column in columns.items()},
            "history": [
                [list(visit) for visit in self.history.get(i, ())] for i in met.tolist()
            ],
        }


def buckets(
    right: Int[np.ndarray, " N"],
    judged: Int[np.ndarray, " N"],
    config: DifficultyConfig,
) -> Int[np.ndarray, " N"]:
    """Returns the band that each share right lies in, as an index into BANDS.

    Of what was never judged it is unknown.
    """
    return _classes(_share(right, judged), config)


def unknown(size: int) -> Difficulty:
    """Returns what is known of `size` problems that nobody has tried."""
    arrays: dict[str, Any] = {
        **{name: np.zeros(size, np.int64) for name in _COUNTS},
        **{name: np.zeros(size) for name in ("right", "wrong", "passes", "squares")},
        **{name: np.full(size, np.nan) for name in ("last", "entropy", "variance")},
    }
    return Difficulty(draws=0, history={}, **arrays)


def from_json(found: Mapping[str, Any]) -> Difficulty:
    """Returns what `to_json` wrote."""
    state = unknown(found["size"])
    met = np.array(found["problem"], int)
    arrays: dict[str, Any] = {}
    for name, array in _arrays(state):
        arrays[name] = array.copy()
        arrays[name][met] = [np.nan if v is None else v for v in found[name]]
    history = {
        int(i): tuple((s, n, c) for s, n, c in visits)
        for i, visits in zip(met, found["history"], strict=True)
    }
    return dataclasses.replace(state, draws=found["draws"], history=history, **arrays)


def updated(
    state: Difficulty,
    visits: Sequence[Visit],
    *,
    step: int,
    draws: int,
    config: DifficultyConfig,
    momentum: float,
) -> Difficulty:
    """Returns the state after these visits, one after the other.

    `draws` more batches were served meanwhile; `momentum` is that of VCRL's score. A
    visit of which nothing could be judged counts as a visit and is no evidence.
    """
    arrays: dict[str, Any] = {name: array.copy() for name, array in _arrays(state)}
    history = dict(state.history)
    for visit in visits:
        at, n, k = visit.problem, visit.judged, visit.right
        arrays["visits"][at] += 1
        if n == 0:
            continue
        share, before = k / n, arrays["last"][at]
        for name, gained in (("right", k), ("wrong", n - k)):
            arrays[name][at] = config.decay * arrays[name][at] + gained
        added: dict[str, float] = {
            "asked": n,
            "solved": k,
            "passes": share,
            "squares": share * share,
        }
        added |= {"rated": 1, "forgotten": int(before >= _SOLVED > share)}
        if step == BEFORE_RL:
            added |= {"first_asked": n, "first_solved": k}
        for name, count in added.items():
            arrays[name][at] += count
        old, new = arrays["variance"][at], variance_score(n, k)
        moved = momentum * old + (1 - momentum) * new
        arrays["variance"][at] = new if np.isnan(old) else moved
        arrays["last"][at], arrays["entropy"][at] = share, visit.entropy
        history[at] = (*history.get(at, ()), (step, n, k))[-_HISTORY:]
    return dataclasses.replace(
        state, draws=state.draws + draws, history=history, **arrays
    )


def variance_score(n: int, k: int) -> float:
    """Returns the variance of k successes in n over the largest that n allows.

    VCRL (https://arxiv.org/abs/2509.19803): k (n - k) / (n (n - 1)) over n / (4 (n-1))
    for even n and over (n + 1) / (4 n) for odd n. One completion has no variance: 0.
    """
    if n < 2:
        return 0.0
    largest = n / (4 * (n - 1)) if n % 2 == 0 else (n + 1) / (4 * n)
    return k * (n - k) / (n * (n - 1)) / largest


def rows(
    state: Difficulty,
    names: Sequence[str],
    levels: Sequence[int],
    *,
    config: DifficultyConfig,
) -> Iterator[dict[str, Any]]:
    """Yields a line of difficulty.jsonl for each problem that was ever met.

    Beside the posterior stand the scores that others
    propose, to be held against measured learning value: EL2N as 1 - pass rate before
    RL (of a binary reward it is the error), forgetting events (null where a problem
    was never solved, which counts as infinitely many), variance of accuracy over
    visits, level (steps of a chain), entropy of the answers. Length is none: it
    follows closeness to the training distribution.
    """
    bands_N, buckets_N = state.bands(config), state.buckets(config)
    mean_N, variance_N = state.mean, state.pass_variance
    for i in np.flatnonzero(state.visits).tolist():
        first = int(state.first_asked[i])
        ever = state.last[i] >= _SOLVED or state.forgotten[i] > 0
        yield {
            "id": names[i],
            "n": int(state.asked[i]),
            "c": int(state.solved[i]),
            "posterior": {
                "alpha": float(state.right[i]) + _PRIOR,
                "beta": float(state.wrong[i]) + _PRIOR,
                "mean": float(mean_N[i]),
            },
            "band": BANDS[bands_N[i]],
            "initial": {
                "n": first,
                "c": int(state.first_solved[i]),
                "bucket": BANDS[buckets_N[i]],
            },
            "visits": int(state.visits[i]),
            "scores": {
                "el2n": 1 - state.first_solved[i] / first if first else None,
                "forgetting": int(state.forgotten[i]) if ever else None,
                "pass_variance": float(variance_N[i]),
                "level": levels[i],
                "answer_entropy": _nulls([float(state.entropy[i])])[0],
            },
            "history": [list(visit) for visit in state.history.get(i, ())],
        }


def summary(state: Difficulty, config: DifficultyConfig) -> dict[str, Any]:
    """Returns the buckets before RL in numbers, for summary.json."""
    counts = np.bincount(state.buckets(config), minlength=len(BANDS)).tolist()
    return {
        "samples": config.samples,
        "problems": state.size,
        "buckets": dict(zip(BANDS, counts, strict=True)),
    }


def drift(state: Difficulty, config: DifficultyConfig) -> dict[str, float]:
    """Returns metrics of the pool: its shares by band, and how far it has moved.

    `moved` is the share of problems estimated before RL whose posterior mean by now
    belongs to another bucket; absent where none was estimated, as is everything before
    any problem of the pool was met.
    """
    if not state.visits.any():
        return {}
    bands_N = state.bands(config)
    metrics = {
        f"difficulty/{band}": float((bands_N == i).mean())
        for i, band in enumerate(BANDS)
    }
    rated_N, first_N = state.rated > 0, state.first_asked > 0
    if rated_N.any():
        metrics["difficulty/mean"] = float(state.mean[rated_N].mean())
    if first_N.any():
        now_N = _classes(state.mean, config)
        then_N = _classes(_smoothed(state.first_solved, state.first_asked), config)
        metrics["difficulty/moved"] = float((now_N != then_N)[first_N].mean())
    return metrics


def _smoothed(solved: np.ndarray, asked: np.ndarray) -> np.ndarray:
    return (solved + _PRIOR) / (asked + 2 * _PRIOR)


def _classes(pass_rate: np.ndarray, config: DifficultyConfig) -> np.ndarray:
    """Returns the band that each pass rate lies in, unknown where it is NaN."""
    return np.select(
        [
            np.isnan(pass_rate),
            pass_rate < config.hard_below,
            pass_rate > config.easy_above,
        ],
        [BANDS.index("unknown"), BANDS.index("hard"), BANDS.index("easy")],
        BANDS.index("medium"),
    )


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)


def _arrays(state: Difficulty) -> list[tuple[str, np.ndarray]]:
    return [(k, v) for k, v in vars(state).items() if isinstance(v, np.ndarray)]


def _nulls(values: list[Any]) -> list[Any]:
    """Returns the values with null for NaN, of which JSON knows nothing."""
    return [None if math.isnan(value) else value for value in values]
