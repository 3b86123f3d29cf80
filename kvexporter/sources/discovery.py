"""Finds the llama-server processes of this host, with their options, units and ports."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from kvexporter.facts import FoundProcess
from kvexporter.sources.cgroup_path import placement
from kvexporter.sources.listening_ports import listening_ports
from kvexporter.sources.proc_stat import read_proc_stat, start_time

COMM = "llama-server"
_PROGRAM = re.compile(r"llama-server(?:[-._].*)?")
_SCRIPT = re.compile(r".*\.(?:sh|bash|py|pl|rb|js|lua)")
_INTERPRETER = re.compile(r"(?:ba|da|z|k|fi|a)?sh|busybox|env|python[\d.]*|perl|ruby|node|lua[\d.]*")

_MODEL_OPTIONS = frozenset({"-m", "--model"})
_SERVER_OPTIONS = frozenset({"--port", "--host", "--slots", "--metrics", "-np", "--parallel"})
MOST_LOOKALIKES = 10

MAX_BYTES = 1 << 18
"""Read of a command line or an environment; the kernel allows more, llama-server's are far below."""
_LOOKS = 2
MAX_PROCESSES = 500
"""Looked at; many more than are watched. Anybody can start processes of that name."""
SECRET_OPTIONS = frozenset({"--api-key", "--hf-token", "-hft"})
_MANY_NEW = 64
"""Numbers given to new processes and threads between two looks, above which each is not looked at by itself."""
HIDDEN = "1"
"""What stands for a secret value: that there is one is all that matters."""


class Discovery:
    """Looks for llama-servers again and again, and does not look again at all the host's processes each time."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._looks: dict[int, int] = {}
        """Process that was no llama-server → how often it was looked at."""
        self._servers: dict[int, FoundProcess] = {}
        """As they were read last."""
        self._newest: tuple[int | None, int | None] = (None, None)
        """The kernel's last number for a new process or thread at the last look, and at the one before it."""

    def news(self) -> bool:
        """Whether there may be something to find since the last look, in some reads that cannot hang.

        True when a process was started, when one may still become a llama-server or is still to tell its ports, and
        when that cannot be seen. A process that has ended is no news; nor is one that becomes a llama-server (exec)
        long after its start.
        """
        newest = _newest(self._proc)
        (last, before), self._newest = self._newest, (newest, self._newest[0])
        if newest is None or last is None or before is None or not before <= last <= newest <= before + _MANY_NEW:
            return True
        if any(looked < _LOOKS for looked in self._looks.values()):
            return True
        if any(not server.listen_ports and server.environment_readable for server in self._servers.values()):
            return True
        # From the look before on: a number is given out a moment before its process can be seen.
        new = range(before + 1, newest + 1)
        return any(n not in self._looks and n not in self._servers and _is_process(self._proc, n) for n in new)

    def find(self, *, thorough: bool = True) -> list[FoundProcess]:
        """As `discover`; if it need not be `thorough`, what was looked at before is taken to be as it was.

        A process that was no llama-server may yet become one (exec), and what is new is a shell that is about to, most
        likely: that is looked at twice at least.
        """
        newest = _newest(self._proc)
        if newest != self._newest[0]:
            self._newest = (newest, self._newest[0])
        present = _pids(self._proc)
        looks, self._looks = self._looks, {}
        servers, self._servers = {} if thorough else self._servers, {}
        for pid in present:
            looked = looks.get(pid, 0)
            if (looked >= _LOOKS and not thorough) or len(self._servers) >= MAX_PROCESSES:
                self._looks[pid] = looked
                continue
            process = self._same(servers.get(pid)) or _look_at(self._proc, pid)
            if process is not None:
                self._servers[pid] = process
            else:
                self._looks[pid] = looked + 1
        return sorted(self._servers.values(), key=lambda process: (process.start_time, process.pid))

    def _same(self, process: FoundProcess | None) -> FoundProcess | None:
        """The process, if it is still that one and nothing of it is awaited."""
        if process is None or not process.listen_ports:
            return None
        stat = read_proc_stat(Path(self._proc) / str(process.pid))
        if stat is None or stat.dead or start_time(self._proc, stat.start_ticks) != process.start_time:
            return None
        return process


def discover(proc: str = "/proc") -> list[FoundProcess]:
    """List all llama-server processes, sorted by start. One that vanishes meanwhile is left out.

    A process is one when its name or its program's is llama-server (also llama-server-cuda and the like). Shell scripts
    of that name are not: the server they start is found itself. Values of keys and tokens are not kept. OSError when
    `proc` itself cannot be listed.
    """
    return Discovery(proc).find()


def describe(pid: int, proc: str = "/proc") -> FoundProcess | None:
    """The process that is known to write a server's log, whatever its name; None when it is gone or a mere wrapper.

    Shells and other interpreters only hand on the output of the server that they have started.
    """
    folder = Path(proc) / str(pid)
    arguments = _strings(_read(folder / "cmdline"))
    if not arguments or _INTERPRETER.fullmatch(_executable(folder)) or _INTERPRETER.fullmatch(Path(arguments[0]).name):
        return None
    return _read_process(proc, pid, arguments)


def lookalikes(proc: str = "/proc", known: Collection[int] = ()) -> list[tuple[int, str]]:
    """Processes (number, program) that serve a GGUF model by their command line, and have another name.

    They may be a renamed llama-server. Those in `known` are left out.
    """
    found = []
    for pid in _pids(proc):
        arguments = _strings(_read(f"{proc}/{pid}/cmdline")) if pid not in known else ()
        if len(arguments) < 3 or _INTERPRETER.fullmatch(Path(arguments[0]).name):
            continue
        options = {argument.partition("=")[0] for argument in arguments[1:]}
        model = any(argument.endswith(".gguf") for argument in arguments[1:]) and options & _MODEL_OPTIONS
        if model and options & _SERVER_OPTIONS and _look_at(proc, pid) is None:
            found.append((pid, Path(arguments[0]).name))
    return found[:MOST_LOOKALIKES]


def hidden_processes(proc: str = "/proc") -> str | None:
    """Why other users' processes cannot be seen here, with what to do; None when they can."""
    try:
        mounts = (Path(proc) / "self" / "mounts").read_text("utf-8", "replace")
    except OSError:
        return None
    for line in mounts.splitlines():
        words = line.split()
        if len(words) > 3 and words[1] == "/proc" and words[2] == "proc":
            hidepid = re.search(r"(?:^|,)hidepid=(?!0|off)(\w+)", words[3])
            if hidepid is not None and not (Path(proc) / "1" / "stat").exists():
                return (
                    f"/proc is mounted with hidepid={hidepid[1]}, so other users' processes are not seen: run the "
                    "exporter in the group that the mount's gid= names, or without ProtectProc= in its unit"
                )
    return None


def _pids(proc: str) -> list[int]:
    with os.scandir(proc) as entries:  # lists processes only, not their threads
        return [int(entry.name) for entry in entries if entry.name.isascii() and entry.name.isdigit()]


def _newest(proc: str) -> int | None:
    """The last number that the kernel gave to a process or thread here; None where that cannot be told."""
    try:
        if os.readlink(f"{proc}/self") != str(os.getpid()):  # noqa: PTH115 - a path object costs more than the call
            return None  # it shows the processes of another namespace, and the number is of ours
        return int(_read(f"{proc}/loadavg", 256).split()[-1])
    except (OSError, ValueError, IndexError):
        return None


def _is_process(proc: str, number: int) -> bool:
    """Whether the number is that of a process that is there, and not of one of its threads."""
    found = re.search(rb"^Tgid:\s*(\d+)$", _read(f"{proc}/{number}/status", 4096), re.MULTILINE)
    return found is not None and int(found[1]) == number


def _look_at(proc: str, pid: int) -> FoundProcess | None:
    comm = _read(f"{proc}/{pid}/comm", 64).rstrip(b"\n").decode("utf-8", "replace")
    if comm != COMM:
        # The name of most processes is enough to leave them: the command line is read where it may still be one.
        first = _read(f"{proc}/{pid}/cmdline", 4096).split(b"\0", 1)[0].decode("utf-8", "replace")
        if COMM not in first:
            return None
    folder = Path(proc) / str(pid)
    arguments = _strings(_read(folder / "cmdline"))
    return _read_process(proc, pid, arguments) if _is_server(comm, arguments, folder) else None


def _read_process(proc: str, pid: int, arguments: tuple[str, ...]) -> FoundProcess | None:
    folder = Path(proc) / str(pid)
    stat = read_proc_stat(folder)
    if stat is None or stat.dead:
        return None
    environment = _read(folder / "environ")
    variables = _strings(environment)
    where = placement(_read(folder / "cgroup").decode("utf-8", "replace"))
    after = read_proc_stat(folder)
    if after is None or after.dead or after.start_ticks != stat.start_ticks:
        return None  # what was read may be of two processes
    return FoundProcess(
        pid=pid,
        start_time=start_time(proc, stat.start_ticks),
        arguments=_without_secrets(arguments),
        environment=_options(variables),
        environment_readable=bool(environment),
        cuda_visible_devices=_value(variables, "CUDA_VISIBLE_DEVICES"),
        cuda_device_order=_value(variables, "CUDA_DEVICE_ORDER"),
        unit=where.unit,
        user_unit=where.user is not None,
        container=where.container,
        parent=stat.parent,
        listen_ports=listening_ports(folder),
    )


def _is_server(comm: str, arguments: tuple[str, ...], folder: Path) -> bool:
    program = Path(arguments[0]).name if arguments else comm
    executable = _executable(folder)
    if _INTERPRETER.fullmatch(executable) or _INTERPRETER.fullmatch(program):
        return False
    if comm == COMM:
        return True
    return any(_PROGRAM.fullmatch(name) and not _SCRIPT.fullmatch(name) for name in (program, executable))


def _executable(folder: Path) -> str:
    """Name of the program that runs; empty for another user's process."""
    try:
        return (folder / "exe").readlink().name.removesuffix(" (deleted)")
    except OSError:
        return ""


def _without_secrets(arguments: tuple[str, ...]) -> tuple[str, ...]:
    kept = []
    hide = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if hide:
            kept.append(HIDDEN)
        elif name in SECRET_OPTIONS and equals:
            kept.append(f"{name}={HIDDEN}")
        else:
            kept.append(argument)
        hide = not hide and argument in SECRET_OPTIONS
    return tuple(kept)


def _options(variables: tuple[str, ...]) -> dict[str, str]:
    kept = {}
    for variable in variables:
        name, equals, value = variable.partition("=")
        if not equals:
            continue
        if name == "LLAMA_API_KEY":
            kept[name] = HIDDEN
        elif name.startswith("LLAMA_ARG_"):
            kept[name] = HIDDEN if name.endswith(("_KEY", "_TOKEN")) else value
    return kept


def _value(variables: tuple[str, ...], name: str) -> str | None:
    """A variable's value; of several, the first one, as getenv() finds it."""
    start = name + "="
    return next((variable.removeprefix(start) for variable in variables if variable.startswith(start)), None)


def _strings(data: bytes) -> tuple[str, ...]:
    parts = data.split(b"\0")
    if parts and not parts[-1]:
        parts.pop()
    return tuple(part.decode("utf-8", "replace") for part in parts)


def _read(path: Path | str, limit: int = MAX_BYTES) -> bytes:
    """The file's bytes; none when it is gone or may not be read.

    Without Python's own file objects: this is done for every process of the host, again and again.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    parts = []
    try:
        while limit > 0 and (part := os.read(descriptor, limit)):
            parts.append(part)
            limit -= len(part)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return b"".join(parts)
