"""The coordinator of several processes listens only at the given address."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from job_jax.processes import _own_address

LISTEN = "0A"
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


def places(port):
    """Returns the local addresses, in hex, with a listener on a port."""
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    found = [row[1].split(":") for row in rows if row[3] == LISTEN]
    return {address for address, number in found if int(number, 16) == port}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_only_a_loopback_address_is_listened_on():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", "from job_jax import processes; processes.initialize()"],
        env=os.environ
        | {
            "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
            "JAX_NUM_PROCESSES": "2",  # it waits for the other
            "JAX_PROCESS_ID": "0",
        },
    )
    try:
        while not (found := places(port)):
            assert process.poll() is None
        assert found <= LOOPBACK
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("coordinator", "own"),
    [
        ("127.0.0.1:1234", True),
        ("localhost:1234", True),
        ("203.0.113.7:1234", False),  # reserved for documentation: no machine has it
        (None, False),
    ],
)
def test_another_machines_address_is_not_bound(coordinator, own):
    assert _own_address(coordinator) == (coordinator if own else None)
