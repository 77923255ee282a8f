"""The parts of the benchmark, most important first."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from benchmarks.channel import ROOT

RECIPE = ROOT / "configs/smollm2.py"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One measurement, in a separate process.

    `kind` names the function that takes `options`: in `measure`, or in `commands` if
    `on_device` is false, because then a process started by this one needs the device.
    `estimate_s` is a guess for an empty compile cache; a part does not start if less
    time is left. It is stopped after `limit_s`. `skip` is a reason not to run it here.
    """

    name: str
    kind: str
    estimate_s: float
    limit_s: float
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    on_device: bool = True
    skip: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepSize:
    """Prompts, samples, tokens and micro-batches of a GRPO step."""

    num_prompts: int = 32
    group_size: int = 8
    prompt_tokens: int = 256
    new_tokens: int = 512
    grad_accum_steps: int = 8


MACHINE = Part(name="machine", kind="machine", estimate_s=25, limit_s=90)
# Least number of sequences, shortest and longest length: the published benchmark's.
_PUBLISHED = {"least": 256, "shortest": 100, "longest": 1024, "repeats": 3}
_FEW = {"least": 16, "shortest": 8, "longest": 32, "repeats": 2}
_SMALL_LIMIT_S = 600
_SMALL_STEP = StepSize(
    num_prompts=4, group_size=4, prompt_tokens=16, new_tokens=32, grad_accum_steps=2
)


def list_parts(*, platform: str, small: bool, model: str) -> list[Part]:
    """Returns the parts after `MACHINE` for a JAX platform: cpu, gpu or tpu.

    `model` is the Hugging Face directory of SmolLM2, or "".
    """
    tests = Part(
        name="GPU tests",
        kind="device_tests",
        estimate_s=40,
        limit_s=120,
        on_device=False,
        skip="" if platform == "gpu" else f"they need a GPU, and this is a {platform}",
    )
    if small:
        parts = [
            tests,
            _attention("small"),
            *(_decoding("small", rows, 25, work=_FEW) for rows in (16, 4, 32)),
            *(_grpo("small", lora, 35, step=_SMALL_STEP) for lora in (False, True)),
            _autoencoder("tiny", repeats=2),
            _recipe(model, "a small run trains no language model"),
        ]
        # On a busy CPU, starting and compiling can take minutes.
        return [dataclasses.replace(part, limit_s=_SMALL_LIMIT_S) for part in parts]
    # A row of 1.5B needs twice the memory, so micro-batches have half as many rows.
    step, short_step = StepSize(), StepSize(grad_accum_steps=16)
    return [
        tests,
        _attention("0.5B", "1.5B"),
        _decoding("0.5B", 256, 110, work=_PUBLISHED),
        _grpo("0.5B", False, 110, step=step),
        _autoencoder("D1536", "D256", repeats=5),
        _decoding("1.5B", 256, 130, work=_PUBLISHED),
        _grpo("1.5B", True, 130, step=short_step),
        _decoding("0.5B", 512, 110, work=_PUBLISHED),
        _decoding("0.5B", 64, 120, work=_PUBLISHED),
        _grpo("0.5B", True, 100, step=step),
        _grpo("1.5B", False, 140, step=short_step),
        _decoding("1.5B", 512, 150, work=_PUBLISHED),
        _decoding("1.5B", 64, 150, work=_PUBLISHED),
        _recipe(model, ""),
    ]


def _attention(*shapes: str) -> Part:
    return Part(
        name="attention",
        kind="attention",
        options={"shapes": shapes},
        estimate_s=30,
        limit_s=120,
    )


def _decoding(
    shape: str, batch: int, estimate_s: float, *, work: Mapping[str, int]
) -> Part:
    return Part(
        name=f"decode {shape} {batch}",
        kind="decoding",
        options={"shape": shape, "batch": batch, **work},
        estimate_s=estimate_s,
        limit_s=2.5 * estimate_s,
    )


def _grpo(shape: str, adapters: bool, estimate_s: float, *, step: StepSize) -> Part:
    repeats = 2 if step == _SMALL_STEP else 3
    return Part(
        name=f"grpo {shape} {'LoRA' if adapters else 'full'}",
        kind="grpo",
        options={
            "shape": shape,
            "adapters": adapters,
            "step": step,
            "repeats": repeats,
        },
        estimate_s=estimate_s,
        limit_s=2.5 * estimate_s,
    )


def _autoencoder(*jobs: str, repeats: int) -> Part:
    return Part(
        name="autoencoder",
        kind="autoencoder",
        options={"jobs": jobs, "repeats": repeats},
        estimate_s=40,
        limit_s=150,
    )


def _recipe(model: str, skip: str) -> Part:
    """Returns the part that trains SmolLM2 with its recipe."""
    if not skip and not model:
        skip = "no weights were given: --model=DIR"
    if not skip and not pathlib.Path(model, "config.json").is_file():
        skip = f"--model={model} has no config.json"
    if not skip and not RECIPE.is_file():
        skip = f"{RECIPE.relative_to(ROOT)} does not exist"
    return Part(
        name="recipe",
        kind="recipe",
        options={"model": model},
        estimate_s=180,
        limit_s=3600,
        on_device=False,
        skip=skip,
    )
