"""Reading a YAML file into dataclasses, with the file, line and key of everything that is wrong.

A section is a frozen dataclass whose fields are annotated with `Key`: the documentation and the reader of that key
stand beside the field, and docs/configuration.md is made from them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any, ClassVar, Generic, Protocol, TypeVar, get_type_hints

import yaml

from kvexporter.reading_at_start import reading

MAX_FILE_BYTES = 1024 * 1024
"""A configuration of 200 servers is about 60 KiB."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_KIND_OF_TAG = {
    "tag:yaml.org,2002:null": "nothing",
    "tag:yaml.org,2002:bool": "the boolean",
    "tag:yaml.org,2002:int": "the number",
    "tag:yaml.org,2002:float": "the number",
    "tag:yaml.org,2002:timestamp": "the date",
}

_SECRET_KEYS = {
    "api_key",
    "apikey",
    "key",
    "token",
    "bearer_token",
    "authorization",
    "password",
    "basic_auth",
    "secret",
}


class ConfigError(Exception):
    """The configuration cannot be used. The text has one line per problem: `file:line: key: expected …, found …`."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong: the line it stands on, and the whole text for the operator."""

    line: int
    text: str


class Refused(Exception):  # noqa: N818 - an outcome that is always caught in this module
    """One value cannot be used; carries where and why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.text)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Reading:
    """One file being read: what is wrong in it, and what is merely suspicious."""

    file: Path
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Place:
    """A value, and where it stands."""

    reading: Reading
    node: yaml.Node
    key: str

    @property
    def line(self) -> int:
        mark: yaml.Mark = self.node.start_mark
        return int(mark.line) + 1

    def problem(self, text: str) -> Problem:
        return Problem(self.line, f"{self.reading.file}:{self.line}: {self.key + ': ' if self.key else ''}{text}")

    def refuse(self, text: str) -> Refused:
        """Give the error that this value is wrong: `text` says what was expected and what was found."""
        return Refused(self.problem(text))

    def expected(self, words: str) -> Refused:
        """Give the error that another type was expected here; names what was found."""
        return self.refuse(f"expected {words}, found {describe(self.node)}")

    def note(self, text: str) -> None:
        """Remember that this value is wrong, and go on: the operator gets all problems at once."""
        self.reading.problems.append(self.problem(text))

    def warn(self, text: str) -> None:
        self.reading.warnings.append(self.problem(text))

    def inner(self, node: yaml.Node, key: str) -> Place:
        if not key.isprintable() or len(key) > 60:
            key = repr(key[:60])
        if key.startswith("["):
            return Place(self.reading, node, f"{self.key}{key}")
        return Place(self.reading, node, f"{self.key}.{key}" if self.key else key)


class Kind(Protocol[T_co]):
    """A type of value: its name for documents and errors, and how it is read from its node."""

    @property
    def words(self) -> str: ...

    def read(self, place: Place) -> T_co:
        """Read the value; raises Refused if it cannot be used."""
        ...


@dataclass(frozen=True, slots=True)
class Key:
    """Annotation of a section's field: what it means, how it is read, and its default in words."""

    kind: Kind[Any]
    doc: str
    default: str = ""


@dataclass(frozen=True, slots=True)
class Scalar(Generic[T]):
    """A kind made of a function over the place."""

    words: str
    reader: Callable[[Place], T]

    def read(self, place: Place) -> T:
        return self.reader(place)


@dataclass(frozen=True, slots=True)
class ListOf(Generic[T]):
    """A list of at most `limit` values of one kind."""

    kind: Kind[T]
    limit: int
    at_least: int = 0

    @property
    def words(self) -> str:
        return f"list of {self.kind.words}"

    def read(self, place: Place) -> tuple[T, ...]:
        node = place.node
        if not isinstance(node, yaml.SequenceNode):
            raise place.expected("a list")
        if not self.at_least <= len(node.value) <= self.limit:
            raise place.refuse(f"expected {self.at_least} to {self.limit} entries, found {len(node.value)}")
        read: list[T] = []
        for index, item in enumerate(node.value):
            try:
                read.append(self.kind.read(place.inner(item, f"[{index}]")))
            except Refused as refused:
                place.reading.problems.append(refused.problem)
        return tuple(read)


@dataclass(frozen=True, slots=True)
class Section(Generic[T]):
    """A mapping read into a dataclass whose fields all have defaults. `check` may refuse or complete the value."""

    shape: type[T]
    check: Callable[[Place, T], T] | None = None
    words: ClassVar[str] = "section"

    def keys(self) -> dict[str, Key]:
        """Give the keys by name, in their order in the dataclass."""
        hints = get_type_hints(self.shape, include_extras=True)
        found: dict[str, Key] = {}
        for name, hint in hints.items():
            for extra in getattr(hint, "__metadata__", ()):
                if isinstance(extra, Key):
                    found[name] = extra
        return found

    def read(self, place: Place) -> T:
        problems = len(place.reading.problems)
        nodes = read_mapping(place)
        known = self.keys()
        values: dict[str, Any] = {}
        for name, (key_node, node) in nodes.items():
            if name not in known:
                place.inner(key_node, name).note(_unknown(name, list(known)))
                continue
            try:
                values[name] = known[name].kind.read(place.inner(node, name))
            except Refused as refused:
                place.reading.problems.append(refused.problem)
        if len(place.reading.problems) > problems:
            # Whatever follows from a value that could not be read would be a misleading second error.
            raise Refused(place.reading.problems.pop())
        value = self.shape(**values)
        return self.check(place, value) if self.check is not None else value


def _unknown(name: str, known: list[str]) -> str:
    for file_key in ("api_key_file", "password_file"):
        if name.lower() in _SECRET_KEYS and file_key in known:
            return f"secrets are only read from files: expected {file_key} with the path of a file"
    if name == "<<":
        return "merge keys are not supported: write the keys out"
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
    return f"unknown key; {hint}"


def describe(node: yaml.Node) -> str:
    """Say what a node is, for an error. Text is quoted and cut; nothing else of a file is repeated."""
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.MappingNode):
        return "a section"
    kind = _KIND_OF_TAG.get(node.tag)
    if kind == "nothing":
        return kind
    shown = node.value if len(node.value) <= 40 else node.value[:40] + "…"
    return f"{kind} {shown}" if kind else repr(shown)


def read_mapping(place: Place) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    """Give a mapping's (key node, value node) by name. Refuses anything else; duplicate keys are noted as problems."""
    node = place.node
    if not isinstance(node, yaml.MappingNode):
        raise place.expected("a section (key: value)")
    found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise place.inner(key_node, "?").expected("a key name")
        name = str(key_node.value)
        if name in found:
            first = int(found[name][0].start_mark.line) + 1
            place.inner(key_node, name).note(f"duplicate key; it stands on line {first} already")
            continue
        found[name] = (key_node, value_node)
    return found


def read_file(path: Path, section: Section[T]) -> tuple[T, tuple[str, ...]]:
    """Read a whole file; give the value and the warnings. An empty file is a section without keys.

    Raises ConfigError with every problem found.
    """
    try:
        with reading(path), path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: expected at most {MAX_FILE_BYTES} bytes, found more: is this a configuration file?")
    read = Reading(path)
    node = _compose(path, data)
    if node is None:
        node = yaml.MappingNode("tag:yaml.org,2002:map", [], start_mark=yaml.Mark(str(path), 0, 0, 0, None, 0))
    try:
        value = section.read(Place(read, node, ""))
    except Refused as refused:
        read.problems.append(refused.problem)
    if read.problems:
        raise ConfigError("\n".join(problem.text for problem in sorted(read.problems)))
    return value, tuple(warning.text for warning in sorted(read.warnings))


def _compose(path: Path, data: bytes) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(data, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        # The library quotes what it found, which may be of any length.
        problem = shorten(error.problem or error.context or "", 200)
        raise ConfigError(f"{path}{line}: not YAML: {problem}") from None
    except yaml.reader.ReaderError as error:
        number = data.decode("utf-8", "replace")[: error.position].count("\n") + 1
        raise ConfigError(f"{path}:{number}: not a text file in UTF-8: {error.reason}") from None
    except (yaml.YAMLError, ValueError):
        raise ConfigError(f"{path}: not YAML") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply to be a configuration") from None
    if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null":
        return None
    return node
