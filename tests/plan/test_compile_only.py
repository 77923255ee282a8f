"""Compiling for a slice that is not attached: counts, refusals and reports."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from job_jax.command import load_config
from job_jax.flags import UsageError
from rlvr_jax.config import Config
from rlvr_jax.plan import compile_only
from rlvr_jax.plan.compile_only import (
    compile_report,
    iterate_in_thread,
    suggest_shrink,
)
from rlvr_jax.plan.topology import parse_topology
from rlvr_jax.run.cli import parse

ROOT = Path(__file__).parents[2]


def test_what_does_not_fit_says_what_to_shrink():
    """The hint names the tightest phase's largest part, or a program that failed."""
    phases = {
        "sampler": {"parameters": 5, "temporaries": 3},
        "gradient": {"parameters": 5, "temporaries": 4},
    }
    assert suggest_shrink(phases, [], limit=9) is None
    found = suggest_shrink(phases, [], limit=8)
    assert (found["phase"], found["part"]) == ("gradient", "parameters")
    assert "mesh.fsdp" in found["by"]
    found = suggest_shrink(phases, ["sampler"], limit=9)
    assert (found["phase"], found["part"]) == ("sampler", "temporaries")
    assert "train.sampling.max_new_tokens" in found["by"]
    found = suggest_shrink({"scorer": {"temporaries": 9}}, [], limit=8)
    assert "train.grad_accum_steps" in found["by"]


@pytest.mark.parametrize(
    "topology", ["v5e", "v5e:4", "v5e:4x", "", "h100", "h100:2x2", "h100:0", "t4:1"]
)
def test_invalid_slices_are_refused(topology):
    with pytest.raises(UsageError, match=r"such as v5e:4x4, .* such as h100:8"):
        compile_report(Config(), topology)


def test_nothing_is_compiled_for_gpus_that_are_not_there():
    with pytest.raises(UsageError, match=r"h100:8: .* use --dry_run"):
        compile_report(Config(), "h100:8")


@pytest.mark.parametrize("flag", ["--compile_only", "--topology=v5e:2x2"])
def test_one_flag_without_the_other_is_refused(flag):
    recipe = f"--config={ROOT / 'configs/smoke.py'}"
    with pytest.raises(UsageError, match="--topology"):
        parse([recipe, flag])


STATS = {
    "arguments_bytes": 0,
    "outputs_bytes": 2 << 30,
    "donated_bytes": 1 << 30,
    "temporary_bytes": 3 << 30,
    "code_bytes": 0,
    "compile_s": 2.4,
}


def interrupt():
    """Presses Ctrl-C from another thread."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@pytest.fixture
def compiled(monkeypatch, restored_signals):
    """Returns a function that reports the smoke recipe without compiling anything.

    It runs on this process's devices. `stats` gives the costs of each program by its
    number. The function returns the report and the log's lines.
    """
    config = load_config(ROOT / "configs/smoke.py", Config)
    monkeypatch.setattr(compile_only, "_topology_devices", lambda _: jax.devices())
    told: list[str] = []
    # A background job of a shell, as this test may be, ignores interrupts by default.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def run(stats, **asked):
        numbers = iter(range(1, 100))
        monkeypatch.setattr(
            compile_only, "_program_stats", lambda *_, **__: stats(next(numbers))
        )
        report = compile_report(config, "v5e:2x4", log=told.append, **asked)
        return report, told

    return run


def test_each_program_is_logged_as_it_is_compiled(compiled):
    def stats(number):
        if number == 2:
            return {"error": "RESOURCE_EXHAUSTED: too much"}
        return STATS | {"temporary_bytes": (3 if number == 1 else 20) << 30}

    report, told = compiled(stats)
    assert told == [
        "sampler (1 of 3): compiling",
        "  4 of 15.75 GiB a chip, 3 of them temporaries; compiled in 2 s",
        "gradient (2 of 3): compiling",
        "  does not fit: RESOURCE_EXHAUSTED: too much",
        "update (3 of 3): compiling",
        "  21 of 15.75 GiB a chip (does not fit), 20 of them temporaries; compiled in "
        "2 s",
    ]
    assert report["fits"] is False
    assert report["shrink"]["phase"] == "gradient"
    assert [*report["programs"]] == ["sampler", "gradient", "update"]
    assert [*report["phases"]] == ["sampler", "update"]
    assert "not_compiled" not in report
    assert report["topology"] == "v5e:2x4"


@pytest.mark.parametrize(("temporaries", "fits"), [(3, None), (20, False)])
def test_an_interrupt_keeps_what_was_compiled(compiled, temporaries, fits):
    """Nothing can interrupt the second program, so its thread is abandoned."""
    left = threading.Event()

    def stats(number):
        if number == 2:
            interrupt()
            left.wait()
            raise SystemExit  # otherwise this thread enters the next test
        return STATS | {"temporary_bytes": temporaries << 30}

    report, told = compiled(stats)
    left.set()
    assert [*report["programs"]] == ["sampler"]
    assert report["not_compiled"] == ["gradient", "update"]
    assert report["fits"] is fits
    assert report["phases"]["sampler"]["peak_bytes"] > temporaries << 30
    assert told[:1] in ([], ["sampler (1 of 3): compiling"])


def test_an_interrupt_before_anything_is_compiled_claims_nothing(compiled):
    left = threading.Event()

    def stats(number):
        if number == 1:
            interrupt()
            left.wait()
        return STATS

    report, _ = compiled(stats)
    left.set()
    assert (report["fits"], report["shrink"], report["programs"]) == (None, None, {})


@pytest.mark.parametrize(("temporaries", "fits"), [(3, None), (20, False)])
def test_only_requested_programs_are_compiled(compiled, temporaries, fits):
    """One of them does not run in this recipe, which has no reference policy."""
    report, told = compiled(
        lambda _: STATS | {"temporary_bytes": temporaries << 30},
        programs=("scorer", "gradient"),
    )
    assert told[0] == "gradient (1 of 1): compiling"
    assert [*report["programs"]] == [*report["phases"]] == ["gradient"]
    assert report["not_compiled"] == ["sampler", "update"]
    assert report["fits"] is fits


def test_an_unknown_program_is_refused(compiled):
    with pytest.raises(UsageError, match="gradeint is not one of sampler, scorer"):
        compiled(lambda _: STATS, programs=("sampler", "gradeint"))


def test_a_program_that_was_not_requested_does_not_interrupt(monkeypatch, capsys):
    """The exit code differs only if a requested program is missing."""
    ended: list[int] = []
    monkeypatch.setattr(compile_only.os, "_exit", ended.append)
    monkeypatch.setattr(
        compile_only, "compile_report", lambda *_, **__: {"not_compiled": ["update"]}
    )
    for programs in (("sampler",), ("sampler", "update"), ()):
        compile_only.print_report(Config(), "v5e:2x2", programs=programs)
    assert ended == [compile_only.INTERRUPTED] * 2
    assert capsys.readouterr().err.count("not compiled: update") == 2


def test_an_unreadable_program_is_reported_by_its_memory():
    """A libtpu newer than jaxlib may write programs that jaxlib cannot read."""

    class Unreadable:
        def compile(self):
            return self

        def memory_analysis(self):
            sizes = ("argument", "output", "alias", "temp", "generated_code")
            return SimpleNamespace(**{f"{each}_size_in_bytes": 7 for each in sizes})

        def as_text(self):
            raise jax.errors.JaxRuntimeError("INTERNAL: RET_CHECK\n failure")

    chip = parse_topology("v6e:2x2").chip
    stats = compile_only._program_stats(Unreadable, chip, None)
    assert stats["temporary_bytes"] == 7
    assert stats["costs_error"] == "INTERNAL: RET_CHECK failure"
    assert "flops" not in stats


def test_an_error_of_the_thread_is_raised_here():
    def fails():
        yield 1
        raise ValueError("two")

    items = iterate_in_thread(fails())
    assert next(items) == 1
    with pytest.raises(ValueError, match="two"):
        next(items)
    assert list(iterate_in_thread(iter("ab"))) == ["a", "b"]


@pytest.mark.exhaustive
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs the extra [tpu]"
)
@pytest.mark.parametrize(
    ("topology", "mesh", "share", "hbm_gib"),
    [
        ("v5e:2x2", "data=4", 1, 15.75),
        ("v5e:2x2", "fsdp=4", 4, 15.75),
        ("v6e:2x2", "data=4", 1, 31.24),
    ],
)
def test_the_smoke_recipe_fits_four_chips(topology, mesh, share, hbm_gib):
    found = _compile_smoke(topology, f"mesh.{mesh}")
    assert (found["fits"], found["hbm_gib"]) == (True, hbm_gib)
    assert set(found["programs"]) == {"sampler", "gradient", "update"}
    for phase in found["phases"].values():
        assert phase["peak_bytes"] >= sum(found["resident_bytes"].values())
    # 22,240 float32 parameters, and each of their arrays divides over four chips.
    assert found["resident_bytes"]["parameters"] == 4 * 22_240 // share


@pytest.mark.exhaustive
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs the extra [tpu]"
)
def test_half_of_the_chips_can_be_the_samplers_alone():
    """Those chips hold two copies of 22,240 weights in bfloat16, and no update state.

    The last norm's 32 weights are float32, because every pass reads them that way.
    """
    found = _compile_smoke(
        "v5e:4x4",
        "sampler.devices=8",
        "sampler.tensor_parallel=1",
        "mesh.fsdp=8",
        "train.staleness=2",
        "train.loss.tis_cap=2",
        "model.compute_dtype=bfloat16",
    )
    assert found["fits"] is True
    assert found["mesh"] == {"data": 1, "fsdp": 8, "tensor": 1}
    assert found["sampler_mesh"] == {"data": 8, "fsdp": 1, "tensor": 1}
    assert found["resident_bytes"]["parameters"] == 4 * 22_240 // 8
    phases = found["phases"]
    assert phases["sampler"]["sampler_weights"] == 2 * (2 * 22_240 + 2 * 32)
    assert not found["resident_bytes"].keys() & phases["sampler"].keys()
    assert found["resident_bytes"].keys() < phases["update"].keys()


def _compile_smoke(topology: str, *settings: str) -> dict[str, Any]:
    """Returns the report of configs/smoke.py.

    It runs in a separate process, because this one has eight CPU devices and no TPU.
    """
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "rlvr_jax.main", "--config=configs/smoke.py"),
            *("--compile_only", f"--topology={topology}"),
            *(f"--config.{setting}" for setting in settings),
        ],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ended.stdout)
