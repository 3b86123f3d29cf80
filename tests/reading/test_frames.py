"""A stream is cut into its messages wherever the kernel cuts it, and what is no message ends it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvexporter.reading.frames import DamagedError, Frames, frame

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple),
    max_leaves=8,
)


@given(st.lists(st.lists(VALUES).map(tuple), max_size=5), st.integers(1, 40))
def test_messages_arrive_in_order_however_they_are_cut(messages: list[tuple[object, ...]], size: int) -> None:
    stream, frames = b"".join(map(frame, messages)), Frames()
    arrived = [m for at in range(0, len(stream), size) for m in frames.feed(stream[at : at + size])]
    assert arrived == messages


@pytest.mark.parametrize(
    "stream",
    [
        struct.pack("<I", 2**32 - 1),
        struct.pack("<I", 0),
        struct.pack("<I", 3) + b"xyz",
        frame((1,))[:4] + b"\0" * 16,
        struct.pack("<I", 1) + b"N",
    ],
    ids=["too long", "empty", "damaged", "zeros", "no tuple"],
)
def test_what_is_no_message_is_refused(stream: bytes) -> None:
    with pytest.raises(DamagedError):
        list(Frames().feed(stream))
