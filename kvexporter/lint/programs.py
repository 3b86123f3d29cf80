"""Finds llama-server, or a shell that starts it, in a command's words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvexporter.lint.places import Book, Traced
from kvexporter.lint.words import Argument

# Programs that run the program named in their arguments.
_WRAPPERS = frozenset(
    ("exec", "env", "nohup", "nice", "ionice", "taskset", "numactl", "sudo", "doas", "setsid", "stdbuf", "time",
     "timeout", "systemd-run", "systemd-inhibit", "systemd-cat", "chrt", "command", "docker", "podman", "nerdctl",
     "strace", "gdb", "unshare", "runuser", "su-exec", "gosu", "setpriv", "prlimit", "tini", "dumb-init", "perf",
     "script", "chpst", "nsys", "ltrace", "unbuffer", "firejail", "bwrap")
)  # fmt: skip
_CONTAINERS = frozenset(("docker", "podman", "nerdctl"))
_VARIABLE_GIVEN = re.compile(r"(?:--env=|-e)?(LLAMA_ARG_\w+)=")
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash"))
_SERVER = re.compile(r"llama[-_]?server(?:[-_.](?:cuda|vulkan|rocm|cpu|metal|bin|new|old|b?\d[\w.]*))*(?:\.exe)?", re.I)
_IMAGE = re.compile(r"(?:.*/)?llama\.cpp:(?:server|full)[\w.-]*", re.I)
_VARIABLE = re.compile(r"[\"']?\$\{?\w*(?:LLAMA\w*(?:SERVER|BIN)|SERVER_BIN)\w*(?::?-[^}]*)?\}?[\"']?", re.I)


def name_of(argument: Argument) -> str:
    """The program's name without its folders."""
    return argument.text.rpartition("/")[2]


def is_server(argument: Argument, book: Book) -> bool:
    """Whether this word names a llama-server, or a container image of it."""
    if _SERVER.fullmatch(name_of(argument)) or _IMAGE.fullmatch(argument.text):
        return True
    if argument.known:
        return False
    source = book.source(argument.start)
    return _VARIABLE.fullmatch(source.text[argument.start - source.base : argument.end - source.base]) is not None


@dataclass(frozen=True, slots=True)
class Start:
    """A start of a llama-server in a command's words."""

    arguments: list[Argument]
    variables: dict[str, Traced] = field(default_factory=dict)
    """Variables of llama-server that the words before it set, as after `env` or `docker run -e`."""
    starts: dict[str, int] = field(default_factory=dict)
    """Where these are set."""
    container: bool = False
    """It does not get the variables around it."""
    whole: bool = True
    """No further variables come from a file."""


def find_start(words: Sequence[Argument], book: Book) -> Start | None:
    """The llama-server that these words start, directly or through another program; None if none."""
    if not words:
        return None
    if is_server(words[0], book):
        return Start(list(words[1:]))
    if name_of(words[0]) not in _WRAPPERS:
        return None
    at = next((at for at, word in enumerate(words) if at and is_server(word, book)), None)
    if at is None:
        return None
    rest = list(words[at + 1 :])
    if rest and _IMAGE.fullmatch(words[at].text) and is_server(rest[0], book):
        rest = rest[1:]  # an image's command may name the program once more
    container = any(name_of(word) in _CONTAINERS for word in words[:at])
    start = Start(rest, container=container, whole=not any(word.text.startswith("--env-file") for word in words[:at]))
    for word in words[1:at]:
        match = _VARIABLE_GIVEN.match(word.text)
        if match is not None and word.known:
            start.variables[match[1]] = Traced(word.text[match.end() :], word.marks[match.end() :])
            start.starts[match[1]] = word.marks[match.start(1)]
    return start


def shell_text(words: Sequence[Argument]) -> Traced | None:
    """What `sh -c TEXT` runs; None if these words do not run a text."""
    at = next((at for at, word in enumerate(words) if name_of(word) in _SHELLS), None)
    if at is None or (at > 0 and name_of(words[0]) not in _WRAPPERS):
        return None
    for place in range(at + 1, len(words)):
        text = words[place].text
        if re.fullmatch(r"-[a-z]*c", text):
            following = words[place + 1] if place + 1 < len(words) else None
            return Traced(following.text, following.marks) if following is not None and following.known else None
        if not text.startswith("-"):
            return None
    return None


def script_path(words: Sequence[Argument]) -> str | None:
    """The path of the script that these words run, as far as that can be told from them."""
    for at, word in enumerate(words):
        name = name_of(word)
        if not word.known or (at == 0 and name in _WRAPPERS) or name in _SHELLS or (at and word.text.startswith("-")):
            continue
        return word.text if word.text.startswith("/") else None
    return None
