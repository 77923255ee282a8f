"""The first line of a dry run: does it fit, how many steps, how long."""

import dataclasses
from collections.abc import Mapping

import jax

from job_jax.machine import usable_bytes
from rlvr_jax.config import Config
from rlvr_jax.plan.duration import Duration, describe_seconds
from rlvr_jax.plan.peak_memory import SAMPLING_PHASES, Phases
from rlvr_jax.plan.topology import Topology

_GIB = 1 << 30
_TIGHT = 0.85  # of the memory; the estimate may be off by as much as the rest
# On CPU: Python, the libraries, and XLA with its compiled programs; more for a probe.
_HOST_BYTES, _HOST_BYTES_PER_LAYER = int(0.8 * _GIB), 20 << 20
_HOST_BYTES_OF_PROBE = int(0.3 * _GIB)
# And for each byte of a phase: files being read, and memory that is freed too late.
_HOST_SHARE = 0.25

# Part of `peak_memory` -> settings that make it smaller: while completions are sampled,
# in an update of stage `sft` or `train`, and in any phase.
_SAMPLING_SETTINGS = {
    "prompt cache": "a smaller {stage}.batch_size",
    "completion cache": "sampler.slots=64, or a smaller {stage}.batch_size",
    "activations": "a smaller {stage}.batch_size",
    "logits": "sampler.slots=64, or a smaller {stage}.batch_size",
}
_UPDATE_SETTINGS = {
    "optimizer": "{stage}.optimizer.moments_dtype=bfloat16, or a larger mesh.fsdp",
    "gradients": "a larger mesh.fsdp (in RL also train.lora.rank=16)",
    "new gradients": "a larger mesh.fsdp (in RL also train.lora.rank=16)",
    "activations": "{stage}.grad_accum_steps=4, or model.remat=block",
    "logits": "train.logits_chunk_size=16, or {stage}.grad_accum_steps=4",
}
_SETTINGS = {
    "parameters": "model.param_dtype=bfloat16, or a larger mesh.fsdp",
    "optimizer": "train.optimizer.moments_dtype=bfloat16, or train.lora.rank=16",
    "reference": "train.loss.kl_coef=0",
    "probe": "fewer probe.sae.architecture.latents",
    "autoencoders": "fewer probe.sae.train.num_seeds or probe.sae.architecture.latents",
    "sampler weights": "model.scan_layers=true, or a larger sampler.tensor_parallel",
    "weights in use": "model.scan_layers=true",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Room:
    """Memory that the phases share: a device's, or a machine's with CPU devices.

    `available` is None if unknown. `devices` share it; `fixed` bytes are not in any
    phase, and each byte of a phase takes `overhead` more: on a CPU, what Python and its
    libraries need.
    """

    name: str
    available: int | None
    devices: int = 1
    fixed: int = 0
    overhead: float = 0.0

    @classmethod
    def find(cls, config: Config, topology: Topology | None) -> "Room":
        """Returns the room of a chip of `topology`, or of this machine's devices."""
        if topology is not None:
            return cls(
                name=f"a {topology.unit} of {topology.name}",
                available=int(topology.chip.hbm_gib * _GIB),
            )
        device = jax.local_devices()[0]
        if device.platform != "cpu":
            stats = device.memory_stats() or {}
            return cls(name="each device", available=stats.get("bytes_limit"))
        layers = 1 if config.model.scan_layers else config.model.num_layers
        return cls(
            name="this machine",
            available=usable_bytes(),
            devices=jax.local_device_count(),
            fixed=_HOST_BYTES
            + layers * _HOST_BYTES_PER_LAYER
            + config.probe.enabled * _HOST_BYTES_OF_PROBE,
            overhead=_HOST_SHARE,
        )

    def describe_sharing(self) -> list[str]:
        """Returns a line about what shares the memory, if it is not one device."""
        if not self.fixed:
            return []
        return [
            f"CPU devices that share this machine's memory: {self.devices}; Python and "
            f"XLA take {_gib(self.fixed)} GiB and {self.overhead:.0%} more"
        ]

    def needed(self, phases: Phases) -> int:
        """Returns the bytes of the largest phase, with everything that shares them."""
        largest = max(sum(parts.values()) for parts in phases.values())
        return int((1 + self.overhead) * self.devices * largest) + self.fixed


def describe_verdict(phases: Phases, room: Room) -> list[str]:
    """Returns "fits: about 2.1 of 7.8 GiB" and, if it does not, what to change.

    Over 85 % of the memory it is "tight".
    """
    needed = room.needed(phases)
    if room.available is None:
        return [
            f"memory: about {_gib(needed)} GiB on {room.name}, whose size is unknown"
        ]
    share = needed / room.available
    word = "fits" if share <= _TIGHT else "tight" if share <= 1 else "does not fit"
    line = f"{word}: about {_gib(needed)} of {_gib(room.available)} GiB on {room.name}"
    if word == "fits":
        return [line]
    name = max(phases, key=lambda phase: sum(phases[phase].values()))
    return [line, *_describe_largest(name, phases[name], room)]


def describe_work(config: Config, stages: Mapping[str, Duration]) -> str:
    """Returns "20 steps of SFT and 6 of RL, about 4 minutes"."""
    numbers = {"SFT": config.sft.steps, "RL": config.train.steps}
    first, *others = [name for name in numbers if numbers[name]] or [""]
    steps = f"{numbers[first]:,} steps of {first}" if first else "no steps"
    for name in others:
        steps += f" and {numbers[name]:,} of {name}"
    return f"{steps}, {describe_seconds(sum(each.total for each in stages.values()))}"


def _describe_largest(name: str, parts: Mapping[str, int], room: Room) -> list[str]:
    """Returns a line for each of the two largest parts of a phase."""
    largest = sorted(parts, key=lambda part: parts[part], reverse=True)[:2]
    return [
        f"  {name}: {part} take {_gib(room.devices * parts[part])} GiB; try "
        f"{_advise(name, part)}"
        for part in largest
    ]


def _advise(phase: str, part: str) -> str:
    """Returns the settings that make a part of a phase smaller."""
    if phase in SAMPLING_PHASES:
        stage = "train" if phase == "rollouts" else "eval"
        settings = _SETTINGS | _SAMPLING_SETTINGS
    else:
        stage = "sft" if phase == "sft" else "train"
        settings = _SETTINGS | _UPDATE_SETTINGS
    return settings[part].format(stage=stage)


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f}"
