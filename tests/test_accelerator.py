"""The accelerator's benchmark: its budget, its records, its arithmetic, its table."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from benchmarks import counts
from benchmarks.accelerator import __main__ as command
from benchmarks.accelerator.commands import count_outcomes
from benchmarks.accelerator.decode import measure_decoding
from benchmarks.accelerator.grpo import measure_step
from benchmarks.accelerator.parts import MACHINE, Part, StepSize, list_parts
from benchmarks.accelerator.process import Launcher
from benchmarks.accelerator.results import Results
from benchmarks.accelerator.roofline import Peaks, decode_bytes, published_peaks
from benchmarks.accelerator.schedule import Schedule
from benchmarks.accelerator.tables import format_results, peaks_of
from benchmarks.accelerator.workload import as_prompts, published_workload
from benchmarks.job import Job
from job_jax.config import MeshConfig
from job_jax.mesh import make_mesh
from rlvr_jax.config import ModelConfig

# A layer: 4 * (2*2 + 1*2 + 1*2 + 2*2) + 3*4*3 = 84 weights; the head: 5 * 4 = 20.
_SIZES = {
    "num_layers": 1,
    "hidden_size": 4,
    "intermediate_size": 3,
    "num_heads": 2,
    "num_kv_heads": 1,
    "head_dim": 2,
}
_MODEL = ModelConfig(compute_dtype="bfloat16", **_SIZES)


class World:
    """A clock that advances by the seconds of parts, and a list of launched parts."""

    def __init__(self, directory, **outcomes):
        self.directory, self.outcomes = directory, outcomes
        self.time, self.launched, self.said = 100.0, [], []

    def launch(self, part, limit_s):
        """Advances by the part's seconds, or by its limit if that comes first."""
        self.launched.append((part.name, limit_s))
        self.on_disk = Results(self.directory).parts[part.name]
        seconds, record = self.outcomes[part.name]
        self.time += min(seconds, limit_s)
        return {"status": "stopped"} if seconds > limit_s else record

    def run(self, parts, budget_s=1000.0):
        """Runs the parts; returns the records on disk."""
        self.launched.clear()
        Schedule(
            Results(self.directory),
            budget_s=budget_s,
            launch=self.launch,
            clock=lambda: self.time,
            say=self.said.append,
        ).run(parts)
        return Results(self.directory).parts


def part(name, estimate_s=10.0, limit_s=50.0, **fields):
    return Part(
        name=name, kind="", estimate_s=estimate_s, limit_s=limit_s, options={}, **fields
    )


def done(**result):
    return {"status": "done", "result": result}


def test_a_saved_part_is_not_run_again_and_an_interrupted_one_is(tmp_path):
    world = World(tmp_path, a=(3, done(x=1)), b=(40, done(x=2)))
    records = world.run([part("a"), part("b")], budget_s=3 + 5 + 20)
    # 5 s of the budget are reserved: b gets 20 of the 40 s that it needs.
    assert world.launched == [("a", 23.0), ("b", 20.0)]
    assert records["a"] == {**done(x=1), "seconds": 3.0}
    assert records["b"]["status"] == "interrupted"
    records = world.run([part("a"), part("b")])
    assert world.launched == [("b", 50.0)]
    assert records["b"]["result"] == {"x": 2}


def test_a_part_whose_run_is_killed_from_outside_is_left_as_interrupted(tmp_path):
    world = World(tmp_path, a=(3, done()))
    world.run([part("a")])
    assert world.on_disk == {"status": "interrupted"}  # while it ran


def test_a_part_that_fails_is_recorded_and_the_next_one_runs(tmp_path):
    crash = {"status": "failed", "reason": "exit code 1: RESOURCE_EXHAUSTED"}
    world = World(tmp_path, a=(3, crash), b=(60, done()), c=(3, done(x=1)))
    records = world.run([part("a"), part("b"), part("c")])
    assert records["a"] == {**crash, "seconds": 3.0}
    assert records["b"]["status"] == "failed"  # by its own limit of 50 s
    assert "its limit of 50s" in records["b"]["reason"]
    assert records["c"]["status"] == "done"
    world.run([part("a"), part("b"), part("c")])
    assert world.launched == []
    results = Results(tmp_path)
    results.forget_failures()
    assert results.parts.keys() == {"c"}
    assert Results(tmp_path).parts.keys() == {"c"}


def test_a_part_is_begun_only_if_its_estimate_fits_into_the_time_left(tmp_path):
    world = World(tmp_path, a=(80, done()), c=(14, done()))
    parts = [part("a", limit_s=90.0), part("b", 15.1), part("c", 15.0)]
    records = world.run(parts, budget_s=100.0)
    assert [name for name, _ in world.launched] == ["a", "c"]
    assert "b" not in records
    assert world.time - 100.0 <= 95.0
    assert any("b: not begun" in line for line in world.said)
    assert "all that remains 40s; time left 1m35s" in world.said[0]


def test_a_skipped_part_says_why_and_is_tried_again(tmp_path):
    world = World(tmp_path, a=(3, done()))
    records = world.run([part("a", skip="no weights")])
    assert records["a"] == {"status": "skipped", "reason": "no weights"}
    assert world.run([part("a")])["a"]["status"] == "done"


@pytest.mark.parametrize(
    ("script", "status", "reason"),
    [
        ("pathlib.Path(path).write_text('{\"x\": 1}')", "done", None),
        (
            "sys.exit('RESOURCE_EXHAUSTED: no memory')",
            "failed",
            "RESOURCE_EXHAUSTED: n",
        ),
        ("os.kill(os.getpid(), 9)", "failed", "exit code -9: it wrote nothing"),
        ("__import__('time').sleep(600)", "stopped", None),
    ],
)
def test_a_process_that_crashes_or_hangs_is_its_parts_own_affair(
    script, status, reason, tmp_path
):
    read = "import os, pathlib, sys; path = sys.argv[2].partition('=')[2]; "
    launch = Launcher(
        tmp_path,
        cache=tmp_path / "cache",
        flags=[],
        say=lambda text: None,
        worker=("-c", read + script),
    )
    record = launch(part("a"), 1.0 if status == "stopped" else 60.0)
    assert record["status"] == status
    assert (reason or "") in record.get("reason", "")
    assert record.get("result") == ({"x": 1} if status == "done" else None)
    assert "==== a" in (tmp_path / "log.txt").read_text()


def test_the_published_sequences_are_drawn():
    """The published page has 133,966 tokens for 256 sequences of up to 1,024."""
    work = published_workload()
    assert len(work.prompts) == len(work.new_tokens) == 256
    assert sum(work.new_tokens) == 133_966
    assert sum(map(len, work.prompts)) == 142_827
    lengths = {*work.new_tokens, *map(len, work.prompts)}
    assert min(lengths) >= 100
    assert max(lengths) == 1024


def test_a_row_may_end_from_its_planned_token_on():
    """The n-th token has index n - 1 after the tokens that the row already had."""
    work = published_workload(3, shortest=2, limit=8)
    prompts = as_prompts(work, vocab_size=50)
    may_end_at = work.limit - prompts.begun.length  # index + had >= limit
    np.testing.assert_array_equal(may_end_at, np.array(work.new_tokens) - 1)
    assert prompts.tokens.shape == (3, 8)
    assert prompts.tokens.max() < 50


def test_bytes_of_decoding_counted_by_hand():
    """Two rows: prompts of 2 and 3 tokens, completions of 3 and 2."""
    work = {"prompt_lengths": [2, 3], "new_tokens": [3, 2]}
    # A position has 2 * 2 numbers. The first row's later tokens see 2 + 1 and 2 + 2
    # positions, the second row's sees 3 + 1: 11 in all. Both rows at a time take two
    # steps of 104 weights, and the head once for the first tokens.
    both = decode_bytes(_MODEL, 5, slots=2, **work)
    assert both == 2 * (2 * 104 + 20 + 4 * 11)
    # One row at a time takes three steps, and the head twice.
    one = decode_bytes(_MODEL, 5, slots=1, **work)
    assert one == 2 * (3 * 104 + 2 * 20 + 4 * 11)


def test_bytes_of_equal_rows_are_those_that_the_other_benchmark_counts():
    job = Job(vocab_size=5, num_prompts=4, group_size=1, prompt_tokens=7, **_SIZES)
    model = dataclasses.replace(_MODEL, compute_dtype="float32")
    ours = decode_bytes(
        model,
        5,
        prompt_lengths=[7] * 4,
        new_tokens=[job.new_tokens] * 4,
        slots=4,
    )
    assert ours == counts.decode_bytes(job)


def test_an_update_of_adapters_saves_the_gradients_of_the_weights():
    job = Job(
        vocab_size=5,
        num_prompts=2,
        group_size=3,
        prompt_tokens=2,
        new_tokens=3,
        **_SIZES,
    )
    products, attention = 2 * 84 * 16 + 2 * 20 * 18, 4 * 2 * 2 * (2 * 3 + 6 * 7)
    assert counts.adapter_update_flops(job) == 2 * products + 3 * attention
    assert counts.update_flops(job) == 3 * products + 3 * attention


@pytest.mark.parametrize(
    ("kind", "peaks"),
    [
        ("NVIDIA H100 80GB HBM3", (989e12, 3350e9)),
        ("NVIDIA H100 PCIe", (756e12, 2000e9)),
        ("NVIDIA H200", (989e12, 4800e9)),
        ("NVIDIA A100-SXM4-40GB", (312e12, 1555e9)),
        ("NVIDIA A100-SXM4-80GB", (312e12, 2039e9)),
        ("NVIDIA L4", (121e12, 300e9)),
        ("NVIDIA L40S", (362e12, 864e9)),
        ("Tesla T4", (65e12, 320e9)),
        ("TPU v5 lite", (197e12, 819e9)),
        ("TPU v6 lite", (918e12, 1638e9)),
        ("cpu", None),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_peaks_by_the_name_of_the_device(kind, peaks):
    expected = peaks and Peaks(flops=peaks[0], bytes_per_s=peaks[1])
    assert published_peaks(kind) == expected
    measured = {"kind": kind, "peak_flops": 7.0, "bytes_per_s": 3.0}
    assert peaks_of(measured) == (expected or Peaks(flops=7.0, bytes_per_s=3.0))


def _timing(seconds, compile_s=0.0):
    return {"median_s": seconds, "compile_s": compile_s}


def _records():
    """Returns records of a device that does 1 TFLOP/s and 1 GB/s."""
    machine = {
        "devices": "1 x cpu on 2 cores",
        "kind": "cpu",
        "peak_flops": 1e12,
        "bytes_per_s": 1e9,
        "dtype": "float32",
        "versions": {"jax": "0.10.2"},
        "load": 0.25,
    }
    decode = {
        "sequences": 256,
        "batch": 64,
        "tokens": 5000,
        "bytes": 1e9,
        "sample": _timing(5.0, 3.0),
        "prefill": _timing(1.0, 1.0),
        "peak_memory": 3 << 30,
    }
    grpo = {
        "trained": "adapters",
        "tokens": 3000,
        "parts": {
            "sampling": _timing(2.0, 4.0),
            "scoring": _timing(0.5),
            "update": _timing(1.0),
            "update_with_features": _timing(1.1),
            "update_with_observer": _timing(1.25),
        },
        "flops": {"sampling": 1e12, "scoring": 1e11, "update": 3e11},
        "peak_memory": None,
    }
    return {
        "machine": {**done(**machine), "seconds": 1.0},
        "GPU tests": {"status": "skipped", "reason": "they need a GPU"},
        "decode 0.5B 64": done(**decode),
        "grpo 0.5B LoRA": done(**grpo),
        "recipe": {"status": "failed", "reason": "exit code 1"},
    }


def test_the_table_is_computed_from_the_records(tmp_path, capsys):
    results = Results(tmp_path)
    for name, record in _records().items():
        results.save(name, record)
    assert command.main([f"--out={tmp_path}", "--table"]) == 1  # a part failed
    text = capsys.readouterr().out
    assert text == format_results(_records())
    rows = {
        tuple(line.strip("| ").split(" | "))
        for line in text.splitlines()
        if "|" in line
    }
    # 5,000 tokens in 5 s. Without the prompts 4 s; reading takes 1 s of them.
    decode = ("0.5B", "256", "64", "5,000", "1,000", "1.000", "4.000", "25.0%", "4")
    assert (*decode, "3.0 GiB") in rows
    # 3,000 tokens in 2 + 1 s; 1 of 2 TFLOP, 0.1 of 0.5, 0.3 of 1.
    grpo = ("0.5B", "adapters", "3,000", "2.000", "0.500", "1.000", "1,000")
    shares = ("50.0%", "20.0%", "30.0%", "+10.0%", "+25.0%", "4", "-")
    assert grpo + shares in rows
    assert "Device: 1 x cpu on 2 cores." in text
    assert "(as measured): 1 TFLOP/s, 1 GB/s" in text
    assert "- GPU tests: skipped, they need a GPU" in text
    assert "- recipe: failed, exit code 1" in text


def test_every_kind_of_part_is_listed_and_names_are_unique(tmp_path):
    large = list_parts(platform="gpu", small=False, model="")
    names = [each.name for each in (MACHINE, *large)]
    assert len(set(names)) == len(names)
    assert {"decode 0.5B 256", "decode 1.5B 512", "grpo 0.5B full"} < {*names}
    # One part of each kind runs first, in case the machine is lent for an hour only.
    kinds = [each.kind for each in large[:5]]
    assert kinds == ["device_tests", "attention", "decoding", "grpo", "autoencoder"]
    reasons = {each.name: each.skip for each in large if each.skip}
    assert reasons == {"recipe": "no weights were given: --model=DIR"}
    on_cpu = list_parts(platform="cpu", small=True, model=str(tmp_path))
    assert on_cpu[0].skip == "they need a GPU, and this is a cpu"
    assert {e.kind for e in on_cpu} == {e.kind for e in large}
    missing = list_parts(platform="gpu", small=False, model=str(tmp_path))
    assert "holds no config.json" in missing[-1].skip


def test_outcomes_of_the_tests_are_read_from_their_last_line():
    text = "tests/a.py::b PASSED 1 failed\n== 2 passed, 1 skipped in 3.1s ==\n"
    assert count_outcomes(text) == {"passed": 2, "skipped": 1}


def test_completions_have_the_planned_tokens_whatever_the_slots():
    """7 of 8 tokens end a row: on average 1/7 of a token more, and never one less."""
    work = published_workload(16, shortest=4, limit=16)
    with jax.set_mesh(make_mesh(MeshConfig(), jax.devices()[:1])):
        results = [
            measure_decoding("small", work, batch=batch, repeats=1) for batch in (4, 16)
        ]
    planned = sum(work.new_tokens)
    for result in results:
        assert planned <= result["tokens"] <= planned + 16
        assert result["bytes"] > 0
    assert results[0]["tokens"] == results[1]["tokens"]


@pytest.mark.parametrize("adapters", [False, True])
def test_every_part_of_a_grpo_step_is_timed(adapters):
    step = StepSize(
        num_prompts=2, group_size=2, prompt_tokens=4, new_tokens=8, grad_accum_steps=2
    )
    with jax.set_mesh(make_mesh(MeshConfig(), jax.devices()[:1])):
        result = measure_step("small", adapters=adapters, repeats=1, step=step)
    assert result["tokens"] == 2 * 2 * 8
    assert result["parts"].keys() == {
        "sampling",
        "scoring",
        "update",
        "update_with_features",
        "update_with_observer",
    }
    assert json.loads(json.dumps(result)) == result
