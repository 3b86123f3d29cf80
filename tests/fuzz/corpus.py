"""What real servers said, as the material that is mutated: log lines, answers and files of the recordings."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from kvexporter.llama.log import parse_line
from kvexporter.sources.recording import read_polls
from tests.support.paths import RECORDINGS


@cache
def folders() -> tuple[Path, ...]:
    """The folders of all recordings but the longest ones, whose lines say nothing that the others do not."""
    found = sorted(path.parent for path in RECORDINGS.rglob("server.log"))
    return tuple(folder for folder in found if folder.name != "replay-b11434-full")


@cache
def log(folder: Path) -> tuple[bytes, ...]:
    """The lines of one recording, at most the first 3000."""
    return tuple((folder / "server.log").read_bytes().splitlines()[:3000])


@cache
def lines() -> tuple[bytes, ...]:
    """One line of every shape there is: those that say something first, and twice, for they are worth more."""
    shapes: dict[bytes, bytes] = {}
    for folder in folders():
        for line in log(folder):
            shapes.setdefault(re.sub(rb"\d+", b"0", line), line)
    speaking = [line for line in shapes.values() if parse_line(line) is not None]
    return (*speaking, *OTHER_FORMS, *speaking, *OTHER_FORMS, *(set(shapes.values()) - set(speaking)))


OTHER_FORMS = (
    b'{"type":"log","level":"warn","text":"srv  try_clear_id: purging slot 2 with 9120 tokens\\n"}',
    b'{"tid":"140","timestamp":1710000000,"level":"INFO","msg":"slot context shift","id_slot":0,"n_discard":1023}',
    b'{"level":"INFO","timestamp":1,"msg":"slot released","id_slot":1,"id_task":7,"n_past":219,"truncated":false}',
    b'{"level":"ERR","timestamp":1,"msg":"failed to decode the batch","i":0,"n_batch":1,"ret":1}',
    b'INFO [            update_slots] kv cache rm [p0, end) | tid="140" timestamp=1710000000 id_slot=0 id_task=7 p0=24',
    b"main: server is listening on http://127.0.0.1:18462 - starting the main loop",
    b"srv  log_server_r: request: POST /v1/chat/completions 127.0.0.1 500",
    b"[37723] srv    send_error: task id = 8, error: Context size has been exceeded.",
    b"[37724] slot      release: id  1 | task 2 | stop processing: n_tokens = 219, truncated = 0",
    b"srv    send_error: task id = 8, error: request (33056 tokens) exceeds the available context size (32768 tokens)",
    b"srv  update_slots: failed to find free space in the KV cache, retrying with smaller batch size, n_batch = 8",
    b"srv  update_slots: Context size has been exceeded. off = 2, n_batch = 1, ret = 1",
    b"May 22 01:30:52 host prog[37450]: \x1b[34msrv  update_slots: all slots are idle\x1b[0m",
)


@cache
def bodies(endpoint: str) -> tuple[bytes, ...]:
    """Different answers of one endpoint (slots, metrics, props, models), errors among them."""
    found: dict[bytes, bytes] = {}
    for folder in folders():
        answers = list(read_polls(folder / "polls.jsonl"))[:40] if (folder / "polls.jsonl").exists() else []
        told = [answer.body for answer in answers if answer.endpoint == endpoint]
        if (folder / "endpoints.json").exists():
            told += _at_the_end(folder, endpoint)
        for body in told:
            found.setdefault(re.sub(rb"\d+", b"0", body), body)
    kept = sorted(found.values(), key=len)
    return tuple(kept[:: max(1, len(kept) // 40)])


def _at_the_end(folder: Path, endpoint: str) -> list[bytes]:
    """What the endpoint answered when everything was over."""
    recorded = json.loads((folder / "endpoints.json").read_bytes())
    bodies = [recorded[path]["body"] for path in (f"/{endpoint}", f"/v1/{endpoint}") if path in recorded]
    return [body.encode() if isinstance(body, str) else json.dumps(body).encode() for body in bodies]


@cache
def commands() -> tuple[tuple[str, ...], ...]:
    """The command lines of the recorded servers."""
    found = set()
    for folder in folders():
        recorded = json.loads((folder / "requests.json").read_bytes())
        found.add(tuple(str(argument) for argument in recorded.get("args", [])))
    return tuple(sorted(found))
