"""Lists, reads, creates and removes the objects below one address of a bucket."""

import base64
import contextlib
import logging
import pathlib
import shutil
from collections.abc import Collection, Iterator
from typing import Any

from job_jax import DISTRIBUTION
from job_jax.schema import ConfigError

# Scheme -> fsspec's library, our extra that installs it, how to get credentials.
_LIBRARIES = {
    "s3": ("s3fs", "s3", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role"),
    "gs": (
        "gcsfs",
        "gcs",
        "gcloud auth application-default login, or a service account",
    ),
}
# s3fs has uploads checked against a digest by default; gcsfs needs this option.
_OPTIONS = {"s3": {}, "gs": {"consistency": "md5"}}
_PART_BYTES = 50 * 2**20  # of a file, held in memory during a transfer


class BucketError(OSError):
    """Objects could not be read or written. The message names them and the fix."""


class BucketAccessError(ConfigError):
    """A bucket cannot be used at all; no work was started."""


class ObjectExistsError(Exception):
    """The object to create exists already."""


class Store:
    """Objects by their names below `url`, through fsspec's file systems.

    Whichever error the library raises, each method raises BucketError, which names the
    object and the bucket. The library has then already retried.
    """

    def __init__(self, filesystem: Any, url: str):
        self.url = url
        self._fs = filesystem
        self._root = url.partition("://")[2]

    def list(self, folder: str) -> list[str]:
        """Returns the names below a folder, sorted."""
        with self._told("list", folder):
            found = self._fs.find(f"{self._root}/{folder}", withdirs=False)
            return sorted(path.partition(f"{self._root}/")[2] for path in found if path)

    def list_digests(self, folder: str) -> dict[str, tuple[int, str]]:
        """Returns size in bytes and MD5 (hex) of the objects below a folder, by name.

        The bucket computes them, so this works for objects that other processes
        wrote. Only GCS reports them.
        """
        with self._told("list", folder):
            found = self._fs.find(f"{self._root}/{folder}", withdirs=False, detail=True)
            return {
                path.partition(f"{self._root}/")[2]: (
                    info["size"],
                    base64.b64decode(info["md5Hash"]).hex(),
                )
                for path, info in found.items()
                if not path.endswith("/")
            }

    def read(self, name: str) -> bytes:
        """Returns the bytes of a small object."""
        with self._told("read", name):
            return self._fs.cat_file(f"{self._root}/{name}")

    def create(self, name: str, data: bytes) -> None:
        """Creates a small object. Raises ObjectExistsError if it exists already.

        S3 and GCS check this atomically, even among concurrent writers. Some emulators
        do not, so `exists` is called first.
        """
        path = f"{self._root}/{name}"
        with self._told("write", name):
            try:
                if self._fs.exists(path):
                    raise FileExistsError(path)
                self._fs.pipe_file(path, data, mode="create")
            except FileExistsError as error:
                raise ObjectExistsError(name) from error

    def upload(self, name: str, source: pathlib.Path) -> None:
        """Uploads a file as an object, in parts even if it is small.

        gcsfs puts a file that it sends in one piece between lines of text. If the last
        byte is a carriage return, it can be read as the start of the next line.
        """
        path = f"{self._root}/{name}"
        with (
            self._told("write", name),
            source.open("rb") as file,
            self._fs.open(path, "wb", block_size=_PART_BYTES) as target,
        ):
            shutil.copyfileobj(file, target, _PART_BYTES)

    def download(self, name: str, target: pathlib.Path) -> None:
        """Writes an object to a file."""
        with self._told("read", name):
            self._fs.get_file(f"{self._root}/{name}", str(target))

    def remove(self, names: Collection[str]) -> None:
        """Removes objects; ignores those that are gone already."""
        for name in names:
            with self._told("remove", name), contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(f"{self._root}/{name}")

    @contextlib.contextmanager
    def _told(self, verb: str, name: str) -> Iterator[None]:
        try:
            yield
        except ObjectExistsError:
            raise
        except Exception as error:  # the libraries share no narrower class
            raise BucketError(
                f"cannot {verb} {name} in {self.url} ({describe_error(error)})"
            ) from error


def describe_error(error: BaseException) -> str:
    """Returns an error's class and its message, on one line and cut short."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text:.200}" if text else type(error).__name__


def open_store(url: str) -> Store:
    """Returns the store at gs://bucket/path or s3://bucket/path; sends no request yet.

    Raises BucketAccessError if the library is missing, and says what to install.
    """
    scheme = url.partition("://")[0]
    library, extra, _ = _LIBRARIES[scheme]
    import fsspec  # noqa: PLC0415  only with a bucket

    try:
        filesystem = fsspec.filesystem(
            scheme,
            use_listings_cache=False,
            skip_instance_cache=True,
            **_OPTIONS[scheme],
        )
    except ImportError as error:
        raise BucketAccessError(
            f"{url} needs {library}, which is not installed: "
            f"pip install '{DISTRIBUTION}[{extra}]'"
        ) from error
    except Exception as error:  # the libraries already look for credentials here
        raise access_error(url, error) from error
    # The libraries also log, with a traceback, every error they raise.
    logging.getLogger(library).setLevel(logging.CRITICAL)
    return Store(filesystem, url)


def access_error(url: str, error: BaseException) -> BucketAccessError:
    """Returns the error for a bucket that cannot be used, with a fix."""
    scheme, _, rest = url.partition("://")
    cause = error.__cause__ or error
    bucket = f"{scheme}://{rest.partition('/')[0]}"
    if isinstance(cause, FileNotFoundError):
        mend = f"make the bucket {bucket}, or name another"
    elif isinstance(cause, PermissionError):
        mend = (
            f"give this account the right to list, read, write and delete in {bucket}"
        )
    else:
        mend = f"check the network and the credentials ({_LIBRARIES[scheme][2]})"
    return BucketAccessError(f"{url} cannot be used ({describe_error(cause)}); {mend}")
