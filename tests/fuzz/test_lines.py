"""Damaged real log lines: nothing raises, no number is beyond belief."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvexporter.llama.log import CONTEXT_ERROR, parse_line
from tests.fuzz.budget import fuzz_settings
from tests.fuzz.invariants import MOST_TOKENS, parts
from tests.fuzz.mutations import mutated_lines


@fuzz_settings(6)
@given(mutated_lines() | mutated_lines(12) | st.binary(max_size=300))
def test_a_damaged_line_is_read_or_ignored(line: bytes) -> None:
    parsed = parse_line(line)
    assert (CONTEXT_ERROR in line) == (parsed is not None and parsed.mentions_context_error)
    if parsed is None:
        return
    assert parsed.child_port is None or 0 <= parsed.child_port <= 99999
    if parsed.event is not None:
        for value in parts(parsed.event):
            if isinstance(value, str):
                assert len(value) <= 200
            elif isinstance(value, int):
                assert abs(value) <= 2**50  # bytes; all others are far below
            elif isinstance(value, float):
                assert abs(value) <= MOST_TOKENS, parts


@fuzz_settings(1)
@given(mutated_lines(), st.integers(0, 9000), st.sampled_from((b" ", b"a", b"\0", b"\x1b[", b"[", b"a=b ", b"1", b'"')))
def test_long_lines_cost_no_more_than_their_length(line: bytes, copies: int, filler: bytes) -> None:
    for whole in (line + filler * copies, filler * copies + line):
        parse_line(whole)
