"""What a container's engine puts around a line is taken off, and its time is used."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvexporter.sources.log_lines import LineForms, stamp_time

AT = 1796032800.0  # date -u -d 2026-11-30T10:00:00Z +%s


@pytest.mark.parametrize(
    ("raw", "text", "at"),
    [
        (b"0.00.036.133 I srv  load_model: initializing", b"0.00.036.133 I srv  load_model: initializing", None),
        (b'{"log":"a \\u003c b\\n","stream":"stderr","time":"2026-11-30T10:00:00.25Z"}', b"a < b", AT + 0.25),
        (b'{"log":"a\\r\\n","stream":"stdout","attrs":{"x":"y"},"time":"2026-11-30T10:00:00Z"}', b"a", AT),
        (b"2026-11-30T10:00:00.123456789Z a line", b"a line", AT + 0.123456789),
        (b"2026-11-30T12:00:00+02:00 stderr F a line", b"a line", AT),
        (b"2026-11-30T10:00:00 a line", b"2026-11-30T10:00:00 a line", None),
        (b"2026-13-30T10:00:00Z a line", b"2026-13-30T10:00:00Z a line", None),
        (b'{"log":1}', b'{"log":1}', None),
        (b'{"log":"cut', b'{"log":"cut', None),
        (b'{"type":"log","msg":"x"}', b'{"type":"log","msg":"x"}', None),
        (b"", b"", None),
    ],
)
def test_a_line_is_unwrapped(raw: bytes, text: bytes, at: float | None) -> None:
    found = LineForms().take(raw)
    assert found[0] == text
    assert found[1] == (None if at is None else pytest.approx(at, abs=1e-6))
    assert found[2] is False


def test_pieces_of_a_line_are_told_by_stream_and_over_restarts() -> None:
    def docker(text: str, stream: str) -> bytes:
        line = {"log": text, "stream": stream, "time": "2026-11-30T10:00:00Z"}
        return json.dumps(line, separators=(",", ":")).encode()

    forms = LineForms()
    assert [forms.take(docker(*line))[2] for line in (("a", "stderr"), ("b\n", "stdout"), ("c", "stderr"))] == [
        False, False, True,
    ]  # fmt: skip
    again = LineForms(forms.pieces)
    assert [again.take(docker(*line))[2] for line in (("d\n", "stderr"), ("e\n", "stderr"))] == [True, False]
    assert again.pieces == ()
    stamp = b"2026-11-30T10:00:00Z stderr "
    assert [again.take(stamp + line)[2] for line in (b"P a", b"P b", b"F c", b"F d")] == [False, True, True, False]


@given(st.binary(max_size=200), st.sampled_from([b"", b'{"log":"', b"2026-11-30T10:00:00Z ", b"2026-"]))
def test_any_bytes_are_some_line(raw: bytes, prefix: bytes) -> None:
    text, _, _ = LineForms().take(prefix + raw)
    assert isinstance(text, bytes)


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_none(text: str) -> None:
    at = stamp_time(text)
    assert at is None or isinstance(at, float)
