"""The project's Markdown pages: their code, links and headings, as GitHub takes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from tests.support.paths import ROOT

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`]*)$")
_LINK = re.compile(r"(?<!\\)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^()\s]+(?:\([^()]*\))?)\)")
_INLINE = re.compile(r"(?<!`)(`+)(?!`)(?P<code>.+?)(?<!`)\1(?!`)")
_NO_ANCHOR = re.compile(r"[^\w\- ]")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code."""

    page: Path
    line: int
    """Of its first line."""
    info: tuple[str, ...]
    """The words after the fence: the language, then marks."""
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def language(self) -> str:
        return self.info[0] if self.info else ""

    def commands(self) -> list[str]:
        """Its command lines without comments' lines; those that end in a backslash are joined with the next."""
        joined = re.sub(r"\\\n\s*", " ", self.text)
        return [line.strip() for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]


@dataclass(frozen=True)
class Page:
    """One page, split into prose and code."""

    path: Path

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        return self.path.read_text("utf-8")

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(self._blocks())

    def _blocks(self) -> Iterator[Block]:
        info: tuple[str, ...] | None = None
        inside: list[str] = []
        for number, line in enumerate(self.text.splitlines(), 1):
            fence = _FENCE.match(line)
            if fence is None:
                inside.append(line)
            elif info is None:
                info, inside = tuple(fence["info"].split()), []
            else:
                yield Block(self.path, number - len(inside), info, "\n".join(inside) + "\n")
                info = None
        assert info is None, f"{self}: a block of code is not closed"

    @cached_property
    def prose(self) -> str:
        """The text without fenced blocks; their lines are empty."""
        kept, inside = [], False
        for line in self.text.splitlines():
            if _FENCE.match(line):
                inside = not inside
                kept.append("")
            else:
                kept.append("" if inside else line)
        return "\n".join(kept)

    @cached_property
    def inline_code(self) -> tuple[str, ...]:
        """What stands between backticks, a line break in it as a space."""
        paragraphs = re.split(r"\n\s*\n", self.prose)
        return tuple(
            " ".join(match["code"].replace("\\|", "|").split())
            for paragraph in paragraphs
            for match in _INLINE.finditer(paragraph.replace("\n", " "))
        )

    @cached_property
    def links(self) -> tuple[str, ...]:
        """Where its links and pictures go."""
        without_code = _INLINE.sub(lambda match: "`" + "x" * len(match["code"]) + "`", self.prose)
        return tuple(match["target"] for match in _LINK.finditer(without_code))

    @cached_property
    def anchors(self) -> frozenset[str]:
        """What `#…` can name: its headings, as GitHub makes anchors of them."""
        found: dict[str, int] = {}
        anchors = set()
        for line in self.prose.splitlines():
            heading = re.match(r"#{1,6} +(.*?)(?: +#+)?$", line)
            if heading is None:
                continue
            name = anchor(heading[1])
            repeated = found.get(name, 0)
            anchors.add(f"{name}-{repeated}" if repeated else name)
            found[name] = repeated + 1
        return frozenset(anchors)


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading: lower case, punctuation gone, spaces as hyphens."""
    words = _LINK.sub(lambda match: match["text"], heading).replace("`", "").replace("*", "")
    return _NO_ANCHOR.sub("", words.lower()).replace(" ", "-")


@lru_cache
def pages() -> tuple[Page, ...]:
    """All pages for people: the README, docs, and what stands beside rules, dashboards and benchmarks."""
    folders = ("docs", "alerts", "dashboards", "benchmarks", "packaging")
    paths = [*ROOT.glob("*.md"), *(path for folder in folders for path in (ROOT / folder).rglob("*.md"))]
    return tuple(Page(path) for path in sorted(paths))


def page(name: str) -> Page:
    """The page of that path from the repository's top."""
    return next(each for each in pages() if str(each) == name)
