"""Whatever stands in a log: the parser does not raise, and what it gives says something."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from kvexporter.llama.log import CONTEXT_ERROR, LINE_LIMIT, parse_line

SAMPLES = [
    b"0.00.382.861 I slot      release: id  1 | task 2 | stop processing: n_tokens = 219, truncated = 0",
    b"slot print_timing: id  0 | task 4 | prompt processing, n_tokens =  18432, progress = 0.62, t =  11.40 s",
    b"prompt eval time =     131.50 ms /    53 tokens (    2.48 ms per token,   403.33 tokens per second)",
    b"0.41.118.220 E srv        decode: Context size has been exceeded. off = 2, n_batch = 1, ret = 1",
    b"srv    send_error: task id = 8, error: request (33056 tokens) exceeds the available context size (32768 tokens)",
    b"srv  log_server_r: done request: GET /slots?a=b 127.0.0.1 200",
    b"llama_kv_cache: size =    2.00 MiB (  1024 cells,   2 layers,  4/4 seqs), K (q8_0): 1.50 MiB, V (q4_0): 0.50 MiB",
    b"[37723] 52.17.408.129 E init_batch: failed to prepare attention ubatches",
    b'{"type":"log","level":"warn","text":"srv  try_clear_id: purging slot 2 with 9120 tokens\\n"}',
    b'{"tid":"140","timestamp":1710000000,"level":"INFO","msg":"slot context shift","id_slot":0,"n_discard":1023}',
    b'INFO [            update_slots] kv cache rm [p0, end) | tid="140" timestamp=1710000000 id_slot=0 id_task=7 p0=24',
    b"main: server is listening on http://127.0.0.1:18462 - starting the main loop",
    b"May 22 01:30:52 host prog[37450]: \x1b[34msrv  update_slots: all slots are idle\x1b[0m",
    b"llama-cpp       | 2026-05-22T01:30:52Z srv  update_slots: all slots are idle",
]

pieces = st.one_of(
    st.sampled_from(SAMPLES),
    st.binary(max_size=20),
    st.sampled_from(
        [CONTEXT_ERROR, b"\x1b[0m", b"\0", b"\r\n", b" | ", b": ", b"[", b"{", b'"', b"=", b"9" * 40, b"nan"]
    ),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A real line with a part replaced, removed or doubled."""
    line = draw(st.sampled_from(SAMPLES))
    start = draw(st.integers(0, len(line)))
    end = draw(st.integers(start, len(line)))
    return line[:start] + draw(pieces) * draw(st.integers(0, 3)) + line[end:]


any_line = st.one_of(damaged(), st.lists(pieces, max_size=6).map(b"".join), st.binary(max_size=400))


@given(any_line)
@example(b"\x1b" * 9000)
@example(b"[" * LINE_LIMIT)
@example(b'{"a":' * 1600)
@example(b"a" * LINE_LIMIT)
@example(b" " * LINE_LIMIT)
@example(b"srv x: request: GET " + b"a " * 4000)
@example(b"ERR [x] a | " + b"a=b " * 2000)
@example(b'{"level":"INFO","msg":"slot released","id_slot":1e400,"n_past":1e30}')
@example(b'{"level":"INFO","msg":"slot released","id_slot":123456789012345678901234567890,"n_past":1}')
def test_no_line_raises_and_every_reading_says_something(line: bytes) -> None:
    parsed = parse_line(line)
    if parsed is not None:
        assert parsed.event is not None or parsed.mentions_context_error
    assert (CONTEXT_ERROR in line) == (parsed is not None and parsed.mentions_context_error)


@given(any_line, st.integers(0, 3))
def test_what_a_line_says_is_bounded_in_size(line: bytes, copies: int) -> None:
    assert len(repr(parse_line(line * copies))) < 4000
