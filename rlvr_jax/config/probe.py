"""Settings of a probe, of the autoencoder behind it, and of RFGO, which uses it."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

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

if TYPE_CHECKING:  # for annotations only: a config loads without JAX and without a run
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from jax.sharding import Mesh

    from rlvr_jax.config.run import Config
    from rlvr_jax.learn.probe_inputs import FeatureReader, Observer
    from rlvr_jax.probe.protocol import FitInputs, Probe


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeSAEConfig(ConfigSection):
    """How stage `probe` trains an autoencoder: sections of the config of `sae_jax`."""

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
    ] = 0.05  # share of the problems; half set the threshold, half measure the result

    def __post_init__(self) -> None:
        """Refuses combinations that cannot train."""
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
        """Returns the config of `sae_jax.train` on the activations at this path."""
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
    """Which R latents are reasoning features, and how much each counts.

    | method       | score of a latent                                            |
    |--------------|--------------------------------------------------------------|
    | contrast     | its effect within problems, confirmed on other problems      |
    | reason_score | ReasonScore over `words` (https://arxiv.org/abs/2503.18878)  |
    | list         | `latents`, all alike                                         |
    | weights_file | the weights of a mechreward pack, at `weights_file`          |

    The effect is the correlation of a latent's mean activation with the outcome, among
    completions of one problem. If no latent is left, RFGO is off and the run says so.

    `control` replaces the features by a control that should not help:

      - random_latents: as many random latents, with similar firing rate, stability and
        decoder norm;
      - random_directions: as many random directions, each with a threshold at which it
        fires as often;
      - direction: one raw direction, the mean activation of a problem's correct
        completions minus the mean of its incorrect ones;
      - shuffled_weights: the same token weights, shuffled within each completion.
    """

    # How features are chosen
    method: Literal["contrast", "reason_score", "list", "weights_file"] = "contrast"
    num_features: PositiveInt = 16  # R at most, of largest |score|
    fdr: PositiveFraction = 0.05  # contrast: share of confirmed features that are false
    latents: tuple[int, ...] = ()  # list
    weights_file: str = ""  # weights_file: a JSON file
    words: Annotated[tuple[str, ...], NON_EMPTY] = REASONING_WORDS  # reason_score
    min_seed_cosine: UnitInterval = 0.5  # least cosine of decoder rows between seeds
    # Replaces the features by a control that should not help
    control: Literal[
        "none", "random_latents", "random_directions", "direction", "shuffled_weights"
    ] = "none"

    def __post_init__(self) -> None:
        """Refuses a method without its input, and fields that the method ignores."""
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
            f"latents={self.latents} repeats a latent; name each once",
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
    """The probe that reads the policy's residual stream during RL; by default none.

    `probe.name` chooses the class of this section: `none` (this one), `sae` (a sparse
    autoencoder, `rlvr_jax.probe.sae`), or your own as "package.module:Class". Derive
    yours from this class, add its settings as fields, and implement `fit` and `load`;
    docs/use/extend.md has a complete example.

    Stage `probe` samples `num_problems` problems from the policy before RL, with G
    completions each. It fits the probe to these, and then freezes it.
    """

    registry: ClassVar[Registry] = PROBES

    layer: NonNegativeInt = 0  # the residual stream after this layer, from 0
    num_problems: PositiveInt = 256  # sampled before RL to fit the probe
    num_reference_texts: PositiveInt = 64  # re-read at every logged step
    log_every: NonNegativeInt = 20  # RL steps between a probe's statistics; 0: none
    max_unexplained_growth: PositiveFloat = 0.5  # of 1 - FVE, and of the splice's KL
    max_splice_cost: PositiveFloat = 0.1  # share of the cross-entropy; above it: alarm
    measure_overhead: bool = True  # after RL, time updates with and without the probe

    def __post_init__(self) -> None:
        """Refuses more reference texts than there are problems."""
        super().__post_init__()
        check(
            self.num_reference_texts <= self.num_problems,
            f"num_reference_texts={self.num_reference_texts} is more than "
            f"num_problems={self.num_problems}, which they are chosen from; lower it, "
            "or raise num_problems",
        )

    @property
    def enabled(self) -> bool:
        """Returns whether the run has a probe, by `probe.name`."""
        return type(self) is not ProbeConfig

    @property
    def shuffles_weights(self) -> bool:
        """Returns whether token weights are shuffled, as a control of RFGO."""
        return False

    def check_before_run(
        self, config: "Config", tokenize: "Callable[[str], Sequence[int]]"
    ) -> None:
        """Raises ConfigError if this probe cannot work; called before any work starts.

        `config` is the whole Config; `tokenize` maps a text to token ids.
        """

    def fit(self, inputs: "FitInputs") -> dict[str, Any]:
        """Fits the probe and writes it to `inputs.directory`, for `load` to read.

        All processes call it. The result is saved in summary.json under `probe`.
        """
        raise NotImplementedError

    def load(self, directory: "Path", mesh: "Mesh") -> "Probe":
        """Returns the fitted probe, its arrays on the mesh.

        `directory` is the one that `fit` wrote to.
        """
        raise NotImplementedError

    def batch_sizes(self) -> dict[str, int]:
        """Returns batch sizes that the mesh must divide, by their config names."""
        return {}

    def abstract_reader(self, hidden_size: int) -> "tuple[FeatureReader, int] | None":
        """Returns the reader's shapes and R, for planning; None: plan without it."""
        return None

    def abstract_observer(self, hidden_size: int, mesh: "Mesh") -> "Observer | None":
        """Returns the observer's shapes, for planning; None: plan without it."""
        return None

    def lower_programs(
        self, config: "Config", mesh: "Mesh", **policy: Any
    ) -> dict[str, Any]:
        """Returns the probe's programs for planning: name -> function that lowers it.

        `policy` has the whole policy's `graphdef`, the shapes of its `params`, and the
        `prompt_length` to plan for.
        """
        return {}

    def memory_bytes(self, hidden_size: int) -> int:
        """Returns the bytes of the probe's own arrays, over all shards."""
        return 0

    def fit_bytes(self, hidden_size: int) -> int:
        """Returns about how many bytes `fit` needs over all shards, for planning."""
        return 0

    def fit_flops(self, hidden_size: int) -> float:
        """Returns about how many FLOPs `fit` takes, for planning."""
        return 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class RFGOConfig(ConfigSection):
    """Reasoning-feature-guided optimization (docs/method/rfgo.md; equations: ours).

    With lambda_w=0 and lambda_p=0 the probe only observes: the run is bit for bit the
    same as without it.
    """

    lambda_w: NonNegativeFloat = 0.0  # token weights clip(1 + lambda_w z, low, high)
    lambda_p: NonNegativeFloat = 0.0  # scale of proxy advantages, zero-variance groups
    # Whose residual stream RFGO reads: the policy's, or that of the policy before RL
    features_of: Literal["policy", "reference"] = "policy"
    # What weighs a token: change since the last token, change by RL, or activation
    token_score: Literal["temporal_diff", "ref_diff", "activation"] = "temporal_diff"
    # Least weight of a token, before scaling to mean 1
    weight_low: PositiveFraction = 0.5
    weight_high: PositiveFloat = 2.0  # largest weight of a token, likewise
    # Which groups get proxy advantages
    proxy_groups: Literal["all_incorrect", "zero_variance"] = "all_incorrect"
    proxy_clip: PositiveFloat = 3.0  # bound of a completion's mean activation
    anneal_steps: NonNegativeInt = 0  # RL steps until lambda_p is 0; 0: never
    min_correlation: Annotated[
        float, Constraint("lie in [-1, 1]", lambda x: -1 <= x <= 1)
    ] = 0.0  # of proxy and outcome: lower end of the interval; below it, no proxy
    correlation_window: PositiveInt = 20  # RL steps behind the correlation
    scale_update_rate: PositiveFraction = 0.1  # weight of a step in the running scale

    def __post_init__(self) -> None:
        """Refuses an upper bound below 1."""
        super().__post_init__()
        check(
            self.weight_high >= 1,
            f"weight_high={self.weight_high} is below 1, the mean weight; raise it",
        )
        check(
            self.features_of == "policy" or self.token_score != "ref_diff",
            "token_score=ref_diff is 0 with features_of=reference, which compares the "
            "reference policy with itself; set features_of=policy, or another score",
        )

    @property
    def changes_updates(self) -> bool:
        """Returns whether RFGO changes updates at all."""
        return self.lambda_w > 0 or self.lambda_p > 0

    @property
    def needs_reference_policy(self) -> bool:
        """Returns whether features of the reference policy are needed."""
        weighs_by_change = self.lambda_w > 0 and self.token_score == "ref_diff"
        return self.features_of == "reference" or weighs_by_change
