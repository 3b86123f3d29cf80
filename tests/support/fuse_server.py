"""A process that serves a folder through the kernel's FUSE protocol and, told to, stops answering; see hanging_disk.py.

`python fuse_server.py FOLDER MOUNT_POINT`. It mounts, says `mounted`, and obeys lines on standard input, each of which
it repeats when it is done: `hang` (no request is taken any more; who waits can be killed, as with NFS), `hold` (they
are taken and not answered; who waits cannot even be killed, as with a broken local disk) and `go on`. Ends with its
input. The protocol: Linux, include/uapi/linux/fuse.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import stat
import struct
import sys
from collections.abc import Callable
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_MS_NOSUID, _MS_NODEV, _MNT_DETACH = 2, 4, 2
_MINOR = 31
_BIG_WRITES, _ATOMIC_TRUNCATE, _MAX_PAGES = 1 << 5, 1 << 3, 1 << 22
_KEEP_CACHE, _NO_FLUSH = 1 << 1, 1 << 5
_MAX_WRITE = 128 * 1024
_IN = struct.Struct("<IIQQIIII")
_OUT = struct.Struct("<IiQ")
_NOT_FOR_US = os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOCTTY


class Disk:
    """The files, by the numbers that the kernel knows them by. A number keeps a descriptor, so that renaming and
    removing change nothing for who has a file open.
    """

    def __init__(self, folder: str) -> None:
        root = os.open(folder, os.O_PATH)
        self._nodes = {1: root}
        self._lookups = {1: 1}
        self._numbers = {self._identity(root): 1}
        self._next = 2
        self.do: dict[int, Callable[[int, bytes], bytes | None]] = {
            1: self._lookup, 2: self._forget, 3: self._getattr, 4: self._setattr, 9: self._mkdir, 10: self._unlink,
            11: self._rmdir, 12: self._rename, 14: self._open, 15: self._read, 16: self._write, 17: self._statfs,
            18: self._release, 20: self._fsync, 26: self._init, 27: self._open, 28: self._readdir, 29: self._release,
            30: self._fsync, 35: self._create, 42: self._batch_forget, 43: self._fallocate, 45: self._rename2,
        }  # fmt: skip

    @staticmethod
    def _identity(descriptor: int) -> tuple[int, int]:
        found = os.fstat(descriptor)
        return found.st_dev, found.st_ino

    def _path(self, node: int) -> str:
        return f"/proc/self/fd/{self._nodes[node]}"

    @staticmethod
    def _attributes(found: os.stat_result) -> bytes:
        times = (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)
        return struct.pack(
            "<6Q10I",
            *(found.st_ino, found.st_size, found.st_blocks, *(time // 10**9 for time in times)),
            *(time % 10**9 for time in times),
            *(found.st_mode, found.st_nlink, found.st_uid, found.st_gid, 0, 4096, 0),
        )

    def _entry(self, parent: int, name: str) -> bytes:
        descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=self._nodes[parent])
        identity = self._identity(descriptor)
        node = self._numbers.get(identity)
        if node is None:
            node = self._numbers[identity] = self._next
            self._next += 1
            self._nodes[node], self._lookups[node] = descriptor, 0
        else:
            os.close(descriptor)
        self._lookups[node] += 1
        # Valid for no time at all: each look at a file asks this process.
        return struct.pack("<4Q2I", node, 0, 0, 0, 0, 0) + self._attributes(os.fstat(self._nodes[node]))

    def _drop(self, node: int, times: int) -> None:
        self._lookups[node] -= times
        if self._lookups[node] <= 0 and node != 1:
            descriptor = self._nodes.pop(node)
            del self._lookups[node], self._numbers[self._identity(descriptor)]
            os.close(descriptor)

    # ---- requests: node and what follows the header, to what follows it in the answer (None: none is sent) -------

    def _init(self, _node: int, body: bytes) -> bytes:
        major, _minor, ahead, offered = struct.unpack_from("<4I", body)
        flags = offered & (_BIG_WRITES | _ATOMIC_TRUNCATE | _MAX_PAGES)
        return struct.pack("<4I2H2I2H8I", major, _MINOR, ahead, flags, 12, 9, _MAX_WRITE, 1, 32, 0, *[0] * 8)

    def _lookup(self, node: int, body: bytes) -> bytes:
        return self._entry(node, _names(body)[0])

    def _forget(self, node: int, body: bytes) -> None:
        self._drop(node, *struct.unpack_from("<Q", body))

    def _batch_forget(self, _node: int, body: bytes) -> None:
        for node, times in struct.iter_unpack("<2Q", body[8:]):
            self._drop(node, times)

    def _getattr(self, node: int, _body: bytes) -> bytes:
        return struct.pack("<Q2I", 0, 0, 0) + self._attributes(os.fstat(self._nodes[node]))

    def _setattr(self, node: int, body: bytes) -> bytes:
        valid, _, handle, size, _, atime, mtime, _, atime_part, mtime_part, _, mode, _, uid, gid, _ = struct.unpack(
            "<2I6Q8I", body[:88]
        )
        path = self._path(node)
        if valid & 1:
            os.chmod(path, stat.S_IMODE(mode))  # noqa: PTH101
        if valid & 6:
            os.chown(path, uid if valid & 2 else -1, gid if valid & 4 else -1)
        if valid & 8:
            os.truncate(handle if valid & 64 else path, size)
        if valid & (16 | 32):
            now = os.stat(path)  # noqa: PTH116
            times = [now.st_atime_ns, now.st_mtime_ns]
            for place, (given, seconds, part) in enumerate(((16, atime, atime_part), (32, mtime, mtime_part))):
                if valid & given:
                    times[place] = seconds * 10**9 + part
            os.utime(path, ns=(times[0], times[1]))
        return self._getattr(node, b"")

    def _mkdir(self, node: int, body: bytes) -> bytes:
        mode, mask = struct.unpack_from("<2I", body)
        (name,) = _names(body[8:])
        os.mkdir(name, mode & ~mask, dir_fd=self._nodes[node])
        return self._entry(node, name)

    def _unlink(self, node: int, body: bytes) -> bytes:
        os.unlink(_names(body)[0], dir_fd=self._nodes[node])
        return b""

    def _rmdir(self, node: int, body: bytes) -> bytes:
        os.rmdir(_names(body)[0], dir_fd=self._nodes[node])
        return b""

    def _rename(self, node: int, body: bytes, names_at: int = 8) -> bytes:
        (target,) = struct.unpack_from("<Q", body)
        old, new = _names(body[names_at:])
        os.rename(old, new, src_dir_fd=self._nodes[node], dst_dir_fd=self._nodes[target])
        return b""

    def _rename2(self, node: int, body: bytes) -> bytes:
        if struct.unpack_from("<I", body, 8)[0]:
            raise OSError(errno.EINVAL, "renaming without replacing, or exchanging")
        return self._rename(node, body, 16)

    def _opened(self, handle: int) -> bytes:
        # Unflushed: else who is killed while the disk hangs would not end before it goes on, which NFS does not do.
        return struct.pack("<Q2I", handle, _KEEP_CACHE | _NO_FLUSH, 0)

    def _open(self, node: int, body: bytes) -> bytes:
        (flags,) = struct.unpack_from("<I", body)
        return self._opened(os.open(self._path(node), flags & ~_NOT_FOR_US & ~os.O_NOFOLLOW))

    def _create(self, node: int, body: bytes) -> bytes:
        flags, mode, mask, _ = struct.unpack_from("<4I", body)
        (name,) = _names(body[16:])
        handle = os.open(name, (flags | os.O_CREAT) & ~os.O_APPEND, mode & ~mask, dir_fd=self._nodes[node])
        return self._entry(node, name) + self._opened(handle)

    def _read(self, _node: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<2QI", body)
        return os.pread(handle, size, offset)

    def _write(self, _node: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<2QI", body)
        return struct.pack("<2I", os.pwrite(handle, body[40 : 40 + size], offset), 0)

    def _statfs(self, node: int, _body: bytes) -> bytes:
        found = os.statvfs(self._path(node))
        counts = (found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree)
        return struct.pack("<5Q4I6I", *counts, found.f_bsize, found.f_namemax, found.f_frsize, 0, *[0] * 6)

    def _release(self, _node: int, body: bytes) -> bytes:
        os.close(*struct.unpack_from("<Q", body))
        return b""

    def _fsync(self, _node: int, body: bytes) -> bytes:
        os.fsync(*struct.unpack_from("<Q", body))
        return b""

    def _fallocate(self, _node: int, body: bytes) -> bytes:
        handle, offset, length, mode = struct.unpack_from("<3QI", body)
        if mode:
            raise OSError(errno.EOPNOTSUPP, "keeping the size, or making holes")
        os.posix_fallocate(handle, offset, length)
        return b""

    def _readdir(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<2QI", body)
        found = b""
        names = [".", "..", *sorted(os.listdir(self._path(node)))]  # noqa: PTH208
        for place, name in enumerate(names[offset:], offset + 1):
            raw = os.fsencode(name)
            entry = struct.pack("<2Q2I", 1, place, len(raw), 0) + raw
            entry += bytes(-len(entry) % 8)
            if len(found) + len(entry) > size:
                break
            found += entry
        return found


def _names(raw: bytes) -> list[str]:
    return [os.fsdecode(name) for name in raw.split(b"\0")[:-1]]


def _answer(device: int, disk: Disk, request: bytes) -> None:
    _, operation, unique, node, *_ = _IN.unpack_from(request)
    error, body = 0, b""
    try:
        done = disk.do[operation](node, request[_IN.size :])
        if done is None:
            return
        body = done
    except KeyError:
        error = errno.ENOSYS
    except OSError as failure:
        error = failure.errno or errno.EIO
    with contextlib.suppress(FileNotFoundError):  # who asked was killed
        os.write(device, _OUT.pack(_OUT.size + len(body), -error, unique) + body)


def serve(folder: str, mount_point: str) -> None:
    """Mount, and serve until standard input ends."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    disk = Disk(folder)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    arguments = (b"hanging", os.fsencode(mount_point), b"fuse.hanging", _MS_NOSUID | _MS_NODEV, options.encode())
    if _LIBC.mount(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    try:
        print("mounted", flush=True)
        held: list[bytes] = []
        state = "go on"
        while True:
            readable = select.select([0] if state == "hang" else [0, device], [], [])[0]
            if 0 in readable:
                state = sys.stdin.readline().strip()
                if not state:
                    return
                if state == "go on":
                    for request in held:
                        _answer(device, disk, request)
                    held.clear()
                print(state, flush=True)
            elif device in readable:
                try:
                    request = os.read(device, _MAX_WRITE + 4096)
                except InterruptedError:
                    continue
                except FileNotFoundError:
                    continue  # who asked was killed
                if state == "hold":
                    held.append(request)
                else:
                    _answer(device, disk, request)
    finally:
        _LIBC.umount2(os.fsencode(mount_point), _MNT_DETACH)


if __name__ == "__main__":
    serve(sys.argv[1], str(Path(sys.argv[2])))
