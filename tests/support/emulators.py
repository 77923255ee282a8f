"""Local emulators of S3 and GCS, each a process that stops when its block ends."""

import contextlib
import importlib
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

BUCKET = "bucket"

# A download returns the object's generation, as GCS does and this emulator does not.
# tensorstore needs it to read an object again that may have changed.
_GCS = """
from gcp_storage_emulator.handlers import objects
plain = objects.download
def download(request, response, storage, *args, **kwargs):
    plain(request, response, storage)
    name = request.params["bucket_name"], request.params["object_id"]
    if response.status.value < 300:
        response["X-Goog-Generation"] = storage.get_file_obj(*name)["generation"]
objects.download = download
from gcp_storage_emulator.__main__ import main
main()
"""


@contextlib.contextmanager
def emulator(scheme: str) -> Iterator[dict[str, str]]:
    """Yields the environment that makes SCHEME://bucket an empty, local bucket."""
    lacking = {"s3": ("s3fs", "moto"), "gs": ("gcsfs", "gcp_storage_emulator")}[scheme]
    for name in lacking:
        if importlib.util.find_spec(name) is None:
            extra = {"s3": "s3", "gs": "gcs"}[scheme]
            pytest.skip(f"no {name}: pip install -e '.[{extra},emulators]'")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command, env = {
        "s3": (
            ["-c", "from moto.server import main; main()", "-p", str(port)],
            {
                "AWS_ENDPOINT_URL": url,
                "AWS_ACCESS_KEY_ID": "testing",
                "AWS_SECRET_ACCESS_KEY": "testing",
                "AWS_DEFAULT_REGION": "us-east-1",
            },
        ),
        "gs": (
            ["-c", _GCS, "start", "--in-memory", "--port", str(port)],
            {
                "STORAGE_EMULATOR_HOST": url,
                "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "0",
                "TENSORSTORE_GCS_HTTP_URL": url,  # for arrays of several processes
                "GOOGLE_AUTH_TOKEN_FOR_TESTING": "testing",
            },
        ),
    }[scheme]
    process = subprocess.Popen(
        [sys.executable, *command],
        env={k: v for k, v in os.environ.items() if k != "PYTHONWARNINGS"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _await(process, url)
        _make_bucket(scheme, url)
        yield env
    finally:
        process.kill()
        process.wait()


def _await(process: subprocess.Popen[bytes], url: str) -> None:
    """Waits until the server answers."""
    while True:
        assert process.poll() is None, "the emulator has ended"
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(url).close()
            return


def _make_bucket(scheme: str, url: str) -> None:
    request = {
        "s3": urllib.request.Request(f"{url}/{BUCKET}", method="PUT"),
        "gs": urllib.request.Request(
            f"{url}/storage/v1/b?project=test",
            data=b'{"name": "%s"}' % BUCKET.encode(),
            headers={"Content-Type": "application/json"},
        ),
    }[scheme]
    urllib.request.urlopen(request).close()
