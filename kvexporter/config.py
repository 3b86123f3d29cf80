"""The configuration file as a whole, and `load_config`, which refuses whatever cannot be meant.

The file is optional. Each key's meaning stands beside its field, here and in the sections' own files; from these
docs/configuration.md is made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from kvexporter.config_alerting import ALERTING, AlertingConfig
from kvexporter.config_journal import JOURNAL_DEFAULTS, JournalDefaults
from kvexporter.config_kinds import BOOLEAN, duration
from kvexporter.config_log import LogConfig
from kvexporter.config_reading import ConfigError, Key, ListOf, Place, Section, read_file
from kvexporter.config_server import POLL_INTERVAL, SERVER, ServerConfig, default_name

__all__ = ["CONFIG", "Config", "ConfigError", "config_of_one", "load_config"]

MAX_SERVERS = 200


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
    poll_interval: Annotated[
        float, Key(POLL_INTERVAL, "Time between two looks at the slots of a busy server.", "`1s`")
    ] = 1.0
    idle_poll_interval: Annotated[
        float,
        Key(
            duration(1, 3600),
            "Time between two looks at an idle server: only `/health` and `/props`, which cannot keep it awake; "
            "`/props` every 5 minutes where its log is read. Never more often than `poll_interval`.",
            "`30s`",
        ),
    ] = 30.0
    journal: Annotated[
        JournalDefaults,
        Key(JOURNAL_DEFAULTS, "Where the journal is.", "the host's journal"),
    ] = JournalDefaults()  # noqa: RUF009 # frozen
    servers: Annotated[
        tuple[ServerConfig, ...],
        Key(ListOf(SERVER, limit=MAX_SERVERS), "The servers to watch.", "none"),
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
    return Config(servers=(replace(server, name=name or default_name(replace(server, url=None))),))


def load_config(path: Path) -> Config:
    """Read and check a configuration file. Raises ConfigError with one line `file:line: key: …` per problem."""
    config, warnings = read_file(path, CONFIG)
    return replace(config, warnings=warnings)
