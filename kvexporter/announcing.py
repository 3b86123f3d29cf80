"""What happens to the servers, said in the exporter's own log: errors, outages, exits; once each, and in words."""

from __future__ import annotations

import logging

from kvexporter.facts import UnitEvent, UnitExited, UnitOutOfMemory
from kvexporter.incident_words import incident_words
from kvexporter.snapshot import ServerState
from kvexporter.watched import Watched

log = logging.getLogger("kvexporter.servers")

RECENT_SECONDS = 60.0
"""What the log tells of longer ago is no news."""
SAY_AGAIN_SECONDS = 60.0
"""A unit that ends again and again ends many times a minute."""
SILENT_SECONDS = 60.0
"""A llama-server has written its first lines long before."""


def say_news(watched: Watched, now: float, *, caught_up: bool, log_expected: bool) -> None:
    """Say what has happened to a server since the last call. Before its log is `caught_up` with, all is old news."""
    if not caught_up:
        return
    model, said = watched.model, watched.announced
    if model.incidents_seen != said.incidents:
        _say_incidents(watched, now)
    _say_state(watched, model.state)
    process = watched.target.process
    silent = log_expected and not model.has_log and process is not None and now - process.start_time > SILENT_SECONDS
    if silent and not said.silent:
        said.silent = True
        log.warning(
            "%s: nothing of llama-server's own is in its log, so requests that die for want of context are not "
            "counted: does it log elsewhere (StandardOutput=, --log-file, --log-disable)?",
            model.name,
        )


def say_unit_event(watched: Watched, event: UnitEvent, at: float, now: float) -> None:
    """Say that a unit's process has ended, if it was just now."""
    match event:
        case UnitExited("exited", status):
            text = f"ended with exit status {status}"
        case UnitExited(_, status):
            text = f"was killed by signal {status}"
        case UnitOutOfMemory():
            text = "was killed because memory ran out"
        case _:
            return
    said = watched.announced
    if now - at > RECENT_SECONDS or (text == said.exit and now - said.exit_at < SAY_AGAIN_SECONDS):
        return
    said.exit, said.exit_at = text, now
    log.warning("%s: its process %s", watched.model.name, text)


def say_no_log(watched: Watched) -> None:
    """Say that no log of a server is read."""
    log.log(
        logging.INFO if watched.target.process is None else logging.WARNING,
        "%s: its log is not in a journal, so requests that die for want of context are not counted: run it as a "
        "systemd service, or name its entries with journal.matches or its file with log.file",
        watched.target.name,
    )


def _say_incidents(watched: Watched, now: float) -> None:
    model, said = watched.model, watched.announced
    count = model.incidents_seen - said.incidents
    said.incidents = model.incidents_seen
    if count <= 0:
        return
    new = [incident for incident in model.snapshot(now).incidents[-count:] if incident.cause == "pool"]
    fresh = [incident for incident in new if now - incident.ended <= RECENT_SECONDS]
    if len(new) > len(fresh):
        log.warning("%s: %d earlier times the pool ran out are in its log", model.name, len(new) - len(fresh))
    if fresh:
        more = f" (and {len(fresh) - 1} times more in the same moment)" if len(fresh) > 1 else ""
        log.warning("%s: %s%s", model.name, incident_words(fresh[-1]), more)


def _say_state(watched: Watched, state: ServerState | None) -> None:
    said = watched.announced
    if state == "down":
        if not said.down:
            log.warning("%s is down", watched.model.name)
        said.down = True
    elif state in ("ready", "sleeping"):
        if said.down:
            log.info("%s is up again", watched.model.name)
        said.down = False
