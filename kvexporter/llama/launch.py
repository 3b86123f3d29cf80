"""llama-server's command line and `LLAMA_ARG_*` environment as launch options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from kvexporter.llama.launch_names import (
    ENVIRONMENT,
    ENVIRONMENT_OFF,
    FALSE_WORDS,
    FLAGS,
    MODEL_SHORTCUT,
    TRUE_WORDS,
    VALUES,
)

MOST_VERBOSE = 2**31 - 1
"""What `-v` sets: everything is logged."""

_INT_MAX = 2**31 - 1
# As the server reads numbers: what follows the digits is ignored, so `-c 16k` is 16 tokens there.
_LEADING_INTEGER = re.compile(r"\s*([+-]?[0-9]{1,12})(?![0-9])", re.ASCII)


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """How a llama-server was started. None: not given, so the build's default holds."""

    context: int | None = None
    """`-c` in tokens as given; 0 means the model's training context."""
    parallel: int | None = None
    """`-np`; None also for -1 (automatic)."""
    unified: bool | None = None
    per_slot: int | None = None
    """`--kv-unified-per-slot`."""
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    sleep_idle_seconds: int | None = None
    """None also for -1 (never sleeps)."""
    metrics: bool | None = None
    slots: bool | None = None
    host: str | None = None
    port: int | None = None
    api_prefix: str = ""
    api_key: bool = False
    """Whether a key is demanded; the key itself is never kept."""
    api_key_file: str | None = None
    tls: bool = False
    model: str | None = None
    """Path, or repository or file name of a download; None in router mode."""
    alias: str | None = None
    router: bool = False
    """Started without a model: serves many. A models folder alone does not tell: a router's children inherit it."""
    environment_known: bool = True
    """The environment could be read. If not, an option that is absent here may have been given there."""
    verbosity: int | None = None
    log_file: str | None = None
    cache_idle_slots: bool | None = None
    context_shift: bool | None = None
    cache_ram_mib: int | None = None
    """-1: no limit; 0: no cache."""
    unknown: tuple[str, ...] = ()
    """Options whose value could not be read, as `-c=abc`."""


@dataclass(frozen=True, slots=True)
class _Given:
    """One option as it was given: its spelling (an option or a variable's name) and its value."""

    spelling: str
    value: str | bool


def parse_launch(arguments: Sequence[str], environment: Mapping[str, str] | None) -> LaunchOptions:
    """The options of a server started with these arguments (without its own name) and this environment.

    The command line beats the environment, and of repeated options the last one counts, as in the server. Never raises:
    a value that the server could not have read either goes to `unknown`. An environment of None could not be read; then
    only a router's own options make it a router, since the model may be named there.
    """
    given = {} if environment is None else _from_environment(environment)
    given.update(_from_arguments(arguments))
    options = _Options(given)
    model = _model(options)
    return LaunchOptions(
        context=options.integer("context", lowest=0),
        parallel=options.parallel(),
        unified=options.boolean("unified"),
        per_slot=_positive(options.integer("per_slot")),
        cache_type_k=options.word("cache_type_k"),
        cache_type_v=options.word("cache_type_v"),
        sleep_idle_seconds=options.sleep_idle_seconds(),
        metrics=options.boolean("metrics"),
        slots=options.boolean("slots"),
        host=options.word("host"),
        port=options.integer("port", lowest=0, highest=65535),
        api_prefix=(options.word("api_prefix") or "").rstrip("/"),
        api_key="api_key" in given or "api_key_file" in given,
        api_key_file=options.word("api_key_file"),
        tls=options.word("tls_key") is not None and options.word("tls_certificate") is not None,
        model=model,
        alias=options.word("alias"),
        router=model is None and (environment is not None or "models_dir" in given or "models_preset" in given),
        environment_known=environment is not None,
        verbosity=options.integer("verbosity"),
        log_file=options.word("log_file"),
        cache_idle_slots=options.boolean("cache_idle_slots"),
        context_shift=options.boolean("context_shift"),
        cache_ram_mib=options.integer("cache_ram", lowest=-1),
        unknown=tuple(options.unknown),
    )


class _Options:
    """Typed reading of what was given; collects what cannot be read."""

    def __init__(self, given: Mapping[str, _Given]) -> None:
        self._given = given
        self.unknown: list[str] = []

    def word(self, name: str) -> str | None:
        given = self._given.get(name)
        return given.value or None if given is not None and isinstance(given.value, str) else None

    def boolean(self, name: str) -> bool | None:
        given = self._given.get(name)
        if given is None:
            return None
        if isinstance(given.value, bool):
            return given.value
        if given.value in TRUE_WORDS or given.value in FALSE_WORDS:
            return given.value in TRUE_WORDS
        self._unreadable(given)
        return None

    def integer(self, name: str, *, lowest: int = -_INT_MAX - 1, highest: int = _INT_MAX) -> int | None:
        given = self._given.get(name)
        if given is None:
            return None
        match = _LEADING_INTEGER.match(given.value) if isinstance(given.value, str) else None
        value = None if match is None else int(match[1])
        if value is None or not lowest <= value <= highest:
            self._unreadable(given)
            return None
        return value

    def parallel(self) -> int | None:
        value = self.integer("parallel")
        if value == 0:
            self._unreadable(self._given["parallel"])
        # All negative numbers mean automatic.
        return _positive(value)

    def sleep_idle_seconds(self) -> int | None:
        value = self.integer("sleep_idle_seconds", lowest=-1)
        if value == 0:
            self._unreadable(self._given["sleep_idle_seconds"])
        return _positive(value)

    def _unreadable(self, given: _Given) -> None:
        shown = "".join(character if character.isprintable() else "?" for character in str(given.value)[:40])
        self.unknown.append(f"{given.spelling}={shown}")


def _from_environment(environment: Mapping[str, str]) -> dict[str, _Given]:
    given = {name: _Given(variable, environment[variable]) for variable, name in ENVIRONMENT if variable in environment}
    if "api_key" in given:
        given["api_key"] = _Given(given["api_key"].spelling, True)
    # The negative form wins over the positive one, and its value, even 0, means nothing: being set is enough.
    given.update({name: _Given(variable, False) for variable, name in ENVIRONMENT_OFF if variable in environment})
    return given


def _from_arguments(arguments: Sequence[str]) -> dict[str, _Given]:
    """What the arguments give. Other options and their values are passed over one by one."""
    given: dict[str, _Given] = {}
    rest = iter(arguments)
    for argument in rest:
        spelling, joined, value = argument.partition("=") if argument.startswith("-") else (argument, "", "")
        if spelling.startswith("--"):
            spelling = spelling.replace("_", "-")
        if spelling in FLAGS:
            name, positive = FLAGS[spelling]
            given[name] = _flag(spelling, positive, value if joined else None)
        elif spelling in VALUES:
            name = VALUES[spelling]
            value = value if joined else next(rest, "")
            # The key's value is dropped at once.
            given[name] = _Given(spelling, True if name == "api_key" else value)
        elif spelling in ("-v", "--verbose", "--log-verbose"):
            given["verbosity"] = _Given(spelling, str(MOST_VERBOSE))
        elif MODEL_SHORTCUT.fullmatch(spelling):
            given["shortcut"] = _Given(spelling, spelling.removeprefix("--"))
    return given


def _flag(spelling: str, positive: bool, value: str | None) -> _Given:
    if value is None:
        return _Given(spelling, positive)
    if value in TRUE_WORDS:
        return _Given(spelling, positive)
    if value in FALSE_WORDS:
        return _Given(spelling, not positive)
    return _Given(spelling, value)


def _model(options: _Options) -> str | None:
    """The model, however it is named; a download's address without the credentials it may carry."""
    named = options.word("model") or options.word("repository") or options.word("shortcut") or options.word("docker")
    if named is not None:
        return named
    address = options.word("model_url")
    if address is None:
        return None
    try:
        return urlsplit(address).path.rpartition("/")[2] or "download"
    except ValueError:
        return "download"


def _positive(value: int | None) -> int | None:
    return value if value is not None and value > 0 else None
