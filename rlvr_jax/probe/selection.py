"""The reasoning features of a run, as stored in selection.json."""

import dataclasses
import json
from pathlib import Path
from typing import Any, Self

from job_jax.files import write_atomically


@dataclasses.dataclass(frozen=True, kw_only=True)
class HalvesAgreement:
    """How well two halves of the problems agree on candidates. See `select_features`.

    Only problems with both a correct and an incorrect completion count: `num_problems`
    chose the candidates, and confirmed them. `sign_agreement` is the fraction of
    candidates whose effect has the same sign on both halves; `correlation` is between
    the effects of all selectable latents on both. Without any signal: about 0.5 and 0.
    """

    num_problems: tuple[int, int]
    num_candidates: int
    num_confirmed: int
    sign_agreement: float
    correlation: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureSelection:
    """The reasoning features of a run. Written by `select_features` to selection.json.

    The sizes of `weights` add up to 1. `rms` is each feature's root mean square over
    tokens, `scores` its score from the method. `effects` are correlations of its mean
    activation with the outcome within problems, and `effect_errors` their standard
    errors over problems. They use all problems; with the method `contrast`, only the
    half that confirmed, where `q_values` are the features' adjusted p-values.
    `seed_cosine` is the cosine of its decoder row with the rows of other seeds. Of the
    `num_alive` latents that fire, `num_stable` reach the limit on it (both are None
    without another seed).

    A selection without features says why in `refusal`, and RFGO is off. With the
    controls `direction` and `random_directions` the features are read along
    `directions` from `center`, above `bounds` if there are any (`LatentReader`);
    `latents` are the ones that they replace. `dead` lists named latents that hardly
    fire.
    """

    latents: tuple[int, ...]
    weights: tuple[float, ...]
    rms: tuple[float, ...]
    scores: tuple[float, ...]
    effects: tuple[float, ...]
    effect_errors: tuple[float, ...]
    q_values: tuple[float, ...] | None
    seed_cosine: tuple[float, ...] | None
    method: str
    control: str
    layer: int
    dead: tuple[int, ...]
    num_alive: int
    num_stable: int | None
    num_completions: int
    halves: HalvesAgreement | None
    refusal: str = ""
    directions: tuple[tuple[float, ...], ...] = ()
    bounds: tuple[float, ...] = ()  # (): none
    center: tuple[float, ...] = ()

    def save(self, path: Path) -> None:
        """Writes the selection as JSON, in one step."""
        with write_atomically(path) as partial:
            partial.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Returns the selection that `save` wrote."""
        values = _as_tuples(json.loads(path.read_text()))
        if direction := values.pop("direction", ()):  # before there were several
            values["directions"] = (direction,)
        if values["halves"] is not None:
            values["halves"] = HalvesAgreement(**_as_tuples(values["halves"]))
        return cls(**values)

    def summary(self) -> dict[str, Any]:
        """Returns the features' entry in summary.json."""
        skipped = (
            "rms",
            "layer",
            "num_completions",
            "directions",
            "bounds",
            "center",
        )
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if name not in skipped}


def _as_tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _as_tuple(value) for name, value in values.items()}


def _as_tuple(value: object) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value
