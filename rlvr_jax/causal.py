"""Causes: latents changed while the policy answers, and what changes with them.

Every arm answers the same held-out problems with the same sampling keys: the policy as
it is (clean), with the latents edited (target), and the controls: random latents that
fire as often and move the stream as far, a random direction that moves every token
exactly as far, and a sham edit that moves nothing. A target that does no more than its
controls is no cause, however large its effect.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from job_jax.schema import ConfigError
from rlvr_jax.config import Config
from rlvr_jax.data.loader import encode_prompts
from rlvr_jax.evaluate import Judged, completions
from rlvr_jax.given import check_fits
from rlvr_jax.models import Activations, Transformer
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.outcomes import outcomes, right
from rlvr_jax.paired import Ratio
from rlvr_jax.restored import Restored
from rlvr_jax.sampler import Edited, sample, stopped
from rlvr_jax.types import Problem, Rollouts
from sae_jax.edits import (
    MODES,
    Firing,
    LatentEdit,
    Mode,
    check_latents,
    firing,
    latent_edit,
    matched,
    matched_latents,
    move,
)
from sae_jax.formats.record import SAERecord
from sae_jax.io import read
from sae_jax.sae import TSAE

__all__ = [
    "CONTROLS",
    "MODES",
    "Answered",
    "Arm",
    "Calibration",
    "Kind",
    "Question",
    "answer",
    "arms",
    "calibrate",
    "open_sae",
]

Kind = Literal["clean", "target", "random latents", "random direction", "sham"]
CONTROLS: tuple[Kind, ...] = ("random latents", "random direction")

_CALIBRATION = 32_768  # clean completion tokens that rates and distances come from


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """What is edited, and against how much chance."""

    layer: int
    latents: tuple[int, ...]
    mode: Mode
    doses: tuple[float, ...]
    draws: int  # of random latents, and of random directions
    where: Literal["completion", "drawn", "everywhere"]

    def __post_init__(self) -> None:
        """Refuses a question without doses or without controls."""
        if not self.doses:
            raise ConfigError("no doses; name some, such as 1")
        if self.draws < 1:
            raise ConfigError(f"draws={self.draws}; a claim takes at least one control")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
    """One way of answering. `moved` is the mean |delta x| of a clean token."""

    kind: Kind
    dose: float = 0.0
    draw: int = 0
    latents: tuple[int, ...] = ()
    edit: LatentEdit | None = None
    moved: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answered:
    """What an arm did. `rights` is [N, G]; `tokens` [B, T], its completions.

    `outcomes` are those of `outcomes.outcomes`, and "kl": nats a token of KL(arm ||
    clean) on the arm's own completions, exact, at temperature 1, nothing truncated.
    """

    arm: Arm
    outcomes: dict[str, Ratio]
    rights: np.ndarray
    tokens: np.ndarray

    def same(self, other: "Answered") -> float:
        """Returns the share of completions that are the other's, token for token."""
        return float((self.tokens == other.tokens).all(axis=1).mean())


class Calibration(NamedTuple):
    """Streams of clean completions, [N, D], and how the latents fire on them."""

    streams: np.ndarray
    firing: Firing


def open_sae(
    path: str, config: Config, *, layer: int, latents: Sequence[int]
) -> SAERecord:
    """Returns an autoencoder that fits the policy and the layer, and has the latents.

    Raises ConfigError where it is of another width, layer or model, naming both, and
    where the latents are not its own.
    """
    if not 0 <= layer < config.model.layers:
        raise ConfigError(
            f"layer={layer}; the policy has layers 0..{config.model.layers - 1}"
        )
    record = read(path)
    check_fits(record, path, config, layer=layer)
    check_latents(record.tsae, latents)
    return record


def calibrate(
    restored: Restored, tsae: TSAE, problems: Sequence[Problem], *, layer: int
) -> Calibration:
    """Returns what the unedited policy does: at most 32,768 tokens of completions.

    The tokens that something is drawn from: all but a completion's last.
    """
    found: list[np.ndarray] = []
    for part, rollouts in _sampled(restored, problems, None):
        stream_BTD = jax.device_get(
            _stream(restored.run.graphdef, restored.params, rollouts, layer=layer)
        )
        index_T = np.arange(stream_BTD.shape[1])
        kept_BT = index_T[None] < jax.device_get(rollouts.lengths)[:, None] - 1
        rows = len(kept_BT) // len(rollouts.prompts.lengths) * len(part)
        found.append(stream_BTD[:rows][kept_BT[:rows]])
        if sum(map(len, found)) >= _CALIBRATION:
            break
    streams = np.concatenate(found)[:_CALIBRATION].astype(np.float32)
    return Calibration(streams, firing(tsae, streams))


def arms(
    question: Question, tsae: TSAE, calibration: Calibration, *, seed: int
) -> list[Arm]:
    """Returns every edited arm: each dose's target and controls, and one sham.

    Random latents and directions are drawn once and serve all doses.
    """
    streams, rates = calibration.streams, calibration.firing
    sets = matched_latents(
        rates.rate, question.latents, draws=question.draws, seed=seed
    )
    directions = np.random.default_rng(seed).normal(size=(question.draws, tsae.width))

    def edit(latents: tuple[int, ...], dose: float) -> LatentEdit:
        return latent_edit(
            tsae,
            latents,
            layer=question.layer,
            mode=question.mode,
            dose=dose,
            unit=rates.unit,
        )

    found = []
    for dose in question.doses:
        target = edit(question.latents, dose)
        edits: list[tuple[Kind, int, tuple[int, ...], LatentEdit]] = [
            ("target", 0, question.latents, target)
        ]
        for draw, latents in enumerate(sets):
            other = matched(edit(latents, dose), target, streams)
            edits.append(("random latents", draw, latents, other))
        for draw, direction in enumerate(directions):
            edits.append(("random direction", draw, (), target.along(direction)))
        if dose == question.doses[0]:
            edits.append(("sham", 0, question.latents, target.with_gain(0.0)))
        found += [
            Arm(
                kind=kind,
                dose=dose,
                draw=draw,
                latents=latents,
                edit=each,
                moved=move(each, streams),
            )
            for kind, draw, latents, each in edits
        ]
    return found


def answer(
    restored: Restored, problems: Sequence[Problem], arm: Arm, *, where: Any
) -> Answered:
    """Returns what an arm does with the problems: config.eval's samples of each."""
    run, config = restored.run, restored.run.config.eval
    edited = None
    if arm.edit is not None:
        edited = Edited(edit=run.replicate(arm.edit), where=where)
    G = config.samples_per_problem
    judged: list[Judged] = []
    tokens, kl = [], []
    for part, rollouts in _sampled(restored, problems, edited):
        on_host = stopped(jax.device_get(rollouts), run.tokenizer)
        judged += completions(run, part, on_host)
        tokens.append(on_host.tokens[: len(part) * G])
        divergence_B = np.zeros(len(tokens[-1]))
        if edited is not None:
            kept = dataclasses.replace(rollouts, lengths=run.place(on_host.lengths))
            found = _divergence(run.graphdef, restored.params, kept, edited)
            divergence_B = np.asarray(found, np.float64)[: len(divergence_B)]
        kl.append(divergence_B)
    found = outcomes(run.config.task, judged, samples=G, k=config.k)
    return Answered(
        arm=arm,
        outcomes=found
        | {
            "kl": Ratio(
                value=np.concatenate(kl).reshape(-1, G).sum(axis=1),
                per=found["length"].value,
            )
        },
        rights=right(judged, G),
        tokens=np.concatenate(tokens),
    )


def _sampled(
    restored: Restored, problems: Sequence[Problem], edited: Edited | None
) -> Iterator[tuple[list[Problem], Rollouts]]:
    """Yields batches of problems with their rollouts, the last filled up."""
    run, params, step = restored
    config = run.config.eval
    sampling = run.replicate(Sampling.of(config.sampling))
    for start in range(0, len(problems), config.batch_size):
        part = list(problems[start : start + config.batch_size])
        filled = part + [part[0]] * (config.batch_size - len(part))
        prompts = encode_prompts(filled, run.tokenizer, bucket=run.config.prompt_bucket)
        yield (
            part,
            sample(
                run.graphdef,
                params,
                run.place(prompts),
                sampling,
                key=run.key("eval"),
                weight_version=np.int32(step),
                samples_per_prompt=config.samples_per_problem,
                max_new_tokens=config.sampling.max_new_tokens,
                edited=edited,
            ),
        )


def _read(
    policy: Transformer,
    rollouts: Rollouts,
    edited: Edited | None,
    *,
    taps: tuple[int, ...] = (),
) -> tuple[jax.Array, Activations]:
    """Returns the hidden state [B, D] that token 0 is drawn from, and the rest's."""
    layers, prompts = policy.layers(), rollouts.prompts
    index_S = jnp.arange(prompts.tokens.shape[1], dtype=jnp.int32)
    prompt, prefix = policy.prefill(
        prompts.tokens,
        index_S[None] < prompts.lengths[:, None],
        layers=layers,
        edit=None if edited is None else edited.of_prompts(prompts),
    )
    rest = policy.extend(
        rollouts.tokens,
        prefix,
        layers=layers,
        taps=taps,
        edit=None if edited is None else edited.edit,
    )
    last_P11 = prompts.lengths[:, None, None] - 1
    last_PD = jnp.take_along_axis(prompt.hidden, last_P11, axis=1)[:, 0]
    G = len(rollouts.lengths) // len(prompts.lengths)
    return jnp.repeat(last_PD, G, axis=0), rest


@functools.partial(jax.jit, static_argnames=("graphdef", "layer"))
def _stream(graphdef: Any, params: Any, rollouts: Rollouts, *, layer: int) -> jax.Array:
    """Returns the residual stream of completions after a layer, [B, T, D]."""
    policy: Transformer = nnx.merge(graphdef, params)
    return _read(policy, rollouts, None, taps=(layer,))[1].taps[0]


@functools.partial(jax.jit, static_argnames="graphdef")
def _divergence(
    graphdef: Any, params: Any, rollouts: Rollouts, edited: Edited
) -> jax.Array:
    """Returns KL(edited || clean) summed over each completion's tokens, [B].

    The logits of one position exist at a time.
    """
    policy: Transformer = nnx.merge(graphdef, params)

    def states(edited: Edited | None) -> jax.Array:
        first_BD, rest = _read(policy, rollouts, edited)
        hidden_BTD = jnp.concatenate([first_BD[:, None], rest.hidden[:, :-1]], axis=1)
        return hidden_BTD.swapaxes(0, 1)

    def of_token(hidden: tuple[jax.Array, jax.Array]) -> jax.Array:
        ours_BV, clean_BV = (
            jax.nn.log_softmax(policy.logits(each_BD[:, None])[:, 0])
            for each_BD in hidden
        )
        return (jnp.exp(ours_BV) * (ours_BV - clean_BV)).sum(axis=-1)

    kl_TB = jax.lax.map(of_token, (states(edited), states(None)))
    index_T = jnp.arange(kl_TB.shape[0], dtype=jnp.int32)
    return jnp.where(index_T[:, None] < rollouts.lengths[None], kl_TB, 0.0).sum(axis=0)
