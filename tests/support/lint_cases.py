"""The files of tests/lint/cases with what lint is to find in them, and what bash and systemd really make of a file."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvexporter.lint.context import FileText
from kvexporter.lint.findings import Finding
from kvexporter.lint.linter import Linter
from tests.support.paths import ROOT
from tests.support.real_systemd import RealSystemd

CASES = ROOT / "tests" / "lint" / "cases"
# What bash, env and systemd set by themselves.
OWN = frozenset(
    ("PWD", "OLDPWD", "SHLVL", "_", "PATH", "LANG", "LC_ALL", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID")
)


@dataclass(frozen=True)
class Case:
    """One environment file. `bash` and `systemd` are `code:line` of the findings by these rules."""

    path: Path
    bash: tuple[str, ...]
    systemd: tuple[str, ...]
    unknown: frozenset[str]
    """Variables that only running the file could tell."""

    @property
    def text(self) -> str:
        return self.path.read_bytes().decode("utf-8", "surrogateescape")


def environment_cases() -> list[Case]:
    """All environment files, by name."""
    return [_case(path) for path in sorted(CASES.glob("*.env"))]


def _case(path: Path) -> Case:
    said: dict[str, tuple[str, ...]] = {}
    for line in path.with_suffix(".expected").read_text().splitlines():
        subject, _, words = line.partition(":")
        said[subject] = tuple(sorted(words.split()))
    return Case(path, said["bash"], said["systemd"], frozenset(said.get("unknown", ())))


def places(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Findings as `code:line`."""
    return tuple(sorted(f"{found.code}:{found.line}" for found in findings))


def no_files(path: str) -> FileText:
    """No file that is named exists."""
    return FileText(None, "No such file or directory", missing=True)


def new_linter(build: int | None = None) -> Linter:
    return Linter(no_files, build)


@dataclass(frozen=True)
class Outcome:
    """What a real program made of a file: the variables that it set, its exit status, and what it complained of."""

    variables: dict[bytes, bytes]
    status: int
    complaints: str


def bash_reads(path: Path, folder: Path) -> Outcome:
    """Have a real bash read the file with `.`, every variable exported."""
    script = 'set -a; . "$1"; status=$?; set +a; export -n status; env -0 >"$2"; exit $status'
    seen = folder / "environment"
    done = subprocess.run(
        ["/bin/bash", "-c", script, "bash", path, seen],
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return Outcome(_variables(seen.read_bytes()), done.returncode, done.stderr.decode("utf-8", "replace"))


def systemd_reads(paths: Sequence[Path]) -> dict[str, Outcome]:
    """Have a real systemd start a unit with each of the files in EnvironmentFile=; by the files' names."""
    units = {
        f"case-{path.stem}.service": f"[Service]\nType=oneshot\nEnvironmentFile=/mnt/test/files/{path.name}\n"
        f"StandardOutput=truncate:/mnt/test/out/{path.name}\nExecStart=/usr/bin/env -0\n"
        for path in paths
    }
    system = RealSystemd(units)
    for name in ("files", "out"):
        (system.directory / name).mkdir()
    for path in paths:
        (system.directory / "files" / path.name).write_bytes(path.read_bytes())
    outcomes: dict[str, Outcome] = {}
    with system:
        for path in paths:
            unit = f"case-{path.stem}.service"
            started = system.run("systemctl", "start", unit, check=False)
            output = system.directory / "out" / path.name
            variables = _variables(output.read_bytes()) if output.exists() else {}
            outcomes[path.name] = Outcome(variables, started.returncode, "")
        system.run("journalctl", "--sync")
        for path in paths:
            unit = f"case-{path.stem}.service"
            log = system.run("journalctl", "-u", unit, "-o", "cat", "--no-pager").stdout
            before = outcomes[path.name]
            outcomes[path.name] = Outcome(before.variables, before.status, log)
    return outcomes


def _variables(block: bytes) -> dict[bytes, bytes]:
    pairs = (entry.partition(b"=") for entry in block.split(b"\0") if entry)
    return {name: value for name, _, value in pairs if _counts(name)}


def _counts(name: bytes) -> bool:
    return name.decode("ascii", "replace") not in OWN and not name.startswith(b"BASH_FUNC_")


def as_bytes(variables: dict[str, str]) -> dict[bytes, bytes]:
    """Variables as the system passes them."""
    return {name.encode(): value.encode("utf-8", "surrogateescape") for name, value in variables.items()}


FAKE_SERVER = """#!/bin/bash
for argument in "$@"; do printf '%s\\0' "$argument"; done{}
"""


def write_fake_server(folder: Path, log: Path | None = None) -> None:
    """Put a program in llama-server's place that prints its arguments, each ended by NUL, or writes them to a file."""
    path = folder / "llama-server"
    path.write_text(FAKE_SERVER.format(f" >{log}" if log is not None else ""))
    path.chmod(0o755)
