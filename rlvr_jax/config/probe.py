"""The settings of a probe, of the autoencoder it may be, and of what it steers."""

import dataclasses
from typing import Annotated, Any, ClassVar, Literal

from job_jax.config import NON_EMPTY, CheckpointConfig, PositiveFraction, Seed
from job_jax.registry import OpenSection, Registry
from job_jax.schema import (
    ConfigSection,
    Constraint,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    UnitInterval,
    check,
)
from sae_jax import config as autoencoder
from sae_jax.config import REASONING_WORDS


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeSAEConfig(ConfigSection):
    """How stage `probe` trains an autoencoder: sections of `sae_jax`'s own config."""

    architecture: autoencoder.SAEConfig = autoencoder.SAEConfig(latents=2048)
    loss: autoencoder.LossConfig = autoencoder.LossConfig(dead_after_tokens=200_000)
    optimizer: autoencoder.OptimizerConfig = autoencoder.OptimizerConfig(
        learning_rate=1e-3, warmup_steps=50
    )
    train: autoencoder.TrainConfig = autoencoder.TrainConfig(
        steps=2000,
        num_seeds=2,
        no_contrast_baseline=False,
        threshold_start_step=200,
        threshold_decay=0.99,
    )
    batch_size: PositiveInt = 1024  # pairs a step, over all devices
    eval_fraction: Annotated[
        float, Constraint("lie in (0, 1)", lambda x: 0 < x < 1)
    ] = 0.05  # share of the problems; half calibrate the threshold, half measure

    def __post_init__(self) -> None:
        """Refuses combinations that could not train."""
        super().__post_init__()
        checkpoint = CheckpointConfig()
        self.make_train_config(
            name="", seed=0, activations_dir="", checkpoint=checkpoint, log_every=1
        )

    def make_train_config(
        self,
        *,
        name: str,
        seed: Seed,
        activations_dir: str,
        checkpoint: CheckpointConfig,
        log_every: int,
    ) -> autoencoder.Config:
        """Returns the config of `sae_jax.train` on the activations at that path."""
        return autoencoder.Config(
            name=name,
            seed=seed,
            sae=self.architecture,
            loss=self.loss,
            optimizer=self.optimizer,
            pairs=autoencoder.PairsConfig(
                path=activations_dir,
                batch_size=self.batch_size,
                eval_fraction=self.eval_fraction,
            ),
            train=self.train,
            checkpoint=checkpoint,
            log=autoencoder.LogConfig(every=log_every),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureSelectionConfig(ConfigSection):
    """Which latents are reasoning features, R of them, and how much each counts.

    | method       | score of a latent                                            |
    |--------------|--------------------------------------------------------------|
    | contrast     | its effect within problems, confirmed on other problems      |
    | reason_score | ReasonScore over `words` (https://arxiv.org/abs/2503.18878)  |
    | list         | `latents`, all alike                                         |
    | weights_file | the weights of a mechreward pack, at `weights_file`          |

    The effect is the correlation of a latent's mean activation with the outcome among
    completions of one problem. Where no latent is left, RFGO is off and the run says
    so.

    `control` replaces the features by something that should do no good: as many random
    latents of like firing rate, stability and decoder norm; as many random directions,
    each past a bound so that it fires as often; one raw direction, the mean activation
    of correct less that of incorrect completions of a problem; or the same token
    weights, each completion's in a random order.
    """

    method: Literal["contrast", "reason_score", "list", "weights_file"] = "contrast"
    num_features: PositiveInt = 16  # R at most, of largest |score|
    fdr: PositiveFraction = 0.05  # contrast: share of confirmed features that are false
    latents: tuple[int, ...] = ()  # list
    weights_file: str = ""  # weights_file: a JSON file
    words: Annotated[tuple[str, ...], NON_EMPTY] = REASONING_WORDS  # reason_score
    min_seed_cosine: UnitInterval = 0.5  # of decoder rows with other seeds'; below: out
    control: Literal[
        "none", "random_latents", "random_directions", "direction", "shuffled_weights"
    ] = "none"

    def __post_init__(self) -> None:
        """Refuses a method without what it reads, and fields that it does not."""
        super().__post_init__()
        reads = {
            "list": "latents",
            "weights_file": "weights_file",
            "reason_score": "words",
        }
        for method, name in reads.items():
            value, default = vars(self)[name], type(self).__dataclass_fields__[name]
            check(
                self.method == method or value == default.default,
                f"{name}={value!r} does nothing with method={self.method}; leave it, "
                f"or set method={method}",
            )
        check(
            self.method != "list" or len(self.latents) > 0,
            "latents=() is an empty feature set; name latents, or choose a method that "
            "finds them",
        )
        check(
            len(set(self.latents)) == len(self.latents),
            f"latents={self.latents} names a latent twice",
        )
        check(
            self.method != "weights_file" or self.weights_file != "",
            "weights_file='' names no file; give the path of a mechreward pack",
        )


PROBES = Registry(
    "probe",
    {
        "none": "rlvr_jax.config.probe:ProbeConfig",
        "sae": "rlvr_jax.probe.sae:SAEProbeConfig",
    },
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeConfig(OpenSection):
    """What reads the policy's residual stream during RL. By itself: nothing.

    `probe.name` chooses the class of this section: `none` (this one), `sae` (a sparse
    autoencoder, `rlvr_jax.probe.sae`), or your own as "package.module:Class". Yours
    derives from this class, adds its settings as fields, and implements `fit` and
    `load`; docs/extend.md has one in full.

    Stage `probe` samples `num_problems` problems from the policy before RL, G
    completions each. The probe is fitted to these, and then frozen.
    """

    registry: ClassVar[Registry] = PROBES

    layer: NonNegativeInt = 0  # the residual stream after this layer, from 0
    num_problems: PositiveInt = 256
    num_reference_texts: PositiveInt = 64  # re-read at every logged step
    log_every: NonNegativeInt = 20  # RL steps between a probe's statistics; 0: none
    max_unexplained_growth: PositiveFloat = 0.5  # of 1 - FVE, and of the splice's KL
    max_splice_cost: PositiveFloat = 0.1  # share of the cross-entropy; beyond, an alarm
    measure_overhead: bool = True  # time updates with and without, when RL ends

    def __post_init__(self) -> None:
        """Refuses more reference texts than there are problems."""
        super().__post_init__()
        check(
            self.num_reference_texts <= self.num_problems,
            f"num_reference_texts={self.num_reference_texts} problems are taken from "
            f"num_problems={self.num_problems}; lower it, or ask more",
        )

    @property
    def enabled(self) -> bool:
        """Returns whether the run has a probe: whether `probe.name` is not none."""
        return type(self) is not ProbeConfig

    @property
    def shuffles_weights(self) -> bool:
        """Returns whether token weights are shuffled, as a control of RFGO."""
        return False

    def check_before_run(self, config: Any, tokenize: Any) -> None:
        """Raises ConfigError if this probe cannot work; called before any work starts.

        `config` is the whole Config, `tokenize` maps a text to token ids.
        """

    def fit(self, inputs: Any) -> dict[str, Any]:
        """Fits the probe and writes it to `inputs.directory`, for `load` to read.

        `inputs` is a `rlvr_jax.probe.protocol.FitInputs`. All processes call it. What
        it returns stands in summary.json under `probe`.
        """
        raise NotImplementedError

    def load(self, directory: Any, mesh: Any) -> Any:
        """Returns the fitted `rlvr_jax.probe.protocol.Probe`, its arrays on the mesh.

        `directory` is the path that `fit` wrote below.
        """
        raise NotImplementedError

    def batch_sizes(self) -> dict[str, int]:
        """Returns batch sizes that the mesh must divide, by their config names."""
        return {}

    def abstract_reader(self, hidden_size: int) -> tuple[Any, int] | None:
        """Returns the reader's shapes and R, for planning; None: planned without it."""
        return None

    def abstract_observer(self, hidden_size: int, mesh: Any) -> Any:
        """Returns the observer's shapes on the mesh, for planning; None: without it."""
        return None

    def lower_programs(self, config: Any, mesh: Any, **policy: Any) -> dict[str, Any]:
        """Returns programs of its own for planning, by name: a call lowers one.

        `policy` has the whole policy's `graphdef` and the shapes of its `params`, and
        the `prompt_length` to plan for.
        """
        return {}

    def memory_bytes(self, hidden_size: int) -> int:
        """Returns the bytes of the probe's own arrays, over all shards."""
        return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class RFGOConfig(ConfigSection):
    """Reasoning-feature-guided optimization (docs/rfgo.md; the equations are ours).

    With lambda_w=0 and lambda_p=0 the probe only watches, and the run is bit for bit
    the one without it.
    """

    lambda_w: NonNegativeFloat = 0.0  # token weights clip(1 + lambda_w z, low, high)
    lambda_p: NonNegativeFloat = 0.0  # of proxy advantages, in zero-variance groups
    token_score: Literal["temporal_diff", "ref_diff", "activation"] = "temporal_diff"
    weight_low: PositiveFraction = 0.5
    weight_high: PositiveFloat = 2.0
    proxy_groups: Literal["all_incorrect", "zero_variance"] = "all_incorrect"
    proxy_clip: PositiveFloat = 3.0  # bound of a completion's mean activation
    anneal_steps: NonNegativeInt = 0  # RL steps until lambda_p is 0; 0: never
    min_correlation: Annotated[
        float, Constraint("lie in [-1, 1]", lambda x: -1 <= x <= 1)
    ] = 0.0  # of proxy and outcome: lower end of the interval; below it, no proxy
    correlation_window: PositiveInt = 20  # steps that the correlation is taken over
    scale_update_rate: PositiveFraction = 0.1  # weight of a step in the running scale

    def __post_init__(self) -> None:
        """Refuses bounds that do not enclose 1."""
        super().__post_init__()
        check(
            self.weight_high >= 1,
            f"weight_high={self.weight_high} is below 1, the mean weight; raise it",
        )

    @property
    def changes_updates(self) -> bool:
        """Returns whether RFGO changes updates at all."""
        return self.lambda_w > 0 or self.lambda_p > 0

    @property
    def needs_reference_policy(self) -> bool:
        """Returns whether token weights need the reference policy."""
        return self.lambda_w > 0 and self.token_score == "ref_diff"
