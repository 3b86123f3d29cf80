"""The section of one server: where it answers, which log is its own, and what it does not tell of itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from kvexporter.config_journal import JOURNAL, JournalConfig
from kvexporter.config_kinds import BOOLEAN, FILE, NAME, UNIT, URL, duration, host_and_port, integer
from kvexporter.config_log import LOG, LogConfig, name_of_file
from kvexporter.config_reading import Key, Place, Section
from kvexporter.config_tls import TLS, TlsConfig

POLL_INTERVAL = duration(0.2, 3600)
_TOKENS = integer(1, 2**40)


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
        Key(JOURNAL, "Which journal entries are its own.", "the unit's"),
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
        float | None, Key(POLL_INTERVAL, "As the key of the same name above, for this server.", "the key above")
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
    name = server.name or default_name(server)
    if not name:
        raise place.refuse("expected a name, found none, and there is no unit, url or log file to take one from")
    return replace(server, name=name)


def default_name(server: ServerConfig) -> str:
    """What a server without a name is called; empty where there is nothing to take one from."""
    unit = server.unit or server.user_unit
    if unit is not None:
        return unit.removesuffix(".service")
    if server.url is not None:
        return host_and_port(server.url)
    if server.log is not None:
        return name_of_file(server.log.file) if server.log.file is not None else "stdin"
    return ""


SERVER = Section(ServerConfig, _check_server)
