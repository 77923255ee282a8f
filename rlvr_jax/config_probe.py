"""The settings of the probe: a temporal sparse autoencoder, and what it steers."""

import dataclasses
from typing import Annotated, Literal

from job_jax.config import NOT_EMPTY, CheckpointConfig, PositiveShare, Seed
from job_jax.schema import (
    Bound,
    Count,
    NonNegative,
    Positive,
    Section,
    Share,
    Whole,
    require,
)
from sae_jax import config as autoencoder
from sae_jax.features import REASONING_WORDS


@dataclasses.dataclass(frozen=True, kw_only=True)
class DictionaryConfig(Section):
    """The autoencoder that stage `tsae` trains, as `sae_jax` knows it."""

    sae: autoencoder.SAEConfig = autoencoder.SAEConfig(latents=2048)
    loss: autoencoder.LossConfig = autoencoder.LossConfig(dead_after=200_000)
    optimizer: autoencoder.OptimizerConfig = autoencoder.OptimizerConfig(
        learning_rate=1e-3, warmup_steps=50
    )
    train: autoencoder.TrainConfig = autoencoder.TrainConfig(
        steps=500, seeds=2, twin=False, threshold_start=200, threshold_decay=0.99
    )
    batch_size: Count = 1024  # pairs a step, over all devices
    hold_out: Annotated[float, Bound("lie in (0, 1)", lambda x: 0 < x < 1)] = (
        0.05  # share of the completions, for calibration and measurement
    )

    def __post_init__(self) -> None:
        """Refuses combinations that could not train."""
        super().__post_init__()
        checkpoint = CheckpointConfig()
        self.as_job(name="", seed=0, path="", checkpoint=checkpoint, log_every=1)

    def as_job(
        self,
        *,
        name: str,
        seed: Seed,
        path: str,
        checkpoint: CheckpointConfig,
        log_every: int,
    ) -> autoencoder.Config:
        """Returns the job of `sae_jax.train` on the activations at `path`."""
        return autoencoder.Config(
            name=name,
            seed=seed,
            sae=self.sae,
            loss=self.loss,
            optimizer=self.optimizer,
            pairs=autoencoder.PairsConfig(
                path=path, batch_size=self.batch_size, hold_out=self.hold_out
            ),
            train=self.train,
            checkpoint=checkpoint,
            log=autoencoder.LogConfig(every=log_every),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureSetConfig(Section):
    """Which latents are reasoning features, R of them, and how much each counts.

    | method       | score of a latent                                            |
    |--------------|--------------------------------------------------------------|
    | contrast     | Cohen's d of right against wrong completions, signed         |
    | reason_score | ReasonScore over `words` (https://arxiv.org/abs/2503.18878)  |
    | list         | `latents`, all alike                                         |
    | pack         | the weights of a mechreward pack, at `pack`                  |

    The arms are controls: as many other latents matched in firing rate; one raw
    direction, mean right less mean wrong; the token weights shuffled.
    """

    method: Literal["contrast", "reason_score", "list", "pack"] = "contrast"
    count: Count = 16  # R, of largest |score|; fewer where fewer are stable
    latents: tuple[int, ...] = ()  # list
    pack: str = ""  # pack: a JSON file
    words: Annotated[tuple[str, ...], NOT_EMPTY] = REASONING_WORDS  # reason_score
    min_stability: Share = 0.5  # decoder cosine with other seeds' latents; below: out
    arm: Literal["features", "random", "direction", "shuffled"] = "features"

    def __post_init__(self) -> None:
        """Refuses a method without what it reads, and fields that it does not."""
        super().__post_init__()
        reads = {"list": "latents", "pack": "pack", "reason_score": "words"}
        for method, name in reads.items():
            value, default = vars(self)[name], type(self).__dataclass_fields__[name]
            require(
                self.method == method or value == default.default,
                f"{name}={value!r} does nothing with method={self.method}; leave it, "
                f"or set method={method}",
            )
        require(
            self.method != "list" or len(self.latents) > 0,
            "latents=() is an empty feature set; name latents, or choose a method that "
            "finds them",
        )
        require(
            len(set(self.latents)) == len(self.latents),
            f"latents={self.latents} names a latent twice",
        )
        require(
            self.method != "pack" or self.pack != "",
            "pack='' names no file; give the path of a mechreward pack",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeConfig(Section):
    """A temporal sparse autoencoder that reads the policy, frozen while RL goes on.

    Stage `tsae` asks the policy before RL `problems` problems, G times each: to train
    the autoencoder on (source=stage), to select features by, and for fixed texts.
    """

    source: Literal["off", "stage", "path"] = "off"  # path: one that exists
    path: str = ""  # source=path: a directory or file that sae_jax.load reads
    model: str = ""  # source=path: what the autoencoder calls the model; "": `name`
    layer: Whole = 0  # the residual stream after this layer, from 0
    problems: Count = 256
    fixed: Count = 64  # the first of them, read again at every logged step
    log_every: Whole = 20  # RL steps between statistics of all latents; 0: none
    max_fve_drop: PositiveShare = 0.1  # of explained variance; beyond it, an alarm
    measure_overhead: bool = True  # time updates with and without, when RL ends
    dictionary: DictionaryConfig = DictionaryConfig()
    features: FeatureSetConfig = FeatureSetConfig()

    def __post_init__(self) -> None:
        """Refuses a path that is missing or not read."""
        super().__post_init__()
        require(
            (self.source == "path") == (self.path != ""),
            f"path={self.path!r} with source={self.source}; a path goes with "
            "source=path, and only with it",
        )
        require(
            self.source == "path" or self.model == "",
            f"model={self.model!r} does nothing with source={self.source}; leave it",
        )
        require(
            self.fixed <= self.problems,
            f"fixed={self.fixed} problems are taken from problems={self.problems}; "
            "lower it, or ask more",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RFGOConfig(Section):
    """Reasoning-feature-guided optimization (docs/rfgo.md; the equations are ours).

    With lambda_w=0 and lambda_p=0 the probe only watches, and the run is bit for bit
    the one without it.
    """

    lambda_w: NonNegative = 0.0  # of token weights: clip(1 + lambda_w z, low, high)
    lambda_p: NonNegative = 0.0  # of proxy advantages, in zero-variance groups
    movement: Literal["temporal", "policy_ref", "level"] = "temporal"
    weight_low: PositiveShare = 0.5
    weight_high: Positive = 2.0
    proxy_groups: Literal["all_wrong", "zero_variance"] = "all_wrong"
    proxy_clip: Positive = 3.0  # of a completion's mean feature level
    anneal_steps: Whole = 0  # RL steps over which lambda_p falls to 0; 0: never
    min_correlation: Annotated[
        float, Bound("lie in [-1, 1]", lambda x: -1 <= x <= 1)
    ] = 0.0  # of proxy and outcome; below it the proxy turns itself off
    correlation_steps: Count = 20  # steps that it is taken over
    scale_decay: PositiveShare = 0.1  # weight of a step in the features' running scale

    def __post_init__(self) -> None:
        """Refuses bounds that do not enclose 1."""
        super().__post_init__()
        require(
            self.weight_high >= 1,
            f"weight_high={self.weight_high} is below 1, the mean weight; raise it",
        )

    @property
    def steers(self) -> bool:
        """Returns whether updates are other than without a probe."""
        return self.lambda_w > 0 or self.lambda_p > 0

    @property
    def reads_reference(self) -> bool:
        """Returns whether weights need the policy before RL."""
        return self.lambda_w > 0 and self.movement == "policy_ref"
