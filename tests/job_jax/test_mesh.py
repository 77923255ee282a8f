"""A process waits for programs on several virtual CPU devices."""

import os

import jax
import jax.numpy as jnp
import pytest

from job_jax import mesh
from job_jax.config import MeshConfig
from job_jax.mesh import await_on_cpu, configure_cpu

LEVEL = "--xla_backend_optimization_level"


def test_an_awaited_result_is_ready():
    """A long product is still running when its call returns."""
    grow = jax.jit(lambda x: jax.lax.fori_loop(0, 200, lambda _, y: jnp.tanh(y @ x), x))
    x = jnp.full((400, 400), 1e-3)
    grow(x).block_until_ready()  # compiled
    result = {"y": grow(x), "not an array": 3}
    assert await_on_cpu(result) is result
    assert result["y"].is_ready()


@pytest.mark.parametrize(
    ("cores", "given", "threads"),
    [(2, None, "32"), (7, None, "32"), (8, None, None), (2, "5", "5")],
)
def test_more_devices_than_cores_have_threads_for_their_collectives(
    monkeypatch, cores, given, threads
):
    monkeypatch.setattr(jax.config, "update", lambda name, value: None)
    monkeypatch.setattr(mesh, "_num_cores", lambda: cores)
    monkeypatch.delenv("PJRT_NPROC", raising=False)
    if given:
        monkeypatch.setenv("PJRT_NPROC", given)
    configure_cpu(MeshConfig(cpu_devices=8))
    assert os.environ.get("PJRT_NPROC") == threads


@pytest.mark.parametrize(
    ("given", "plugins", "libtpu", "flags"),
    [
        ("", [], None, f"{LEVEL}=1"),
        (" --xla_a=2 ", [], None, f"--xla_a=2 {LEVEL}=1"),
        (f"{LEVEL}=3", [], None, f"{LEVEL}=3"),
        ("flags.txt", [], None, "flags.txt"),
        ("--xla_a=2", ["cuda"], None, "--xla_a=2"),
        ("--xla_a=2", [], "libtpu", "--xla_a=2"),
    ],
)
def test_llvm_optimizes_less_only_where_there_is_no_accelerator(
    monkeypatch, given, plugins, libtpu, flags
):
    monkeypatch.setattr(jax.config, "update", lambda name, value: None)
    monkeypatch.setattr(mesh, "entry_points", lambda group: plugins)
    monkeypatch.setattr(mesh, "find_spec", lambda name: libtpu)
    monkeypatch.setenv("XLA_FLAGS", given)
    configure_cpu(MeshConfig(cpu_devices=1))
    assert os.environ["XLA_FLAGS"] == flags
