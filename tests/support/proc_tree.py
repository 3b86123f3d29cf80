"""A /proc of a test's own, with just the files that are read."""

from __future__ import annotations

import os
from pathlib import Path

BOOT = 1_796_000_000
TICKS = os.sysconf("SC_CLK_TCK")


class ProcTree:
    """Processes are added one by one; `path` is given to the reader in place of /proc."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.path = str(folder)
        (folder / "stat").write_text(f"cpu  1 2 3 4\nbtime {BOOT}\nprocesses 9\n")
        for name in ("self", "sys", "1a"):
            (folder / name).mkdir(exist_ok=True)

    def add(
        self,
        pid: int,
        *arguments: str,
        comm: str = "llama-server",
        state: str = "S",
        parent: int = 1,
        started: float = 100.0,
        environment: tuple[str, ...] | None = (),
        cgroup: str = "0::/system.slice/llama-server.service\n",
        executable: str | None = "/usr/bin/llama-server",
        utime: int = 0,
        stime: int = 0,
        major_faults: int = 0,
        resident_pages: int = 0,
        status: str | None = None,
    ) -> Path:
        """Add a process; `environment` or `executable` None: may not be read."""
        folder = self.folder / str(pid)
        folder.mkdir()
        (folder / "comm").write_text(comm + "\n")
        (folder / "cmdline").write_bytes(b"".join(a.encode() + b"\0" for a in arguments))
        fields = ["0"] * 50
        fields[0], fields[1], fields[9] = state, str(parent), str(major_faults)
        fields[11], fields[12] = str(utime), str(stime)
        fields[19], fields[21] = str(round(started * TICKS)), str(resident_pages)
        (folder / "stat").write_text(f"{pid} ({comm}) {' '.join(fields)}\n")
        if environment is not None:
            (folder / "environ").write_bytes(b"".join(v.encode() + b"\0" for v in environment))
        (folder / "cgroup").write_text(cgroup)
        if executable is not None:
            (folder / "exe").symlink_to(executable)
        if status is not None:
            (folder / "status").write_text(status)
        return folder

    def listen(self, pid: int, *sockets: tuple[str, int, str, str]) -> None:
        """Give a process TCP sockets: (table, port, state, inode)."""
        folder = self.folder / str(pid)
        (folder / "fd").mkdir()
        (folder / "net").mkdir()
        (folder / "fd" / "0").symlink_to("/dev/null")
        for number, (_, _, _, inode) in enumerate(sockets, 3):
            (folder / "fd" / str(number)).symlink_to(f"socket:[{inode}]")
        for table in ("tcp", "tcp6"):
            address = "0100007F" if table == "tcp" else "0" * 32
            lines = ["  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"]
            lines += [
                f"   {n}: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000"
                f"     0        0 {inode} 1 0000000000000000 100 0 0 10 0"
                for n, (where, port, state, inode) in enumerate(sockets)
                if where == table
            ]
            # Somebody else's listening socket in the same network namespace.
            lines.append(
                f"   9: {address}:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 999999 1"
            )
            (folder / "net" / table).write_text("\n".join(lines) + "\n")
