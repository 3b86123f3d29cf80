"""Logs of every kind are named in the store and told to the reading process, and journals as they always were."""

from __future__ import annotations

import pytest

from kvexporter.feed import feed_key, selection_of
from kvexporter.reading.frames import Frames, frame
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.sources.log_selection import (
    LogFileSelection,
    Selection,
    StdinSelection,
    described,
    pack_selection,
    unpack_selection,
)

SELECTIONS: list[tuple[Selection, str, str]] = [
    (JournalSelection(unit="a.service"), '{"unit": "a.service"}', "journal of a.service"),
    (
        JournalSelection(matches=({"CONTAINER_NAME": "a"},), directory="/j"),
        '{"directory": "/j", "matches": [{"CONTAINER_NAME": "a"}]}',
        "journal of CONTAINER_NAME=a in /j",
    ),
    (LogFileSelection("/var/log/a.log"), '{"log_file": "/var/log/a.log"}', "log file /var/log/a.log"),
    (StdinSelection(), '{"stdin": true}', "standard input"),
]


@pytest.mark.parametrize(("selection", "key", "words"), SELECTIONS, ids=lambda value: str(value))
def test_a_log_is_told_and_stored_and_known_again(selection: Selection, key: str, words: str) -> None:
    assert feed_key(selection) == key
    assert selection_of(key) == selection
    (message,) = Frames().feed(frame(("open", pack_selection(selection))))
    assert unpack_selection(message[1]) == selection
    assert described(selection) == words


@pytest.mark.parametrize("key", ["", "[]", "7", '{"log_file": "relative.log"}', '{"unheard": 1}'])
def test_a_key_that_names_no_log_is_none(key: str) -> None:
    assert selection_of(key) is None


def test_a_file_is_named_by_its_whole_path() -> None:
    with pytest.raises(ValueError, match="expected an absolute path"):
        LogFileSelection("a.log")
