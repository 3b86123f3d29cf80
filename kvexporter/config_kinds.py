"""The types of single values in the configuration: durations, paths, URLs, unit names, numbers, booleans."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from kvexporter.config_reading import Place, Scalar, read_mapping
from kvexporter.glance import glance
from kvexporter.sources.api_target import ApiTarget

_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION_PART = re.compile(r"([0-9]{1,9})(ms|s|m|h|d|w)")
_DURATION = re.compile(r"(?:[0-9]{1,9}(?:ms|s|m|h|d|w)){1,6}")
_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,17})")
_NAME = re.compile(r"[A-Za-z0-9_.:@-]{1,100}")
_UNIT_NAME = re.compile(r"[A-Za-z0-9:_.\\@-]{1,255}")
_JOURNAL_FIELD = re.compile(r"_{0,2}[A-Z][A-Z0-9_]{0,62}")
_NAMESPACE = re.compile(r"[A-Za-z0-9_.@:-]{1,200}")
_ENDPOINTS = frozenset({"metrics", "health", "props", "slots", "models", "completion", "completions"})
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_OWN_LABELS = ("alertname", "severity", "server", "cause")
_STRING = "tag:yaml.org,2002:str"


def parse_duration(text: str) -> float | None:
    """Give the seconds of a duration as Prometheus writes it (`500ms`, `1m30s`), None if it is not one."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(int(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(text))


def format_duration(seconds: float) -> str:
    """Write seconds as parse_duration reads them, in the largest unit that divides them."""
    milliseconds = round(seconds * 1000)
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def _text(place: Place, words: str) -> str:
    # The value is never repeated here: it may be a secret that was pasted where a path or a URL belongs.
    node = place.node
    if not isinstance(node, yaml.ScalarNode) or node.tag == "tag:yaml.org,2002:null":
        raise place.expected(words)
    if node.tag != _STRING:
        raise place.refuse(f"expected {words}, found a number, date or boolean (quotes make it text)")
    text = str(node.value)
    if not text or not text.isprintable():
        raise place.refuse(f"expected {words}, found {'an empty text' if not text else 'control characters'}")
    return text


def _boolean(place: Place) -> bool:
    node = place.node
    if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:bool":
        return _BOOLEANS[node.value.lower()]
    raise place.expected("true or false")


BOOLEAN = Scalar("true or false", _boolean)


def integer(low: int, high: int) -> Scalar[int]:
    """Give the kind of whole decimal numbers from `low` to `high`."""
    words = f"whole number from {low} to {high}"

    def read(place: Place) -> int:
        node = place.node
        if isinstance(node, yaml.ScalarNode) and node.tag != _STRING and _INTEGER.fullmatch(node.value):
            number = int(node.value)
            if low <= number <= high:
                return number
        raise place.expected(f"a {words}")

    return Scalar(words, read)


def duration(low: float, high: float) -> Scalar[float]:
    """Give the kind of durations as Prometheus writes them, read as seconds."""
    words = f"duration from {format_duration(low)} to {format_duration(high)}"

    def read(place: Place) -> float:
        node = place.node
        seconds = parse_duration(node.value) if isinstance(node, yaml.ScalarNode) else None
        if seconds is None:
            raise place.expected(f"a {words}, such as 500ms, 1s or 2m")
        if not low <= seconds <= high:
            raise place.expected(f"a {words}")
        return seconds

    return Scalar(words, read)


def _name(place: Place) -> str:
    text = _text(place, "a name")
    if not _NAME.fullmatch(text):
        raise place.expected("a name of 1 to 100 characters out of A-Z a-z 0-9 _ . : @ -")
    return text


NAME = Scalar("name (1 to 100 of A-Z a-z 0-9 _ . : @ -)", _name)


def _unit(place: Place) -> str:
    text = _text(place, "a unit name")
    if not _UNIT_NAME.fullmatch(text):
        raise place.expected("the name of a systemd unit, such as llama-server.service")
    if not text.endswith((".service", ".scope")):
        if "." in text:
            raise place.expected("a unit that ends in .service or .scope")
        text += ".service"
    if text.partition(".")[0].endswith("@"):
        raise place.refuse(f"{text} is a template: expected an instance of it, such as {text.replace('@', '@1', 1)}")
    return text


UNIT = Scalar("unit name (.service may be left out)", _unit)


def _file(place: Place) -> Path:
    # The value is not repeated in the warning: it may be a key that was pasted where its path belongs.
    path = Path(_text(place, "the path of a file"))
    path = place.reading.file.parent.absolute() / path
    found = glance(path, path.is_file)
    if found is None:
        place.warn("its disk or network does not answer now; it is looked for again at each use")
    elif not found:
        place.warn("there is no such file now, or it cannot be seen by this user; it is looked for again at each use")
    return path


FILE = Scalar("path of a file (relative ones start at the configuration file's folder)", _file)


def _directory(place: Place) -> Path:
    path = Path(_text(place, "an absolute path"))
    if not path.is_absolute():
        raise place.expected("an absolute path")
    return path


DIRECTORY = Scalar("absolute path of a folder", _directory)


def _url(place: Place) -> str:
    text = _address(place)
    parts = urlsplit(text)
    if parts.query or text.endswith("?"):
        raise place.refuse("expected a URL without ? and #; only the base path of the server belongs here")
    last = parts.path.rstrip("/").rpartition("/")[2]
    if last in _ENDPOINTS:
        place.warn(
            f"the URL ends with /{last}, the address of one thing that the server answers: expected the server's own, "
            "without it"
        )
    return text.rstrip("/")


def _address(place: Place) -> str:
    # The value is never repeated: a URL can carry a password.
    wanted = "an http:// or https:// URL such as http://127.0.0.1:8080"
    text = _text(place, "a URL")
    try:
        parts = urlsplit(text)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise place.refuse(f"expected {wanted}, found something that is no URL") from None
    if parts.scheme not in ("http", "https"):
        raise place.refuse(f"expected {wanted}, found another scheme or none")
    if not host or " " in text or port == 0:
        raise place.refuse(f"expected {wanted}, found no valid host and port")
    if "@" in parts.netloc:
        raise place.refuse("expected a URL without user and password: secrets are only read from files")
    if parts.fragment or text.endswith("#"):
        raise place.refuse("expected a URL without ? and #; only the base path of the server belongs here")
    try:
        ApiTarget(text.partition("?")[0].rstrip("/"))
    except ValueError:  # the client is stricter in some corners
        raise place.refuse(f"expected {wanted}, found no valid host and port") from None
    return text


def host_and_port(url: str) -> str:
    """Give `host:port` of a URL of the kinds below, with the scheme's own port where it names none."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


URL = Scalar("http or https URL, with the base path if there is one", _url)

RECEIVER_URL = Scalar("http or https URL", _address)


TEXT = Scalar("text", lambda place: _text(place, "a text"))


def _labels(place: Place) -> dict[str, str]:
    labels: dict[str, str] = {}
    for name, (key_node, node) in read_mapping(place).items():
        inner = place.inner(node, name)
        if not _LABEL.fullmatch(name) or name.startswith("__"):
            raise place.inner(key_node, name).refuse("expected a label's name: letters, digits and _, no digit first")
        if name in _OWN_LABELS:
            raise place.inner(key_node, name).refuse(f"expected a label other than {', '.join(_OWN_LABELS)}")
        labels[name] = _text(inner, "the label's value, a text")
        if len(labels[name]) > 128:
            raise inner.refuse("expected a label's value of at most 128 characters, found more")
    if len(labels) > 20:
        raise place.refuse(f"expected at most 20 labels, found {len(labels)}")
    return labels


LABELS = Scalar("group of label: value", _labels)


def _namespace(place: Place) -> str:
    text = _text(place, "a journal namespace")
    if not _NAMESPACE.fullmatch(text):
        raise place.expected("the name of a journal namespace")
    return text


NAMESPACE = Scalar("name of a journal namespace", _namespace)


def _matches(place: Place) -> dict[str, str]:
    fields: dict[str, str] = {}
    for name, (key_node, node) in read_mapping(place).items():
        inner = place.inner(node, name)
        if not _JOURNAL_FIELD.fullmatch(name):
            raise place.inner(key_node, name).refuse(
                "expected a journal field, such as CONTAINER_NAME or SYSLOG_IDENTIFIER"
            )
        if not isinstance(node, yaml.ScalarNode) or not node.value or len(node.value) > 1000:
            raise inner.expected("the field's value, 1 to 1000 characters")
        fields[name] = str(node.value)
    if not 1 <= len(fields) <= 20:
        raise place.refuse(f"expected 1 to 20 fields, found {len(fields)}")
    return fields


MATCHES = Scalar("group of FIELD: value", _matches)
