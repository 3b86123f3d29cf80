"""An open log file, plain or packed by gzip, read at any offset. It may be renamed and deleted meanwhile."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from types import TracebackType

from kvexporter.sources.log_mark import LogMark, digest

_SCAN_BYTES = 1 << 20
_FIRST_BYTES = 1 << 16
"""What of a packed file is unpacked at first: of most, only the beginning is compared."""
_BACK_BYTES = 1 << 18
"""What is kept of a packed file behind the place where it is unpacked; more than is read at once."""
_STEP_BYTES = 1 << 22
"""What is unpacked on the way to a place before others get their turn: some 15 ms of work."""


class DamagedLogError(OSError):
    """A packed file cannot be unpacked from here on."""


class StillUnpackingError(Exception):
    """What was asked for is further on in a packed file: ask again, to come nearer."""


class LogContent:
    """Opens `path`. OSError when it cannot be, or is no regular file."""

    def __init__(self, path: str) -> None:
        self._path = path
        # Not blocking: a pipe of that name would wait for its writer.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            status = os.fstat(self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(f"{path} is not a regular file")
            self.identity = (status.st_dev, status.st_ino)
            self._packed: gzip.GzipFile | None = None
            self._reached, self._last = 0, b""
            """How far it has been unpacked, and what came last."""
            self._begins_like: LogMark | None = None
            """Whose first bytes it has: to look at them again would mean to unpack all again."""
            if path.endswith(".gz"):
                self._stream = os.fdopen(os.dup(self._descriptor), "rb")
                self._packed = gzip.GzipFile(fileobj=self._stream, mode="rb")
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> LogContent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close it; once."""
        if self._packed is not None:
            self._packed.close()
            self._stream.close()
        os.close(self._descriptor)

    @property
    def packed(self) -> bool:
        """It is packed, so it does not change any more."""
        return self._packed is not None

    def status(self) -> os.stat_result:
        """What the file system says of it, as it is now."""
        return os.fstat(self._descriptor)

    def read(self, offset: int, size: int) -> bytes:
        """Read up to `size` bytes, fewer only at the end. OSError when it cannot be read, StillUnpackingError when the
        place is far away in a packed file.
        """
        parts = []
        while size > 0:
            part = self._read(offset, size)
            if not part:
                break
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)

    def _read(self, offset: int, size: int) -> bytes:
        if self._packed is None:
            return os.pread(self._descriptor, size, offset)
        try:
            return self._unpack(self._packed, offset, size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DamagedLogError(f"{self._path} cannot be unpacked: {error}") from None

    def _unpack(self, stream: gzip.GzipFile, offset: int, size: int) -> bytes:
        """Read forwards: to go back by more than what was read last, all is unpacked again."""
        if offset < self._reached - len(self._last):
            stream.seek(0)
            self._reached, self._last = 0, b""
        pause = self._reached + _STEP_BYTES
        while self._reached < offset + size:
            if pause <= self._reached < offset:
                raise StillUnpackingError
            chunk = stream.read(_SCAN_BYTES if self._reached else max(_FIRST_BYTES, min(size, _SCAN_BYTES)))
            if not chunk:
                break
            self._reached += len(chunk)
            self._last = (self._last[-_BACK_BYTES:] + chunk) if self._last else chunk
        begin = offset - (self._reached - len(self._last))
        if begin < 0:  # a long way forwards in one go: there, but not kept
            return self._unpack(stream, offset, size)
        return self._last[begin : begin + size]

    def first_data(self, since: int = 0) -> tuple[int | None, int | None]:
        """Offset of the first byte that is not NUL, or of the end; all before `since` are known to be NUL. A plain file
        of nothing else may still be given its first data anywhere: None.

        The second is where to go on looking, else None. A packed file is not looked through in one go: a few KiB can be
        unpacked to many GiB of NULs.
        """
        offset = since
        if self._packed is None:
            try:
                offset = os.lseek(self._descriptor, since, os.SEEK_DATA)
            except OSError:
                return None, None  # no data at all
        while chunk := self._read(offset, _SCAN_BYTES):
            data = chunk.lstrip(b"\0")
            if data:
                return offset + len(chunk) - len(data), None
            offset += len(chunk)
            if self._packed is not None:
                return None, offset
        return (None if self._packed is None else offset), None

    def holds(self, mark: LogMark) -> bool:
        """Whether what comes before the mark is in it. The same errors as of `read`."""
        if not mark.head:
            return self.identity == mark.identity
        if not self.packed and self.status().st_size < mark.offset:
            return False
        if self._begins_like != mark:
            if digest(self.read(mark.start, mark.head)) != mark.head_hash:
                return False
            self._begins_like = mark
        return digest(self.read(mark.offset - mark.tail, mark.tail)) == mark.tail_hash

    def begins_like(self, mark: LogMark) -> bool:
        """Whether `holds` has found the mark's first bytes in it, even if it then could not read as far as the mark."""
        return self._begins_like == mark

    def still_begins(self, mark: LogMark) -> bool:
        """Whether it has the mark's first bytes: not, once it was emptied."""
        return self.packed or digest(self.read(mark.start, mark.head)) == mark.head_hash
