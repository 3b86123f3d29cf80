"""Makes the demonstration's folder, and cleans up after a demonstration that was killed: its processes and the folder.

python -m kvexporter.demo.janitor: prints the folder (or `!` and why there is none), and waits until its standard input
ends, which is when the demonstration is gone. So there is nobody to clean up for before there is anybody to do it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

MARK = "KVEXPORTER_DEMO"
"""Environment variable of every process of a demonstration: its folder."""

PATIENCE_SECONDS = 5.0


def marked(folder: Path) -> list[int]:
    """The processes of the demonstration with this folder."""
    mark = os.fsencode(f"{MARK}={folder}")
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue  # it has just ended, or is another user's
    return found


def end_marked(folder: Path, patience: float = PATIENCE_SECONDS) -> None:
    """End them, by force those that have not ended after `patience` seconds."""
    deadline = time.monotonic() + patience
    told: set[int] = set()
    while alive := marked(folder):
        late = time.monotonic() > deadline
        for process in alive:
            if late or process not in told:
                told.add(process)
                try:
                    os.kill(process, signal.SIGKILL if late else signal.SIGTERM)
                except ProcessLookupError:
                    continue
        if time.monotonic() > deadline + patience:
            return  # what cannot even be killed hangs in the kernel
        time.sleep(0.05)


def main() -> int:
    """Make the folder, wait for the end, clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        folder = Path(tempfile.mkdtemp(prefix="kvexporter-demo-"))
    except OSError as error:
        _tell(f"!{error.strerror}")
        return 1
    _tell(str(folder))
    while os.read(0, 4096):
        pass
    if folder.exists():
        end_marked(folder)
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _tell(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the demonstration may be gone already
        os.write(1, os.fsencode(line) + b"\n")


if __name__ == "__main__":
    sys.exit(main())
