"""Steering: changes latents while a policy writes, and measures the effect.

    with load_policy(config, workdir, stage="eval") as loaded:
        policy = SteerablePolicy(loaded)
        push = policy.change_latents(tsae, layer=2, strengths={382: 2.0})
        with policy.steer(push):
            texts = policy.generate(["What is 2 + 2?"])

Clean and steered texts are drawn with the same sampling keys. So edits of gain 0
(`LatentEdit.with_scale`) write the clean texts, token for token; `check_sham` checks
this. Strength 0 is the same in the modes add and ablate only: clamp and scale then
remove the latent.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args

from job_jax.schema import ConfigError
from rlvr_jax.probe.edited_policy import kl_from_clean, sample_edited
from rlvr_jax.probe.intervene import Calibration, NullEditError, calibrate
from rlvr_jax.run.load import LoadedPolicy
from rlvr_jax.sampler import ScopedIntervention
from rlvr_jax.types import Problem
from sae_jax.edits import LatentEdit, Mode, check_latents, make_latent_edit
from sae_jax.sae import TSAE

Scope = Literal["completion", "predicting", "everywhere"]
SCOPES: tuple[Scope, ...] = get_args(Scope)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WrittenText:
    """One completion. Written by `SteerablePolicy.generate`.

    `kl` is KL(steered || clean) in nats per token, on this completion's own tokens; 0
    without steering.
    """

    prompt: str
    completion: str
    token_ids: tuple[int, ...]
    finished: bool
    kl: float


class SteerablePolicy:
    """A policy that writes texts with the settings of its config's `eval.sampling`."""

    def __init__(self, policy: LoadedPolicy) -> None:
        """Takes a policy whose setup is open (`load_policy`)."""
        self._policy = policy
        self._intervention: ScopedIntervention | None = None
        self._calibrated: dict[int, tuple[TSAE, Calibration]] = {}  # by layer

    def change_latents(
        self,
        tsae: TSAE,
        *,
        layer: int,
        strengths: Mapping[int, float],
        mode: Mode = "add",
    ) -> LatentEdit:
        """Returns the edit of an autoencoder's latents after a layer, for `steer`.

        `strengths` are by latent, in the units of `sae_jax.edits`. For add and clamp
        the unit is the latent's mean where it fires, on the policy's own answers to
        held-out problems. Raises ConfigError if a latent does not exist, or has no such
        mean because it never fires.
        """
        check_latents(tsae, tuple(strengths))
        calibrated = self._calibrate(tsae, layer)
        edit = make_latent_edit(
            tsae,
            tuple(strengths),
            layer=layer,
            mode=mode,
            strength=tuple(strengths.values()),
            mean_when_active=calibrated.firing.mean_when_active,
        )
        dead = calibrated.firing.select_dead(tuple(strengths))
        if dead and mode in ("add", "clamp"):
            raise ConfigError(
                f"latents {list(dead)} after layer {layer} fire on none of "
                f"{len(calibrated.residuals)} tokens of the policy's answers, so "
                f"{mode} has no unit for them; steer others, or use more problems "
                "(eval.num_problems)"
            )
        return edit

    def _calibrate(self, tsae: TSAE, layer: int) -> Calibration:
        known, calibrated = self._calibrated.get(layer, (None, None))
        if calibrated is None or known is not tsae:
            setup = self._policy.setup
            problems = setup.problems("eval", setup.config.eval.num_problems)
            calibrated = calibrate(self._policy, tsae, problems, layer=layer)
            self._calibrated[layer] = tsae, calibrated
        return calibrated

    @contextlib.contextmanager
    def steer(
        self, *edits: LatentEdit, scope: Scope = "completion"
    ) -> Iterator["SteerablePolicy"]:
        """Changes the texts that `generate` writes inside the `with` block.

        Edits may be of several layers; of several at one layer, each sees the stream
        that the previous ones left. In a nested block the inner edits replace the outer
        ones. `scope` is `ScopedIntervention`'s.
        """
        outer = self._intervention
        replicated = self._policy.setup.replicate(edits)
        self._intervention = ScopedIntervention(edits=replicated, scope=scope)
        try:
            yield self
        finally:
            self._intervention = outer

    def generate(self, prompts: Sequence[str | Problem]) -> list[WrittenText]:
        """Returns `eval.num_samples` texts for each prompt, prompt by prompt.

        A string is read as it is; a problem's prompt is the one that its task wrote.
        """
        problems = [_as_problem(each, at) for at, each in enumerate(prompts)]
        G = self._policy.setup.config.eval.num_samples
        decode = self._policy.setup.tokenizer.decode
        texts = []
        for part, rollouts in sample_edited(self._policy, problems, self._intervention):
            kl_B = kl_from_clean(self._policy, rollouts, self._intervention)
            for row, problem in enumerate(p for p in part for _ in range(G)):
                ids = rollouts.tokens[row, rollouts.mask[row]].tolist()
                texts.append(
                    WrittenText(
                        prompt=problem.prompt,
                        completion=decode(ids),
                        token_ids=tuple(ids),
                        finished=bool(rollouts.finished[row]),
                        kl=float(kl_B[row]) / max(len(ids), 1),
                    )
                )
        return texts

    def check_sham(
        self,
        prompts: Sequence[str | Problem],
        *edits: LatentEdit,
        scope: Scope = "completion",
    ) -> None:
        """Raises NullEditError if edits of gain 0 change the written texts."""
        clean = self.generate(prompts)
        with self.steer(*(edit.with_scale(0.0) for edit in edits), scope=scope):
            sham = self.generate(prompts)
        differs = [a.token_ids != b.token_ids for a, b in zip(clean, sham, strict=True)]
        if any(differs):
            raise NullEditError(
                f"edits of gain 0 changed {sum(differs)} of {len(differs)} texts: "
                "editing alone changes the drawn tokens, so no change is due to "
                "the latents; compute in float32 (model.compute_dtype=float32)"
            )


def _as_problem(prompt: str | Problem, at: int) -> Problem:
    if isinstance(prompt, Problem):
        return prompt
    return Problem(
        id=f"prompt/{at}", prompt=prompt, gold="", verifier="none", source="prompt"
    )
