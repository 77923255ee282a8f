"""The first line of a dry run."""

import dataclasses
import re

import jax
import pytest

from job_jax.schema import iter_fields
from rlvr_jax.config import Config, SFTConfig, TrainConfig
from rlvr_jax.plan.duration import Duration, describe_seconds
from rlvr_jax.plan.topology import parse_topology
from rlvr_jax.plan.verdict import (
    _SAMPLING_SETTINGS,
    _SETTINGS,
    _UPDATE_SETTINGS,
    Room,
    describe_verdict,
    describe_work,
)
from rlvr_jax.probe import SAEProbeConfig

_GIB = 1 << 30
_EVERYTHING = Config(probe=SAEProbeConfig())
PHASES = {
    "update": {"parameters": 2 * _GIB, "activations": 5 * _GIB, "logits": _GIB},
    "eval": {"parameters": 2 * _GIB, "completion cache": 3 * _GIB},
}


def room(available, **more):
    return Room(name="a chip", available=available, **more)


def test_a_plan_fits_up_to_85_percent():
    """8 GiB of 80/17, 79/17 and 80/10 GiB, on both sides of each bound."""
    assert describe_verdict(PHASES, room(160 * _GIB // 17 + 1)) == [
        "fits: about 8.0 of 9.4 GiB on a chip"
    ]
    tight = describe_verdict(PHASES, room(160 * _GIB // 17 - 2))[0]
    assert tight == "tight: about 8.0 of 9.4 GiB on a chip"
    assert describe_verdict(PHASES, room(8 * _GIB))[0].startswith("tight: ")
    assert describe_verdict(PHASES, room(8 * _GIB - 1))[0].startswith("does not fit: ")


def test_what_does_not_fit_names_its_two_largest_parts_and_their_settings():
    _, *fixes = describe_verdict(PHASES, room(_GIB))
    assert fixes == [
        "  update: activations take 5.0 GiB; try train.grad_accum_steps=4, or "
        "model.remat=block",
        "  update: parameters take 2.0 GiB; try model.param_dtype=bfloat16, or a "
        "larger mesh.fsdp",
    ]


@pytest.mark.parametrize(
    ("phase", "advice"),
    [
        ("sft", "sft.grad_accum_steps=4, or model.remat=block"),
        ("update", "train.grad_accum_steps=4, or model.remat=block"),
        ("rollouts", "a smaller train.batch_size"),
        ("eval", "a smaller eval.batch_size"),
    ],
)
def test_the_settings_are_of_the_phase_that_is_too_large(phase, advice):
    fixes = describe_verdict({phase: {"activations": 5 * _GIB}}, room(_GIB))[1:]
    assert fixes == [f"  {phase}: activations take 5.0 GiB; try {advice}"]


def test_every_part_has_settings_that_are_fields():
    """Each setting that a hint names is a field of the config."""
    known = {path for path, _, _ in iter_fields(_EVERYTHING)}
    own = {
        "sft": _UPDATE_SETTINGS,
        "train": _SETTINGS | _UPDATE_SETTINGS | _SAMPLING_SETTINGS,
        "eval": _SAMPLING_SETTINGS,
    }
    for stage, settings in own.items():
        for text in settings.values():
            named = re.findall(r"[a-z]\w*(?:\.\w+)+", text.format(stage=stage))
            assert named
            assert {*named} <= known, (stage, text)


def test_cpu_devices_share_the_machine_with_python():
    """Two devices of 8 GiB, a quarter more, and 3 GiB."""
    shared = room(24 * _GIB, devices=2, fixed=3 * _GIB, overhead=0.25)
    verdict, largest, _ = describe_verdict(PHASES, shared)
    assert verdict == "tight: about 23.0 of 24.0 GiB on a chip"
    assert "activations take 10.0 GiB" in largest


def test_an_unknown_size_is_said():
    assert describe_verdict(PHASES, room(None)) == [
        "memory: about 8.0 GiB on a chip, whose size is unknown"
    ]


def test_the_room_is_a_chip_s_or_the_machine_s():
    chip = Room.find(Config(), parse_topology("v5e:2x2"))
    assert (chip.available, chip.devices) == (int(15.75 * _GIB), 1)
    assert chip.needed(PHASES) == 8 * _GIB
    here = Room.find(Config(), None)
    assert here.devices == len(jax.devices()) == 8
    assert here.needed({"eval": {"parameters": _GIB}}) > 8 * _GIB


def test_the_work_is_steps_and_the_time_of_all_stages():
    config = Config(sft=SFTConfig(steps=2000), train=TrainConfig(steps=20))
    stages = {
        "sft": Duration(work=200.0, compilation=30.0),
        "train": Duration(work=100.0, compilation=30.0),
    }
    work = "2,000 steps of SFT and 20 of RL, about 6 minutes"
    assert describe_work(config, stages) == work
    only = dataclasses.replace(config, sft=SFTConfig(steps=0))
    assert describe_work(only, stages) == "20 steps of RL, about 6 minutes"
    none = dataclasses.replace(only, train=TrainConfig(steps=0))
    assert describe_work(none, {}) == "no steps, under a minute"


@pytest.mark.parametrize(
    ("minutes", "text"),
    [
        (0.9, "under a minute"),
        (1.2, "about 1 minute"),
        (9.4, "about 9 minutes"),
        (14, "about 10 minutes"),
        (26, "about 30 minutes"),
        (94, "about 90 minutes"),
        (120, "about 2 hours"),
        (26 * 60, "about 30 hours"),
        (49 * 60, "about 2 days"),
        (300 * 24 * 60, "about 300 days"),
    ],
)
def test_a_duration_is_coarse(minutes, text):
    assert describe_seconds(60 * minutes) == text
