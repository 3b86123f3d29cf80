"""What `kvexporter check` says of one server's memory: how its cache is computed, and its last two starts. Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from kvexporter.kv_bytes import cache_types
from kvexporter.llama.model_shape import ModelShape
from kvexporter.reports.findings import Finding
from kvexporter.starts import StartRecord
from kvexporter.targets import Target

_NAME_WIDTH = 22
_WIDTH = 21
_NOT_GIVEN = "(not given)"


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """What was found out about one server's memory."""

    shape: ModelShape | None = None
    problem: str | None = None
    """Why the model's file tells nothing."""
    starts: Sequence[StartRecord] = ()
    """Oldest first."""


def memory_findings(target: Target, facts: MemoryFacts) -> list[Finding]:
    """Say what one token takes and what the last change to the server cost."""
    return [*_header(target, facts), *_starts(target.name, facts.starts)]


def _header(target: Target, facts: MemoryFacts) -> list[Finding]:
    remedy = "not needed where the server's log has size lines (--verbosity 4)"
    if facts.problem is not None:
        return [Finding("warning", target.name, f"its KV cache cannot be computed: {facts.problem}", remedy)]
    if facts.shape is None:
        return []
    types = cache_types(target.options)
    if types is None:
        text = "its KV cache cannot be computed: an environment that cannot be read may give other cache types"
        return [Finding("warning", target.name, text, "give -ctk and -ctv on its command line")]
    each = facts.shape.bytes_per_token(*types)
    if each is None:
        text = f"its KV cache cannot be computed: a cache type of {' and '.join(types)} is not known"
        return [Finding("warning", target.name, text, remedy)]
    windowed = f"; {facts.shape.windowed_layers} more keep a sliding window only" if facts.shape.windowed_layers else ""
    text = (
        f"by its model's file one token takes {float(each) / 1024:.2f} KiB in {facts.shape.layers} layers of "
        f"{'/'.join(dict.fromkeys(types))}{windowed}"
    )
    return [Finding("ok", target.name, text)]


def _starts(server: str, starts: Sequence[StartRecord]) -> list[Finding]:
    if not starts:
        return []
    if len(starts) == 1:
        only = starts[0]
        took = f"{_bytes(only.resident)} resident, of which {_bytes(only.anon)} anonymous"
        text = f"at its start of {_when(only.started)} it took {took}"
        return [Finding("ok", server, text)]
    before, after = starts[-2:]
    rows = [
        _row("its last two starts", _when(before.started), _when(after.started), "difference"),
        *(
            _row(name, _bytes(was), _bytes(now), _difference(was, now))
            for name, was, now in (
                ("resident", before.resident, after.resident),
                ("anonymous", before.anon, after.anon),
                ("on GPUs", before.gpu, after.gpu),
                ("KV cache", before.kv_cache, after.kv_cache),
            )
            if was is not None or now is not None
        ),
        _row("pool, tokens", _count(before.capacity), _count(after.capacity), _more(before.capacity, after.capacity)),
    ]
    rows += [
        f"{name}: {before.options.get(name, _NOT_GIVEN)} → {after.options.get(name, _NOT_GIVEN)}"
        for name in sorted({*before.options, *after.options})
        if before.options.get(name) != after.options.get(name)
    ]
    if before.build != after.build:
        rows.append(f"build: {before.build or 'unknown'} → {after.build or 'unknown'}")
    findings = [Finding("ok", server, row) for row in rows]
    late = [_when(start.started) for start in (before, after) if start.late]
    if late:
        text = f"kvexporter first saw the start of {' and of '.join(late)} later: what its use took is in the numbers"
        findings.append(Finding("warning", server, text))
    return findings


def _row(name: str, before: str, after: str, difference: str) -> str:
    return f"{name:<{_NAME_WIDTH}}{before:>{_WIDTH}}{after:>{_WIDTH}}{difference:>{_WIDTH}}"


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _bytes(size: int | None) -> str:
    if size is None:
        return "unknown"
    return f"{size / 2**30:.2f} GiB" if abs(size) >= 2**30 else f"{size / 2**20:.2f} MiB"


def _difference(before: int | None, after: int | None) -> str:
    if before is None or after is None:
        return "unknown"
    return f"{'+' if after >= before else ''}{_bytes(after - before)}"


def _count(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def _more(before: int | None, after: int | None) -> str:
    return "unknown" if before is None or after is None else f"{after - before:+,}"
