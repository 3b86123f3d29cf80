"""A disk that really hangs: a mounted filesystem that passes a folder through, and stops answering when told to."""

from __future__ import annotations

import ctypes
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import fuse_server

_MNT_DETACH = 2
_START_SECONDS = 30.0


class HangingDisk:
    """What is below `path` lies on it. While it hangs, whoever looks at it waits: a test must not do so itself.

    What was read before stays in the machine's memory, as with any disk, and can still be read; who has a file open is
    not told of anything.
    """

    def __init__(self, path: Path, process: subprocess.Popen[bytes]) -> None:
        self.path = path
        self._process = process
        self._hangs = False

    def hang(self, *, unkillable: bool = False) -> None:
        """Answer nothing any more. `unkillable`: as a local disk does, so that not even SIGKILL ends who waits for it;
        else as NFS does.
        """
        self._say("hold" if unkillable else "hang")
        self._hangs = True

    def go_on(self) -> None:
        """Answer what was asked in the meantime, and everything else."""
        self._say("go on")
        self._hangs = False

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())
        self._process.stdin.flush()
        assert _line(self._process) == word


@contextmanager
def hanging_disk(folder: Path) -> Iterator[HangingDisk]:
    """Mount such a disk below `folder`; the test is skipped on a machine where nothing can be mounted."""
    backing, mount_point = folder / "backing", folder / "disk"
    backing.mkdir(parents=True)
    mount_point.mkdir()
    program = [sys.executable, fuse_server.__file__, str(backing), str(mount_point)]
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        if _line(process) != "mounted":
            assert process.stderr is not None
            why = process.stderr.read().decode().strip().splitlines()
            pytest.skip(f"this machine cannot mount a filesystem of ours: {why[-1] if why else 'no reason was given'}")
        yield HangingDisk(mount_point, process)
    finally:
        # Killed, never asked: with the end of its process the kernel ends all that waits for the disk.
        process.kill()
        ctypes.CDLL(None).umount2(os.fsencode(mount_point), _MNT_DETACH)
        process.communicate()


def _line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], _START_SECONDS)[0]:
        raise AssertionError("the disk's process says nothing")
    return process.stdout.readline().decode().strip()
