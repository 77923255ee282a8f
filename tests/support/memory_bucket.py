"""A bucket in memory, and directories represented by their files."""

import base64
import hashlib
import threading

from fsspec.implementations.memory import MemoryFileSystem


class Bucket(MemoryFileSystem):
    """A bucket in memory that fails from its k-th writing operation on."""

    cachable = False
    protocol = "memory"

    def __init__(self):
        super().__init__()
        self.store, self.pseudo_dirs = {}, [""]
        self.num_operations, self.fails_at = 0, None
        self._lock = threading.Lock()

    def _count(self):
        with self._lock:
            self.num_operations += 1
            if self.fails_at is not None and self.num_operations >= self.fails_at:
                raise ConnectionError("the network is gone")

    def find(self, *args, **kwargs):
        """Returns the files; with details, also the MD5 of each, as GCS does."""
        found = super().find(*args, **kwargs)
        for path in found if kwargs.get("detail") else ():
            md5 = hashlib.md5(self.store[path].getvalue()).digest()
            found[path]["md5Hash"] = base64.b64encode(md5).decode()
        return found

    def open(self, path, mode="rb", **kwargs):
        """Counts files; `pipe_file` also opens the files it makes, in another mode."""
        if mode == "wb":
            self._count()
        return super().open(path, mode, **kwargs)

    def pipe_file(self, *args, **kwargs):
        self._count()
        return super().pipe_file(*args, **kwargs)

    def rm_file(self, path):
        self._count()
        return super().rm_file(path)


def write(directory, **files):
    for name, text in files.items():
        path = directory / name.replace("__", "/").replace("_json", ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def read(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_text()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and ".bucket" not in path.parts
    }
