"""A file whose disk does not answer, for real: a named pipe that nobody writes to. Whoever opens it hangs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def unanswering(path: Path) -> Iterator[None]:
    """Have a file hang whoever reads it until the end of the block; then it is what it was before."""
    kept, pipe = path.with_name(f"{path.name}.kept"), path.with_name(f"{path.name}.pipe")
    existed = path.exists()
    if existed:
        path.rename(kept)
    os.mkfifo(path)
    try:
        yield
    finally:
        path.rename(pipe)
        if existed:
            kept.rename(path)
        with suppress(OSError):  # nobody hangs
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))  # who hangs reads nothing, and comes back
