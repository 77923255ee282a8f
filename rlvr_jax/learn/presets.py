"""Published algorithms as the settings of stage `train`.

Each function returns the `loss` and `advantage` sections that the paper describes:

    TrainConfig(**dapo(), steps=500, overlong_buffer=64)

Each docstring says what else the paper requires. docs/method/algorithm.md has the
presets in a table, with our own readings.
"""

from collections.abc import Callable
from typing import Any

from rlvr_jax.config import AdvantageConfig, Config, LossConfig

Preset = dict[str, Any]


def grpo() -> Preset:
    """Returns GRPO's settings: https://arxiv.org/abs/2402.03300.

    Example:
        >>> grpo()["loss"].kl_coef
        0.04
    """
    loss = LossConfig(aggregation="seq_mean_token_mean", kl_coef=0.04)
    return {"loss": loss, "advantage": AdvantageConfig()}


def dr_grpo() -> Preset:
    """Returns Dr. GRPO's settings: https://arxiv.org/abs/2503.20783.

    Nothing is divided by the group's std or by a completion's length.
    """
    return {
        "loss": LossConfig(aggregation="seq_mean_token_sum_norm"),
        "advantage": AdvantageConfig(normalize="none"),
    }


def dapo() -> Preset:
    """Returns DAPO's settings: https://arxiv.org/abs/2503.14476.

    The paper also uses `dynamic_sampling.max_rounds` above 0, and
    `train.overlong_buffer` for completions that reach the limit. `algorithm_name` says
    plain "DAPO" only with both.
    """
    return {"loss": LossConfig(clip_high=0.28), "advantage": AdvantageConfig()}


def gspo() -> Preset:
    """Returns GSPO's settings: one ratio per completion.

    Source: https://arxiv.org/abs/2507.18071.
    """
    loss = LossConfig(
        importance_sampling_level="sequence",
        clip_low=3e-4,
        clip_high=4e-4,
        aggregation="seq_mean_token_mean",
    )
    return {"loss": loss, "advantage": AdvantageConfig()}


def cispo() -> Preset:
    """Returns CISPO's settings: https://arxiv.org/abs/2506.13585.

    The weight of a token is then in [0, 5]; the bound is from ScaleRL
    (https://arxiv.org/abs/2510.13786).
    """
    loss = LossConfig(surrogate="cispo", clip_low=1.0, clip_high=4.0)
    return {"loss": loss, "advantage": AdvantageConfig()}


def rloo() -> Preset:
    """Returns RLOO's settings, one action a completion: https://arxiv.org/abs/2402.14740."""
    return {
        "loss": LossConfig(
            importance_sampling_level="trajectory",
            surrogate="reinforce",
            aggregation="seq_mean_token_mean",
        ),
        "advantage": AdvantageConfig(baseline="rloo", normalize="none"),
    }


def rl_plus() -> Preset:
    """Returns RL-PLUS's settings: https://arxiv.org/abs/2508.00222.

    The settings follow its authors' script: no clipping and no std, sums over a
    constant length, an entropy bonus. An external trace is added to the group's
    completions; the script samples 7 of these per group.
    """
    loss = LossConfig(
        surrogate="reinforce",
        aggregation="seq_mean_token_sum_norm",
        entropy_coef=0.001,
        external_traces="rl_plus",
    )
    return {"loss": loss, "advantage": AdvantageConfig(normalize="none")}


PRESETS: dict[str, Callable[[], Preset]] = {
    "GRPO": grpo,
    "Dr. GRPO": dr_grpo,
    "DAPO": dapo,
    "GSPO": gspo,
    "CISPO": cispo,
    "RLOO": rloo,
    "RL-PLUS": rl_plus,
}
_WITH_SWITCHES = "DAPO"  # the preset with dynamic sampling and an overlong penalty


def algorithm_name(config: Config) -> str:
    """Returns the algorithm's name: the nearest preset, with the settings that differ.

    The nearest preset is the one with the fewest differing settings, dynamic sampling
    and the overlong penalty included; the first one wins a tie.

    Example:
        >>> from rlvr_jax.config import DynamicSamplingConfig, TrainConfig
        >>> algorithm_name(Config(train=TrainConfig(**grpo())))
        'GRPO'
        >>> print(algorithm_name(Config()))
        GRPO with loss.aggregation=token_mean, loss.kl_coef=0.0
        >>> algorithm_name(
        ...     Config(
        ...         train=TrainConfig(**dapo(), overlong_buffer=16),
        ...         dynamic_sampling=DynamicSamplingConfig(max_rounds=2),
        ...     )
        ... )
        'DAPO'
    """
    extras = ["RFGO"] if config.train.rfgo.changes_updates else []
    if not isinstance(config.train.loss, LossConfig):
        name = config.train.loss.tags()["name"]
        return _with(name, extras)
    name, changes = min(
        ((name, _changes(config, name)) for name in PRESETS),
        key=lambda item: len(item[1]),
    )
    return _with(name, changes + extras)


def _changes(config: Config, name: str) -> list[str]:
    """Returns the settings that differ from a preset."""
    preset = PRESETS[name]()
    chosen = {section: vars(config.train)[section] for section in preset}
    switches = {
        "dynamic_sampling.max_rounds": config.dynamic_sampling.max_rounds,
        "overlong_buffer": config.train.overlong_buffer,
    }
    other_rules = [
        f"{section}.name={chosen[section].tags()['name']}"
        for section, values in preset.items()
        if type(chosen[section]) is not type(values)
    ]
    return [
        *other_rules,
        *(
            f"{section}.{field}={vars(chosen[section])[field]}"
            for section, values in preset.items()
            for field, value in vars(values).items()
            if vars(chosen[section]).get(field, value) != value
        ),
        *(
            f"{field}={value}"
            for field, value in switches.items()
            if (value > 0) != (name == _WITH_SWITCHES)
        ),
    ]


def _with(name: str, additions: list[str]) -> str:
    return f"{name} with {', '.join(additions)}" if additions else name
