"""Reads the header of the file that a llama-server's model is in, from where the server itself sees it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from kvexporter.facts import GgufHeader
from kvexporter.sources.gguf_header import HeaderError, read_header

MAX_KEPT = 64


class ModelFiles:
    """Keeps the headers that were read, so that a server that is started again costs one look at its file's date.

    Reading waits for the disk, which may be a network's: call it aside.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._kept: dict[tuple[int, int, int, int], GgufHeader] = {}

    def read(self, names: Iterable[str], pid: int | None, *, in_container: bool) -> GgufHeader:
        """The header of the first of these files that can be opened.

        `names` are as the server knows them, relative ones in its own folder. Raises HeaderError, whose text says what
        went wrong with the first of them and what to do.
        """
        failure: HeaderError | None = None
        for name in names:
            try:
                return self._read_one(name, pid, in_container)
            except HeaderError as error:
                failure = failure or error
        raise failure or HeaderError("the path of the model's file is not known")

    def _read_one(self, name: str, pid: int | None, in_container: bool) -> GgufHeader:
        denied = False
        for path in _places(self._proc, name, pid, in_container):
            try:
                return self._open(path)
            except PermissionError:
                denied = True
            except (FileNotFoundError, NotADirectoryError):
                pass
            except OSError as error:
                raise HeaderError(f"{name} cannot be read: {error.strerror}") from None
            except HeaderError as error:
                raise HeaderError(f"{name} {error}") from None
        raise HeaderError(f"{name} {_missing(name, denied=denied, in_container=in_container)}")

    def _open(self, path: Path) -> GgufHeader:
        # Anybody may start a process of this name with any path: a pipe or a device must not be waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            raise HeaderError("is not a file")
        with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
            key = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
            header = self._kept.get(key)
            if header is None:
                header = self._kept[key] = read_header(file, found.st_size)
                if len(self._kept) > MAX_KEPT:
                    self._kept.pop(next(iter(self._kept)), None)
            return header


def _places(proc: str, name: str, pid: int | None, in_container: bool) -> Iterable[Path]:
    """Where a file may be found under the name that the server has for it."""
    if pid is not None:
        # As the process sees it, in its container and its folder. Another user's is closed to all but root.
        folder = Path(proc) / str(pid) / ("root" if name.startswith("/") else "cwd")
        yield folder / name.lstrip("/")
    if name.startswith("/") and not in_container:
        yield Path(name)


def _missing(name: str, *, denied: bool, in_container: bool) -> str:
    if in_container:
        return "is in a container, whose files only root can see"
    if not name.startswith("/"):
        return "is a path in the server's own folder, which only its user and root can see"
    if name.startswith(("/home/", "/root/", "/run/user/")):
        return "cannot be opened: people's own folders are hidden from kvexporter's unit (ProtectHome=)"
    return "may not be read" if denied else "does not exist"
