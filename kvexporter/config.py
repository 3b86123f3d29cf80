"""The configuration file: its sections, and `load_config`, which refuses whatever cannot be meant.

The file is optional. Each key's meaning stands beside its field; docs/configuration.md is made from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from kvexporter.config_alerting import ALERTING, AlertingConfig
from kvexporter.config_kinds import (
    BOOLEAN,
    DIRECTORY,
    FILE,
    MATCHES,
    NAME,
    NAMESPACE,
    UNIT,
    URL,
    duration,
    host_and_port,
    integer,
)
from kvexporter.config_log import LOG, LogConfig, name_of_file
from kvexporter.config_reading import ConfigError, Key, ListOf, Place, Section, read_file
from kvexporter.config_tls import TLS, TlsConfig

__all__ = [
    "CONFIG",
    "Config",
    "ConfigError",
    "GeometryConfig",
    "JournalConfig",
    "JournalDefaults",
    "LogConfig",
    "ServerConfig",
    "TlsConfig",
    "load_config",
]

MAX_SERVERS = 200
_POLL = duration(0.2, 3600)
_TOKENS = integer(1, 2**40)


@dataclass(frozen=True, slots=True)
class JournalDefaults:
    """Where the journal is, for all servers that do not say it themselves."""

    directory: Annotated[
        Path | None,
        Key(DIRECTORY, "Folder with journal files to read instead of this host's journal.", "the host's journal"),
    ] = None
    namespace: Annotated[
        str | None, Key(NAMESPACE, "Journal namespace of the units (`LogNamespace=`).", "the default namespace")
    ] = None


def _check_journal_defaults(place: Place, journal: JournalDefaults) -> JournalDefaults:
    if journal.directory is not None and journal.namespace is not None:
        raise place.refuse("expected directory or namespace, found both: a folder has no namespaces")
    return journal


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """Which journal entries are one server's."""

    matches: Annotated[
        tuple[dict[str, str], ...],
        Key(
            ListOf(MATCHES, limit=20, at_least=1),
            "Journal fields of the server's entries, for servers that are no unit of their own, such as containers. "
            "All fields of a group must match; any group may.",
            "the unit's entries; without a unit, all entries of `directory`",
        ),
    ] = ()
    directory: Annotated[
        Path | None,
        Key(DIRECTORY, "Folder with journal files to read instead of this host's journal.", "`journal.directory`"),
    ] = None
    namespace: Annotated[
        str | None, Key(NAMESPACE, "Journal namespace of the unit (`LogNamespace=`).", "`journal.namespace`")
    ] = None


def _check_journal(place: Place, journal: JournalConfig) -> JournalConfig:
    if journal.directory is not None and journal.namespace is not None:
        raise place.refuse("expected directory or namespace, found both: a folder has no namespaces")
    if not journal.matches and journal.directory is None and journal.namespace is None:
        raise place.refuse("expected matches, directory or namespace, found none of them")
    return journal


@dataclass(frozen=True, slots=True)
class GeometryConfig:
    """The pool's shape, for servers that do not tell it. Wins over everything that is observed."""

    slots: Annotated[int | None, Key(integer(1, 1024), "Number of slots (`-np`).", "observed")] = None
    slot_context: Annotated[int | None, Key(_TOKENS, "Most tokens one slot may hold.", "observed")] = None
    capacity: Annotated[
        int | None, Key(_TOKENS, "Cells of the whole KV buffer, in tokens (`-c`, rounded up to 256).", "observed")
    ] = None
    shared: Annotated[
        bool | None, Key(BOOLEAN, "The slots share one buffer (`--kv-unified`), or each has its own.", "observed")
    ] = None


def _check_geometry(place: Place, geometry: GeometryConfig) -> GeometryConfig:
    if geometry == GeometryConfig():
        raise place.refuse("expected slots, slot_context, capacity or shared, found none of them")
    slots, context, capacity = geometry.slots, geometry.slot_context, geometry.capacity
    if capacity is None:
        return geometry
    if context is not None and context > capacity:
        raise place.refuse(f"expected a slot_context of at most the capacity, found {context} of {capacity}")
    if slots is not None and slots > capacity:
        raise place.refuse(f"expected a capacity of at least one token per slot, found {capacity} for {slots} slots")
    if geometry.shared is False and slots is not None and context is not None and slots * context > capacity:
        raise place.refuse(
            f"slots with buffers of their own hold at most slots * slot_context = {slots * context} tokens together: "
            f"expected at least that as capacity, found {capacity}"
        )
    return geometry


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One llama-server. Needs at least one of url, unit, user_unit, journal, log; the rest is found if it can be."""

    name: Annotated[
        str,
        Key(
            NAME,
            "Value of the label `server` on all its series. Must be unique.",
            "the unit without `.service`, else the URL's host:port, else the log file's name",
        ),
    ] = ""
    url: Annotated[
        str | None,
        Key(URL, "Where it answers.", "found from the unit's process, if it runs on this host"),
    ] = None
    unit: Annotated[
        str | None, Key(UNIT, "Its systemd unit, whose journal is read and whose process is watched.", "none")
    ] = None
    user_unit: Annotated[str | None, Key(UNIT, "Its unit, if a user's systemd runs it.", "none")] = None
    journal: Annotated[
        JournalConfig | None,
        Key(Section(JournalConfig, _check_journal), "Which journal entries are its own.", "the unit's"),
    ] = None
    log: Annotated[
        LogConfig | None,
        Key(LOG, "Its log, if that does not go to a journal; it takes the journal's place.", "the journal"),
    ] = None
    api_key_file: Annotated[
        Path | None,
        Key(FILE, "File with the API key, if it demands one: the first line that is not empty.", "none"),
    ] = None
    tls: Annotated[
        TlsConfig | None,
        Key(TLS, "TLS options of an https server.", "the system's certificates"),
    ] = None
    poll_interval: Annotated[
        float | None, Key(_POLL, "As the key of the same name above, for this server.", "the key above")
    ] = None
    may_sleep: Annotated[
        bool | None,
        Key(
            BOOLEAN,
            "Whether it was started with `--sleep-idle-seconds`. Asking such a server for its slots keeps it awake and "
            "wakes it, so it is only asked while it works. Say `false` for a server whose command line cannot be seen "
            "(on another host) and which never sleeps.",
            "seen from its command line; unknown counts as `true`",
        ),
    ] = None
    geometry: Annotated[
        GeometryConfig | None,
        Key(
            Section(GeometryConfig, _check_geometry), "The pool's shape, where the server does not tell it.", "observed"
        ),
    ] = None


def _check_server(place: Place, server: ServerConfig) -> ServerConfig:
    if (server.url, server.unit, server.user_unit, server.journal, server.log) == (None,) * 5:
        raise place.refuse("expected at least one of url, unit, user_unit, journal, log, found none of them")
    if server.journal is not None and server.log is not None:
        place.note("expected journal or log, found both: the log of a server is read in one place")
    if server.unit is not None and server.user_unit is not None:
        place.note("expected unit or user_unit, found both")
    if (server.unit or server.user_unit) and server.journal is not None and server.journal.matches:
        place.note("expected a unit or journal.matches, found both: matches take the unit's place")
    if (
        not (server.unit or server.user_unit)
        and server.journal is not None
        and not server.journal.matches
        and server.journal.directory is None
    ):
        place.note("expected a unit or journal.matches beside journal.namespace, found neither")
    if server.tls is not None and server.url is not None and not server.url.startswith("https://"):
        place.note("expected an https:// url beside tls, found an http:// one")
    name = server.name or _default_name(server)
    if not name:
        raise place.refuse("expected a name, found none, and there is no unit, url or log file to take one from")
    return replace(server, name=name)


def _default_name(server: ServerConfig) -> str:
    unit = server.unit or server.user_unit
    if unit is not None:
        return unit.removesuffix(".service")
    if server.url is not None:
        return host_and_port(server.url)
    if server.log is not None:
        return name_of_file(server.log.file) if server.log.file is not None else "stdin"
    return ""


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration."""

    discovery: Annotated[
        bool | None,
        Key(
            BOOLEAN,
            "Find the llama-server processes of this host, besides the servers listed here.",
            "`true` if no server is listed, else `false`",
        ),
    ] = None
    poll_interval: Annotated[float, Key(_POLL, "Time between two looks at the slots of a busy server.", "`1s`")] = 1.0
    idle_poll_interval: Annotated[
        float,
        Key(
            duration(1, 3600),
            "Time between two looks at an idle server: only `/health` and `/props`, which cannot keep it awake. Never "
            "more often than `poll_interval`.",
            "`30s`",
        ),
    ] = 30.0
    journal: Annotated[
        JournalDefaults,
        Key(Section(JournalDefaults, _check_journal_defaults), "Where the journal is.", "the host's journal"),
    ] = JournalDefaults()
    servers: Annotated[
        tuple[ServerConfig, ...],
        Key(ListOf(Section(ServerConfig, _check_server), limit=MAX_SERVERS), "The servers to watch.", "none"),
    ] = ()
    alerting: Annotated[
        AlertingConfig | None,
        Key(ALERTING, "Whom kvexporter tells of the pool's alerts by itself: docs/alerting.md.", "off"),
    ] = None
    warnings: tuple[str, ...] = ()
    """What is suspicious but usable, one line each with file, line and key."""

    @property
    def discovers(self) -> bool:
        """Whether processes are looked for, with the default applied."""
        return not self.servers if self.discovery is None else self.discovery

    def poll_intervals(self, server: ServerConfig | None = None) -> tuple[float, float]:
        """Give (busy, idle) seconds between polls of a server; None: of a discovered one."""
        busy = self.poll_interval
        if server is not None and server.poll_interval is not None:
            busy = server.poll_interval
        return busy, max(busy, self.idle_poll_interval)

    def journal_place(self, server: ServerConfig | None = None) -> JournalDefaults:
        """Give the folder or namespace of a server's journal, with the defaults applied."""
        own = server.journal if server is not None else None
        if own is not None and (own.directory is not None or own.namespace is not None):
            return JournalDefaults(own.directory, own.namespace)
        return self.journal


def _check_config(place: Place, config: Config) -> Config:
    seen: dict[str, int] = {}
    logs: dict[Path | None, int] = {}
    nodes = next((value for key, value in place.node.value if key.value == "servers"), None)
    for index, server in enumerate(config.servers):
        at = place.inner(nodes.value[index], f"servers[{index}]") if nodes is not None else place
        if server.name in seen:
            at.note(f"expected a name of its own, found {server.name!r}, taken on line {seen[server.name]}")
        seen.setdefault(server.name, at.line)
        if server.log is not None:
            what = "a log file of its own" if server.log.file is not None else "stdin for one server only"
            if server.log.file in logs:
                at.note(f"expected {what}, found that of the server on line {logs[server.log.file]}")
            logs.setdefault(server.log.file, at.line)
    if config.discovery is False and not config.servers:
        raise place.refuse("expected servers or discovery, found neither: there would be nothing to watch")
    return config


CONFIG = Section(Config, _check_config)
"""The schema of the whole file."""


def config_of_one(name: str | None, url: str | None, log_file: Path | None) -> Config:
    """The configuration of one server whose log is a file, or is piped into standard input if there is none."""
    log = LogConfig(file=log_file) if log_file is not None else LogConfig(stdin=True)
    server = ServerConfig(url=url, log=log)
    # Named after its log rather than after its address, which all of a host's containers may share.
    return Config(servers=(replace(server, name=name or _default_name(replace(server, url=None))),))


def load_config(path: Path) -> Config:
    """Read and check a configuration file. Raises ConfigError with one line `file:line: key: …` per problem."""
    config, warnings = read_file(path, CONFIG)
    return replace(config, warnings=warnings)
