"""Reference texts read under noise in the weights, which claims about RL must beat.

On fixed texts any change of the weights moves latents. The noise moves each tensor in a
random direction u, uniform on the sphere, by its own length r:

    theta_noise = theta_0 + r u

    drift   r = gain |theta_0|, with the gain at which the residual stream moves as far
            as RL moved it: sqrt(mean over tokens |x - x_0|^2) at the probe's layer
    norm    r = |theta_c - theta_0|: each tensor moves as far as under RL

Draws of `drift` are the null that features are compared with
(`sae_jax.stats.noise_null`). Draws of `check` are more of the same, and draws of `norm`
are other noise; both go through the comparison as if they were RL. Layers that are
stacked into one array count as one tensor.
"""

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Float, PyTree

from job_jax.files import write_atomically
from job_jax.processes import device_get
from job_jax.working import format_duration, working
from rlvr_jax.models import Transformer, keep_first_layers
from rlvr_jax.probe.latent_stats import sum_latents_by_sequence
from rlvr_jax.probe.protocol import PROBE_DIR
from rlvr_jax.probe.reference_texts import REFERENCE_TEXTS_FILE, ReferenceTexts
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.types import Array
from sae_jax.sae import TSAE
from sae_jax.stats.dynamics import PairedSums
from sae_jax.stats.noise_null import MIN_DRAWS

NUM_DRAWS = {"drift": MIN_DRAWS, "check": 5, "norm": 5}  # by kind of noise

_TOLERANCE = 0.02  # relative, for a draw's drift
_MAX_TRIALS = 30
_FIRST_GAIN = 0.01


def noise_file(directory: Path, step: int) -> Path:
    """Returns the file with a workdir's readings under noise matched to a step."""
    return directory / "features" / f"noise_{step:06d}.npz"


def write_noise(
    setup: RunSetup, workdir: Path, *, before: nnx.State, after: nnx.State, step: int
) -> None:
    """Lets the run's probe write the effect of noise that is as large as RL's change.

    `before` and `after` are the policy's parameters before RL and after `step` steps.
    """
    directory = workdir / PROBE_DIR
    texts = ReferenceTexts.load(directory / REFERENCE_TEXTS_FILE)
    setup.config.probe.load(directory, setup.mesh).write_noise(
        workdir,
        setup.graphdef,
        before=before,
        after=after,
        texts=setup.shard_batch(texts),
        step=step,
        key=setup.stream_key("noise"),
    )


class _Reading(NamedTuple):
    """Sums over each text's tokens; `drift` is the stream's distance from another."""

    sum: Float[Array, "F Z"]
    fired: Float[Array, "F Z"]
    tokens: Float[Array, " F"]
    stream: Float[Array, "F T D"] | None
    drift: Float[Array, ""]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoiseReadings:
    """The reference texts under weight noise. Written by `read_under_noise`.

    `sums` and `fired` hold the policy before RL under "before" and each draw under
    "drift0", "check0", "norm0" and so on, summed over the tokens of each text. `drift`
    is how far each draw, and RL (under "rl"), moved the stream; `stream_rms` is the
    stream's own root mean square. `weight_change` is |theta_c - theta_0| / |theta_0|,
    for each draw and for RL (under "rl").
    """

    problem_ids: tuple[str, ...]
    tokens: Float[np.ndarray, " F"]
    sums: dict[str, Float[np.ndarray, "F Z"]]
    fired: dict[str, Float[np.ndarray, "F Z"]]
    stream_rms: float
    drift: dict[str, float]
    weight_change: dict[str, float]

    def draws(self, kind: str, problem_ids: Sequence[str]) -> Iterator[PairedSums]:
        """Yields each draw of a kind paired with the policy before RL, on these texts.

        Raises ValueError if a text has not been read.
        """
        row_of = {name: i for i, name in enumerate(self.problem_ids)}
        if missing := [name for name in problem_ids if name not in row_of]:
            raise ValueError(f"texts never read under noise: {missing[:3]}")
        rows = [row_of[name] for name in problem_ids]
        old_sum, old_fired = (
            table["before"][rows].astype(np.float64)
            for table in (self.sums, self.fired)
        )
        for i in range(NUM_DRAWS[kind]):
            name = f"{kind}{i}"
            yield PairedSums(
                tokens=self.tokens[rows],
                sum=old_sum,
                sum_change=self.sums[name][rows] - old_sum,
                fired=old_fired,
                fired_change=self.fired[name][rows] - old_fired,
            )

    def relative_drift(self, kind: str) -> float:
        """Returns how far the stream moved relative to its rms, averaged over draws."""
        drifts = [drift for name, drift in self.drift.items() if name.startswith(kind)]
        return float(np.mean(drifts)) / self.stream_rms

    def save(self, path: Path) -> None:
        """Writes the readings as .npz; the file is complete or absent."""
        numbers = {n: vars(self)[n] for n in ("stream_rms", "drift", "weight_change")}
        arrays: dict[str, Any] = {f"sum_{n}": a for n, a in self.sums.items()}
        arrays |= {f"fired_{n}": a for n, a in self.fired.items()}
        with write_atomically(path) as partial, partial.open("wb") as file:
            np.savez_compressed(
                file,
                numbers=json.dumps(numbers),
                problem_ids=np.array(self.problem_ids),
                tokens=self.tokens,
                **arrays,
            )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Returns the readings that `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        return cls(
            problem_ids=tuple(arrays["problem_ids"].tolist()),
            tokens=arrays["tokens"],
            sums=_of_prefix(arrays, "sum_"),
            fired=_of_prefix(arrays, "fired_"),
            **json.loads(str(arrays["numbers"])),
        )


def _of_prefix(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(prefix): value
        for name, value in arrays.items()
        if name.startswith(prefix)
    }


def read_under_noise(
    graphdef: nnx.GraphDef,
    before: nnx.State,
    after: nnx.State,
    tsae: TSAE,
    texts: ReferenceTexts,
    *,
    layer: int,
    key: jax.Array,
) -> NoiseReadings:
    """Returns the effect of noise on the features of `texts`, and how far RL moved.

    `before` and `after` are parameters of `graphdef` before RL and after it; all
    arguments are on the mesh. Raises RuntimeError if no gain moves the stream as far as
    RL did.
    """
    read = functools.partial(_read, graphdef, tsae=tsae, texts=texts, layer=layer)
    read_noisy = functools.partial(
        _read_noisy, graphdef, before, tsae=tsae, texts=texts, layer=layer
    )
    nothing = jnp.zeros((*texts.tokens.shape, tsae.width), jnp.float32)
    clean = read(before, stream=nothing)
    rl_drift = float(read(after, stream=clean.stream).drift)
    sizes, moves = _tensor_norms(before), _tensor_norms(before, after)
    readings = {"before": device_get(clean._replace(stream=None))}
    drift = {"rl": rl_drift}
    weight_change = {"rl": _ratio_of_norms(moves, sizes)}
    gain = _FIRST_GAIN
    names = [(kind, i) for kind, count in NUM_DRAWS.items() for i in range(count)]
    start = time.monotonic()
    for number, (kind, i) in enumerate(names):
        lengths = moves
        with working(_describe_draw(number, len(names), time.monotonic() - start)):
            directions = _draw_directions(before, jax.random.fold_in(key, number))
            draw = functools.partial(
                read_noisy, directions=directions, stream=clean.stream
            )
            if kind == "norm":
                found = draw(moves)
            else:
                gain, found = _match_drift(draw, sizes, rl_drift, gain or _FIRST_GAIN)
                lengths = _scale(sizes, gain)
            name = f"{kind}{i}"
            drift[name] = float(found.drift)
        weight_change[name] = _ratio_of_norms(lengths, sizes)
        readings[name] = device_get(found._replace(stream=None))
        del directions, draw  # so that two draws are never in memory together
    return NoiseReadings(
        problem_ids=texts.problem_ids,
        tokens=readings["before"].tokens.astype(np.float64),
        sums={name: reading.sum for name, reading in readings.items()},
        fired={name: reading.fired for name, reading in readings.items()},
        stream_rms=float(clean.drift),
        drift=drift,
        weight_change=weight_change,
    )


def _describe_draw(number: int, total: int, elapsed_s: float) -> str:
    """Returns "draw 3 of 30, about 4m10s left"; the first draw cannot tell."""
    text = f"draw {number + 1} of {total}"
    if not number:
        return text
    left = format_duration(elapsed_s / number * (total - number))
    return f"{text}, about {left} left"


def add_matched_noise(
    params: nnx.State,
    measure_drift: Callable[[Any], float],
    *,
    target: float,
    key: jax.Array,
) -> Any:
    """Returns the parameters with noise of the kind `drift`, of the size `target`.

    `measure_drift` returns how far given parameters moved the measured quantity. Raises
    RuntimeError if no gain moves it by `target`.
    """
    directions = _draw_directions(params, key)

    def draw(lengths: PyTree) -> _Noisy:
        noisy = jax.jit(_move)(params, lengths, directions)
        return _Noisy(measure_drift(noisy), noisy)

    return _match_drift(draw, _tensor_norms(params), target, _FIRST_GAIN)[1].params


class _Noisy(NamedTuple):
    drift: float
    params: nnx.State


def _match_drift(
    draw: Any, sizes: Any, target: float, gain: float
) -> tuple[float, Any]:
    """Returns the gain whose `drift` is the target, and the draw at this gain.

    The search uses secants of log drift over log gain, and bisection if these leave the
    bracket.
    """
    if target == 0:
        return 0.0, draw(_scale(sizes, 0.0))
    low, high, slope = 0.0, np.inf, 1.0  # slope: of log drift over log gain
    last: tuple[float, float] | None = None
    for _ in range(_MAX_TRIALS):
        found = draw(_scale(sizes, gain))
        excess = float(np.log(found.drift / target))
        if abs(excess) <= _TOLERANCE:
            return gain, found
        low, high = (gain, high) if excess < 0 else (low, gain)
        if last is not None and last[0] != gain:
            slope = (excess - last[1]) / np.log(gain / last[0])
        last = gain, excess
        gain *= float(np.exp(-excess / np.clip(slope, 0.2, 2.0)))
        if not low < gain < high:
            gain = (low * high) ** 0.5
    raise RuntimeError(
        f"no weight noise moves the residual stream by {target:.4g}, as RL did "
        f"(gain {gain:.4g} by {float(found.drift):.4g}); were checkpoints changed?"
    )


def _scale(sizes: PyTree, gain: float) -> Any:
    return jax.tree.map(lambda size: size * gain, sizes)


def _ratio_of_norms(part: PyTree, whole: PyTree) -> float:
    squares = [
        sum(float(norm) ** 2 for norm in jax.tree.leaves(each))
        for each in (part, whole)
    ]
    return (squares[0] / squares[1]) ** 0.5


@jax.jit
def _tensor_norms(params: nnx.State, other: nnx.State | None = None) -> Any:
    """Returns each tensor's norm, or the norm of its difference from `other`'s."""
    params = jax.tree.map(lambda x: x.astype(jnp.float32), params)
    if other is not None:
        params = jax.tree.map(lambda x, y: y.astype(jnp.float32) - x, params, other)
    return jax.tree.map(lambda x: jnp.sqrt((x**2).sum()), params)


def _draw_directions(params: nnx.State, key: jax.Array) -> Any:
    """Returns a random float32 tensor of norm 1 for each tensor, laid out like it."""
    shardings = jax.tree.map(lambda x: x.sharding, params)
    return jax.jit(_draw, out_shardings=shardings)(params, key)


def _draw(params: nnx.State, key: jax.Array) -> Any:
    leaves, structure = jax.tree.flatten(params)
    drawn = []
    for i, leaf in enumerate(leaves):
        noise = jax.random.normal(jax.random.fold_in(key, i), leaf.shape, jnp.float32)
        drawn.append(noise / jnp.sqrt((noise**2).sum()))
    return jax.tree.unflatten(structure, drawn)


@functools.partial(jax.jit, static_argnames=("graphdef", "layer"))
def _read_noisy(
    graphdef: nnx.GraphDef,
    params: nnx.State,
    lengths: PyTree,
    *,
    directions: PyTree,
    **reading: object,
) -> _Reading:
    """Returns the result of `_read` for the parameters moved by `_move`."""
    return _read(graphdef, _move(params, lengths, directions), **reading)


def _move(params: nnx.State, lengths: PyTree, directions: PyTree) -> Any:
    """Returns the parameters, each moved by its length in its direction."""
    return jax.tree.map(
        lambda x, length, u: (x.astype(jnp.float32) + length * u).astype(x.dtype),
        params,
        lengths,
        directions,
    )


@functools.partial(jax.jit, static_argnames=("graphdef", "layer"))
def _read(
    graphdef: nnx.GraphDef,
    params: nnx.State,
    *,
    tsae: TSAE,
    texts: ReferenceTexts,
    layer: int,
    stream: Float[Array, "F T D"],
) -> _Reading:
    """Returns the sums of every latent over the tokens that `measure_texts` reads.

    `drift` is measured from `stream`; from zeros it is the stream's root mean square.
    """
    policy: Transformer = nnx.merge(graphdef, params)
    states = keep_first_layers(policy, layer + 1).hidden_states(
        texts.prompt_tokens,
        texts.prompt_lengths,
        texts.tokens,
        capture_layers=(layer,),
    )
    x_FTD = states.completions.captured[0].astype(jnp.float32)
    # The stream of a token counts if the next token is the policy's.
    mask_FT = jnp.pad(texts.mask[:, 1:], ((0, 0), (0, 1)))
    x_FTD = jnp.where(mask_FT[:, :, None], x_FTD, 0.0)
    found = sum_latents_by_sequence(
        tsae,
        x_FTD,
        mask_FT,
        outcome=texts.outcomes,
        decode_every=x_FTD.shape[0],  # explained variance is not needed
    ).statistics
    tokens_F = found.tokens.astype(jnp.float32)
    return _Reading(
        sum=found.sum,
        fired=found.nonzero,
        tokens=tokens_F,
        stream=x_FTD,
        drift=jnp.sqrt(
            ((x_FTD - stream) ** 2).sum() / jnp.maximum(tokens_F.sum(), 1.0)
        ),
    )
