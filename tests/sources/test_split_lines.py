from __future__ import annotations

from kvexporter.sources.split_lines import MAX_OPEN, SplitLines


def ask(split: SplitLines, **fields: str) -> bool:
    return split.continued(lambda name: fields[name].encode() if name in fields else None)


def test_the_entry_after_a_broken_one_of_its_stream_is_a_later_piece() -> None:
    split = SplitLines()
    assert not ask(split, _STREAM_ID="a", _LINE_BREAK="line-max")
    assert not ask(split, _STREAM_ID="b")
    assert ask(split, _STREAM_ID="a", _LINE_BREAK="line-max")
    assert ask(split, _STREAM_ID="a")
    assert not ask(split, _STREAM_ID="a")


def test_a_nul_breaks_a_line_and_the_end_of_a_stream_or_another_process_does_not() -> None:
    split = SplitLines()
    assert not ask(split, _STREAM_ID="a", _LINE_BREAK="nul")
    assert ask(split, _STREAM_ID="a")
    for other in ("eof", "pid-change"):
        assert not ask(split, _STREAM_ID="a", _LINE_BREAK=other)
        assert not ask(split, _STREAM_ID="a")


def test_a_containers_outputs_are_split_independently() -> None:
    split = SplitLines()
    assert not ask(split, CONTAINER_ID_FULL="c", PRIORITY="3", CONTAINER_PARTIAL_MESSAGE="true")
    assert not ask(split, CONTAINER_ID_FULL="c", PRIORITY="6")
    assert not ask(split, CONTAINER_ID_FULL="d", PRIORITY="3")
    assert ask(split, CONTAINER_ID_FULL="c", PRIORITY="3")


def test_streams_that_never_end_their_line_are_forgotten() -> None:
    split = SplitLines()
    for stream in range(MAX_OPEN + 1):
        ask(split, _STREAM_ID=str(stream), _LINE_BREAK="nul")
    assert not ask(split, _STREAM_ID="0")
    assert ask(split, _STREAM_ID="1")
