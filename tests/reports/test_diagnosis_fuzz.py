"""Whatever a log says, its diagnosis can be shown in every form."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from kvexporter.reports.diagnosis import diagnose
from kvexporter.reports.diagnosis_json import diagnoses_json
from kvexporter.reports.diagnosis_markdown import diagnoses_markdown
from kvexporter.reports.diagnosis_text import print_diagnoses
from kvexporter.reports.terminal import plain
from tests.diagnosing.test_sieve import LINES
from tests.reports.test_verdict import FOUR_AGENTS
from tests.support.diagnosing import recorded, story_of

POOL = [*LINES, *FOUR_AGENTS, *recorded("b5541/idle_purge"), *recorded("b8635/prompt_too_long")]


def damaged(line: bytes, at: int, byte: int) -> bytes:
    return line[: at % (len(line) + 1)] + bytes([byte]) + line[at % (len(line) + 1) + 1 :]


@given(
    st.lists(
        st.one_of(
            st.sampled_from(POOL),
            st.builds(damaged, st.sampled_from(POOL), st.integers(0, 200), st.integers(0, 255)),
        ),
        max_size=40,
    )
)
def test_every_diagnosis_can_be_shown(lines: list[bytes]) -> None:
    diagnoses = [diagnose(story_of(lines, name="a|b`c\x1b[2J"))]
    text = plain(lambda console: print_diagnoses(diagnoses, console))
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text + diagnoses_markdown(diagnoses)
    assert json.loads(diagnoses_json(diagnoses))[0]["verdict"]["text"].endswith(".")
