"""The files that a request needs: an API key or password, certificates. Each is read again whenever it changes.

They may be on a network's disk, which may be dead: they are read aside, and while that hangs what was read before is
used.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from kvexporter.aside import Aside
from kvexporter.facts import PollReason
from kvexporter.sources.api_target import AccessError, ApiTarget

log = logging.getLogger(__name__)

FILE_SECONDS = 2.0
"""How long a file is waited for: less than the request may take that it is for, so that this can go on without it."""

_KEY_FILE_BOUND = 64 * 1024

_Stamp = tuple[int, int, int, int]
_Stamps = tuple[_Stamp | None, ...]
T = TypeVar("T")


class _MadeOfFiles(Generic[T]):
    """A value that is made of files by `make`, which raises AccessError; `reason` is that of a file that hangs."""

    def __init__(self, what: str, files: tuple[Path | None, ...], make: Callable[[], T], reason: PollReason) -> None:
        self._what = what
        self._files = files
        self._make = make
        self._reason = reason
        self._reading: Aside[tuple[_Stamps, T]] = Aside(f"reading {what}")
        self._known: tuple[_Stamps, T] | None = None
        self._hangs = False

    async def get(self, patience: float) -> T:
        """The value as the files are now, or the last one while they do not answer within `patience` seconds.

        Raises AccessError if there is none, or if the files can be reached and are not usable: then one that was there
        before is not used any more.
        """
        if self._known is not None and not any(self._files):
            return self._known[1]
        deadline = FILE_SECONDS if self._known is None else min(patience, FILE_SECONDS)
        try:
            self._known = await self._reading.call(partial(self._look, self._known), deadline)
        except TimeoutError:
            words = "it cannot be read: its disk or network does not answer"
            if self._known is None:
                raise AccessError(self._reason, f"{self._what}: {words}") from None
            if not self._hangs:
                log.warning("%s: %s; what was read before stays in use", self._what, words)
            self._hangs = True
        except AccessError:
            self._known, self._hangs = None, False
            raise
        else:
            if self._hangs:
                log.info("%s can be read again", self._what)
            self._hangs = False
        return self._known[1]

    def _look(self, known: tuple[_Stamps, T] | None) -> tuple[_Stamps, T]:
        # The stamps come first: what changes during the reading is then read again.
        current = tuple(_stamp(path) for path in self._files)
        if known is not None and known[0] == current:
            return known
        return current, self._make()


def _stamp(path: Path | None) -> _Stamp | None:
    """What changes when the file is replaced or rewritten; None if it is missing."""
    if path is None:
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


class KeyFile:
    """An API key or password in a file. It shows in no repr and no error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key = _MadeOfFiles(str(path), (path,), partial(_read_key, path), "key_file")

    def __repr__(self) -> str:
        return f"KeyFile({str(self._path)!r})"

    async def read(self, patience: float = FILE_SECONDS) -> bytes:
        """The key. Raises AccessError(key_file) if there is none now; one that was there before is not used then.

        While the file's disk does not answer within `patience` seconds, the key that was read before is used.
        """
        return await self._key.get(patience)


def _read_key(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_KEY_FILE_BOUND)
    except OSError as error:
        raise AccessError("key_file", f"{path}: {error.strerror}") from None
    key = next((line.strip() for line in content.splitlines() if line.strip()), b"")
    if not key:
        raise AccessError("key_file", f"{path}: holds no key")
    if any(byte < 0x20 or byte == 0x7F for byte in key):
        raise AccessError("key_file", f"{path}: holds bytes that no key has")
    return key


class TlsFiles:
    """The TLS settings for a target, with the files that it names."""

    def __init__(self, target: ApiTarget) -> None:
        files = (target.ca_file, target.cert_file, target.key_file)
        names = " and ".join(str(path) for path in files if path) or "the system's certificate authorities"
        self._plain = None if target.tls else _nobody_trusted()
        self._context = _MadeOfFiles(names, files, partial(_tls_context, target), "tls")

    async def context(self, patience: float = FILE_SECONDS) -> ssl.SSLContext:
        """The settings, the same object as long as no file has changed.

        Raises AccessError(tls) if a file cannot be read or is not what it should be. While their disk does not answer
        within `patience` seconds, the settings that were made before are used.
        """
        return self._plain or await self._context.get(patience)


def _nobody_trusted() -> ssl.SSLContext:
    # For plain HTTP. Only there because the transport would read a whole list of authorities otherwise.
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _tls_context(target: ApiTarget) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=target.ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise AccessError("tls", f"{target.ca_file}: {_words(error)}") from None
    if target.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if target.cert_file is not None:
        try:
            # An encrypted key would make OpenSSL ask at a terminal that a daemon does not have.
            context.load_cert_chain(target.cert_file, target.key_file, password=lambda: b"")
        except (OSError, ValueError) as error:
            files = " and ".join(str(path) for path in (target.cert_file, target.key_file) if path)
            raise AccessError("tls", f"{files}: {_words(error)}") from None
    return context


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"not usable ({error.reason or 'no PEM found'})"
    return (error.strerror if isinstance(error, OSError) else None) or "not usable"
