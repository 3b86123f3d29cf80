"""Strategies that damage real material: lines, JSON bodies, text and binary files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from tests.fuzz import corpus

NUMBERS = (
    b"0", b"1", b"-1", b"255", b"65535", b"65536", b"2147483648", b"1099511627776", b"1099511627777",
    b"999999999999999", b"18446744073709551616", b"9" * 30, b"1e308", b"nan", b"-nan", b"inf", b"0.5", b"00007",
    "٣٤".encode(), b"\xef\xbc\x94", b"\xb2", b"",
)  # fmt: skip

TOKENS = (
    b"\0", b"\x1b[31m", b"\x1b[0m", b"\x1b]0;title\x07", b"\x1b", b"\r", b"\r\n", b"\n", b"\t", b" ", b"  ", b"|", b":",
    b"=", b", ", b"[", b"]", b"{", b"}", b'"', b"\\", b"'", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80",
    "é模\u2028\u202e".encode(),
    b"Context size has been exceeded", b"slot ", b"srv  x: ", b"id  3 | task 6 | ", b"[8080] ", b"0.00.382.861 I ",
    b"2026-05-22T01:30:52Z ", b"llama-cpp  | ", b"stop processing: n_tokens = 5", b"a" * 300,
)  # fmt: skip

_DIGITS = re.compile(rb"\d+")


def _span(draw: st.DrawFn, size: int) -> tuple[int, int]:
    start = draw(st.integers(0, size))
    return start, min(size, start + draw(st.integers(0, 40)))


def _cut(draw: st.DrawFn, data: bytes) -> bytes:
    start, end = _span(draw, len(data))
    return data[:start] + data[end:]


def _truncate(draw: st.DrawFn, data: bytes) -> bytes:
    return data[: draw(st.integers(0, len(data)))]


def _double(draw: st.DrawFn, data: bytes) -> bytes:
    start, end = _span(draw, len(data))
    return data[:end] + data[start:end] * draw(st.integers(1, 4)) + data[end:]


def _insert(draw: st.DrawFn, data: bytes) -> bytes:
    start = draw(st.integers(0, len(data)))
    return data[:start] + draw(st.sampled_from(TOKENS)) + data[start:]


def _overwrite(draw: st.DrawFn, data: bytes) -> bytes:
    start, end = _span(draw, len(data))
    return data[:start] + draw(st.binary(max_size=12)) + data[end:]


def _renumber(draw: st.DrawFn, data: bytes) -> bytes:
    """Put another number in the place of one: most often a plausible one."""
    found = list(_DIGITS.finditer(data))
    if not found:
        return data
    place = found[draw(st.integers(0, len(found) - 1))]
    other = draw(st.one_of(st.integers(0, 9), st.integers(0, 5000)).map(b"%d".__mod__) | st.sampled_from(NUMBERS))
    return data[: place.start()] + other + data[place.end() :]


def _splice(draw: st.DrawFn, data: bytes) -> bytes:
    other = corpus.lines()[draw(st.integers(0, len(corpus.lines()) - 1))]
    return data[: draw(st.integers(0, len(data)))] + other[draw(st.integers(0, len(other))) :]


_OPERATIONS: tuple[Callable[[st.DrawFn, bytes], bytes], ...] = (
    _renumber, _renumber, _renumber, _insert, _cut, _truncate, _double, _overwrite, _splice,
)  # fmt: skip


def mutate(draw: st.DrawFn, data: bytes, most: int = 4) -> bytes:
    """Damage data up to `most` times."""
    for _ in range(draw(st.integers(0, most))):
        data = draw(st.sampled_from(_OPERATIONS))(draw, data)
    return data


@st.composite
def mutated_lines(draw: st.DrawFn, most: int = 4) -> bytes:
    """A real line, damaged or whole."""
    return mutate(draw, corpus.lines()[draw(st.integers(0, len(corpus.lines()) - 1))], most)


def mutated_bytes(originals: Sequence[bytes], most: int = 6) -> st.SearchStrategy[bytes]:
    """One of these, damaged or whole."""

    # The originals are no arguments of the strategy: hypothesis writes those into its messages.
    @st.composite
    def damaged(draw: st.DrawFn) -> bytes:
        return mutate(draw, originals[draw(st.integers(0, len(originals) - 1))], most)

    return damaged()


VALUES: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([None, True, False, 0, 1, -1, 2**31, 2**40, 2**40 + 1, 2**64, 10**30, 1.5, 1e308, -0.0, "", "7"]),
    st.sampled_from([float("nan"), float("inf"), "nan", "1e5", "-3", "\0", "\ud800", "a" * 5000, [], {}, [[]], [{}]]),
    st.integers(0, 5000),
    st.text(max_size=10),
)


def mutated_json(originals: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """A JSON answer with values replaced, removed, doubled or nested; sometimes damaged as text too."""
    values = [json.loads(original) for original in originals if original[:1] in b"[{"]

    @st.composite
    def damaged(draw: st.DrawFn) -> bytes:
        value = values[draw(st.integers(0, len(values) - 1))]
        for _ in range(draw(st.integers(0, 5))):
            value = _change(draw, value)
        text = json.dumps(value, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
        return mutate(draw, text, 2) if draw(st.integers(0, 3)) == 0 else text

    return damaged()


def _change(draw: st.DrawFn, value: Any) -> Any:
    """Change something somewhere in a JSON value."""
    if isinstance(value, dict) and value and draw(st.integers(0, 5)):
        name = draw(st.sampled_from(list(value)))
        action = draw(st.sampled_from(("change", "change", "change", "remove", "copy")))
        if action == "change":
            return {**value, name: _change(draw, value[name])}
        if action == "remove":
            return {key: inner for key, inner in value.items() if key != name}
        return {**value, draw(st.sampled_from(list(value))): value[name]}
    if isinstance(value, list) and value and draw(st.integers(0, 5)):
        index = draw(st.integers(0, len(value) - 1))
        action = draw(st.sampled_from(("change", "change", "change", "remove", "double")))
        if action == "change":
            return [*value[:index], _change(draw, value[index]), *value[index + 1 :]]
        if action == "remove":
            return value[:index] + value[index + 1 :]
        return value[: index + 1] * draw(st.integers(1, 3)) + value[index:]
    wrapped = draw(st.sampled_from(("replace", "replace", "list", "object")))
    return draw(VALUES) if wrapped == "replace" else [value] if wrapped == "list" else {"id": value}
