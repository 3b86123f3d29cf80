"""What stands in the way of reading a log file, in words that say what to do."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def file_problem(path: str) -> str | None:
    """What stands in the way of reading a log file, and what to do; None if nothing does."""
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        folder = _existing(path)
        where = "" if folder == str(Path(path).parent) else f" (nor a folder {Path(path).parent})"
        return f"there is no file {path}{where}: it is read as soon as it is there"
    except PermissionError:
        return f"no permission to look for {path}: let the exporter's user enter {_closed(path)}"
    except OSError as error:
        return f"{path}: {error.strerror}"
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is not a regular file: expected a file that the log is appended to"
    if not os.access(path, os.R_OK, effective_ids=True):
        return f"no permission to read {path}: give the exporter's user its group (SupplementaryGroups=), or setfacl"
    return None


def _existing(path: str) -> str:
    """The nearest folder above a path that is there."""
    folder = Path(path).parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return str(folder)


def _closed(path: str) -> str:
    """The first folder on the way to a path that cannot be entered."""
    for folder in reversed(Path(path).parents):
        if not os.access(folder, os.X_OK, effective_ids=True):
            return str(folder)
    return str(Path(path).parent)
