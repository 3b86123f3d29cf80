"""Logs of real servers: the events must add up to what is known of each recording, and nothing may drift by unread."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kvexporter.llama.events import (
    ContextExceeded,
    ContextShifted,
    Event,
    LogLine,
    PoolInitialized,
    Released,
    RequestFailed,
    SlotPurged,
)
from kvexporter.llama.log import parse_line

RECORDINGS = Path(__file__).parents[1] / "recordings"
EXPECTED: dict[str, Any] = json.loads((RECORDINGS / "expected.json").read_text())
NAMES = sorted(EXPECTED)


def lines(name: str) -> list[bytes]:
    return (RECORDINGS / name / "server.log").read_bytes().split(b"\n")


def said(name: str) -> list[LogLine]:
    return [parsed for line in lines(name) if (parsed := parse_line(line)) is not None]


def events(name: str) -> list[Event]:
    return [parsed.event for parsed in said(name) if parsed.event is not None]


@pytest.mark.parametrize("name", NAMES)
def test_the_events_add_up_to_what_is_known_of_the_recording(name: str) -> None:
    expected = EXPECTED[name]
    kinds = Counter(type(event) for event in events(name))
    releases = [event for event in events(name) if isinstance(event, Released)]
    assert kinds[Released] == expected["releases"]
    assert sum(event.truncated for event in releases) == expected["answers_truncated"]
    assert max((event.tokens for event in releases), default=0) == expected["largest_request_tokens"]
    assert kinds[ContextExceeded] == expected["incidents"]["pool"]
    assert kinds[SlotPurged] == expected["purges"]
    assert kinds[ContextShifted] == expected["context_shifts"]
    failed = [event for event in events(name) if isinstance(event, RequestFailed)]
    assert sum(event.kind == "slot" for event in failed) == expected["requests_failed"]["slot"]
    assert not [event for event in failed if event.kind == "other"]


@pytest.mark.parametrize("name", NAMES)
def test_the_mentions_are_as_many_as_grep_counts(name: str) -> None:
    assert sum(parsed.mentions_context_error for parsed in said(name)) == EXPECTED[name]["log_lines"]


@pytest.mark.parametrize("name", [name for name in NAMES if "11434" in name])
def test_the_one_geometry_line_of_newer_builds_is_read(name: str) -> None:
    geometry = EXPECTED[name]["geometry"]
    initialized = [event for event in events(name) if isinstance(event, PoolInitialized)]
    assert initialized
    assert set(initialized) == {
        PoolInitialized(geometry["slots"], geometry["slot_context_tokens"], geometry["pool_shared"])
    }


# Lines of llama-server's own tags that say nothing. A line of another shape in a new recording must be looked at:
# either a rule for it is missing, or it belongs here.
IGNORED = re.compile(
    rb"""
    \s*(?:
      # choosing and preparing a slot
      selected\ slot\ by\ LRU | -\ skipping,\  | sampler\ (?:chain|params): | init\ sampler, | saving\ idle\ slot
    | speculative\ decoding\ context\ not\ initialized | graphs\ reused\ = | input\ truncated,
      # the prompt cache in host memory
    | prompt\ cache\ (?:is\ enabled|update\ took) | use\ `--cache-ram | for\ more\ info\ see | updating\ prompt\ cache
    | -\ (?:saving\ prompt|looking\ for|cache\ state|prompt\ 0x) | idle\ slots\ will\ be\ saved | context\ checkpoints
      # start-up
    | (?:init:\ )?chat\ template | Enable\ thinking | using\ \d+\ threads | local\ path | security:\ no\ API\ key
    | preserve_reasoning | binding\ port | starting\ the\ main\ loop | llama\ threadpool | device_info | system_info
    | -\ CPU | fitting\ params | \(for\ bugs | added\ .*\ logit\ bias | warming\ up | no\ implementations
      # the library's settings
    | constructing | (?:n_ctx_(?:per_)?seq|n_seq_max|n_batch|n_ubatch|n_rs_seq|n_outputs\w*|causal_attn|flash_attn
      |freq_base|freq_scale|attn_rot_[kv]|n_rot_[kv])\s | graph\ (?:nodes|splits) | Flash\ Attention\ was
    | \w+\ +(?:output|compute|KV)\ buffer
      # other
    | unauthorized:\ Invalid\ API\ Key | no\ tokens\ to\ decode | conv_id=
    )
    """,
    re.VERBOSE,
)
TAGGED = re.compile(
    rb"(?:[\d.]+ [IWED] )?(?:slot +\S+ id +\d+ \| task -?\d+ \|"
    rb"|(?:srv|que|res|cmn|spec) +[^:]+:|(?:main|decode|llama_kv_cache\w*|llama_context):)"
)


@pytest.mark.parametrize("name", NAMES)
def test_every_line_with_a_known_tag_is_read_or_known_to_say_nothing(name: str) -> None:
    unknown = [
        line
        for line in lines(name)
        if (tag := TAGGED.match(line)) and parse_line(line) is None and not IGNORED.match(line, tag.end())
    ]
    assert unknown == []


@pytest.mark.parametrize("name", NAMES)
def test_a_prefix_of_journalctl_or_a_router_changes_no_event(name: str) -> None:
    for line in lines(name):
        parsed = parse_line(line)
        expected = None if parsed is None else parsed.event
        for prefix in (b"May 22 01:30:52 host prog[37450]: ", b"[37723] "):
            again = parse_line(prefix + line)
            assert (None if again is None else again.event) == expected
