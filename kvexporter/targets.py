"""Which servers to watch: the configured ones and those found on the host, each with what is needed to watch it.

Pure: the same processes and configuration give the same targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from kvexporter.config import Config
from kvexporter.config_server import GeometryConfig, ServerConfig
from kvexporter.facts import FoundProcess
from kvexporter.llama.launch import LaunchOptions, parse_launch
from kvexporter.pool_geometry import Geometry
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.sources.llama_api import ApiTarget, local_url, unix_socket
from kvexporter.sources.log_selection import LogFileSelection, Selection, StdinSelection

DEFAULT_PORT = 8080
"""llama-server's, where its whole command line and environment are known and name no other."""

_PROGRAM = "llama-server"
_LONGEST_NAME = 200

_LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1", "0.0.0.0", "::"})  # noqa: S104  (compared, not bound)


@dataclass(frozen=True, slots=True)
class Target:
    """One server to watch."""

    name: str
    unit: str | None = None
    selection: Selection | None = None
    """Which journal entries are its own, or which other log; None: no log."""
    api: ApiTarget | None = None
    process: FoundProcess | None = None
    options: LaunchOptions | None = None
    child_of: str | None = None
    """The router that started it, whose log carries its lines."""
    port: int | None = None
    geometry: Geometry | None = None
    poll_interval: float = 1.0
    idle_poll_interval: float = 30.0
    may_sleep: bool | None = None
    configured: bool = False


def plan_targets(config: Config, found: Iterable[FoundProcess]) -> list[Target]:
    """Name every server and say how it is watched. Configured ones come first and keep their names."""
    processes = sorted(found, key=lambda process: (process.start_time, process.pid))
    options = {process.pid: options_of(process) for process in processes}
    targets: list[Target] = []
    taken: set[int] = set()
    for server in config.servers:
        process = _process_of(server, [p for p in processes if p.pid not in taken], options)
        if process is not None:
            taken.add(process.pid)
        targets.append(_configured(config, server, process, options.get(process.pid) if process else None))
    if config.discovers:
        names = {target.name for target in targets}
        by_pid: dict[int, Target] = {t.process.pid: t for t in targets if t.process is not None}
        for process in processes:
            if process.pid in taken:
                continue
            target = _discovered(config, process, options[process.pid], by_pid, names)
            names.add(target.name)
            by_pid[process.pid] = target
            targets.append(target)
    return targets


def gone_targets(config: Config, stored: Iterable[tuple[Selection, Iterable[str]]]) -> list[Target]:
    """Units of which an earlier exporter has stored what it counted, as the servers that it had found there.

    `stored`: journals, each with the names of the servers that write into it. Configured servers and routers' children
    are not among them: the ones are watched anyway, the others only while they run.
    """
    if not config.discovers:
        return []
    place, (busy, idle) = config.journal_place(), config.poll_intervals()
    directory = str(place.directory) if place.directory is not None else None
    targets = []
    for selection, names in stored:
        if not isinstance(selection, JournalSelection) or selection.about is None:
            continue
        if (selection.directory, selection.namespace) != (directory, place.namespace):
            continue
        name = selection.about.removesuffix(".service")
        if name in names:
            target = Target(name, selection.about, selection, poll_interval=busy, idle_poll_interval=idle)
            targets.append(target)
    return targets


def with_address(target: Target, host: str, port: int) -> Target:
    """The target at the address that its log told."""
    if target.api is not None and target.configured:
        return target
    prefix, tls = (target.options.api_prefix, target.options.tls) if target.options else ("", False)
    return replace(target, port=port, api=_api_of(local_url(host, port, prefix, tls), target.options))


def _configured(
    config: Config, server: ServerConfig, process: FoundProcess | None, options: LaunchOptions | None
) -> Target:
    place = config.journal_place(server)
    directory = str(place.directory) if place.directory is not None else None
    selection: Selection | None = None
    if server.log is not None:
        selection = LogFileSelection(str(server.log.file)) if server.log.file is not None else StdinSelection()
    elif server.unit is not None or server.user_unit is not None:
        selection = JournalSelection(
            unit=server.unit, user_unit=server.user_unit, directory=directory, namespace=place.namespace
        )
    elif server.journal is not None:
        selection = JournalSelection(
            matches=tuple(server.journal.matches), directory=directory, namespace=place.namespace
        )
    api = None
    if server.url is not None:
        tls = server.tls
        api = ApiTarget(
            server.url,
            api_key_file=server.api_key_file,
            ca_file=tls.ca_file if tls else None,
            cert_file=tls.cert_file if tls else None,
            key_file=tls.key_file if tls else None,
            insecure_skip_verify=tls.insecure_skip_verify if tls else False,
        )
    elif process is not None and options is not None:
        api = _local_api(process, options)
        if api is not None and server.api_key_file is not None:
            api = replace(api, api_key_file=server.api_key_file)
    busy, idle = config.poll_intervals(server)
    return Target(
        name=server.name,
        unit=server.unit or server.user_unit,
        selection=selection,
        api=api,
        process=process,
        options=options,
        port=_port(process, options) if process is not None and options is not None else None,
        geometry=_geometry(server.geometry),
        poll_interval=busy,
        idle_poll_interval=idle,
        may_sleep=server.may_sleep,
        configured=True,
    )


def _discovered(
    config: Config,
    process: FoundProcess,
    options: LaunchOptions,
    by_pid: dict[int, Target],
    names: set[str],
) -> Target:
    parent = by_pid.get(process.parent) if process.parent is not None else None
    port = _port(process, options)
    address = f"{_bracket(options.host or '127.0.0.1')}:{port}" if port is not None else f"{_PROGRAM}:{process.pid}"
    unit_name = process.unit.removesuffix(".service") if process.unit is not None and _logs(process.unit) else None
    if parent is not None:
        name = f"{parent.name}:{_model_name(options) or port or process.pid}"
    else:
        name = unit_name if unit_name is not None and unit_name not in names else address
    if name in names:
        name = f"{name}:{process.pid if parent is None or port is None else port}"
    busy, idle = config.poll_intervals()
    return Target(
        name=name,
        unit=process.unit if unit_name is not None else None,
        selection=None if parent is not None else _selection(config, process),
        api=_local_api(process, options),
        process=process,
        options=options,
        child_of=parent.name if parent is not None else None,
        port=port,
        poll_interval=busy,
        idle_poll_interval=idle,
    )


def options_of(process: FoundProcess) -> LaunchOptions:
    """How a process was started. An environment that cannot be read is not an empty one: it may say anything."""
    return parse_launch(process.arguments[1:], process.environment if process.environment_readable else None)


def _selection(config: Config, process: FoundProcess) -> JournalSelection | None:
    place = config.journal_place()
    directory = str(place.directory) if place.directory is not None else None
    # A unit comes first, also a container's own (a quadlet's). Podman's monitor, which writes what a container says
    # with its id, and the container itself, which writes without one (LogDriver=passthrough), both run in the unit's
    # control group; and the unit stays the same at the next start, when the container has another id.
    if process.unit is not None and _logs(process.unit):
        if process.user_unit:
            return JournalSelection(user_unit=process.unit, directory=directory, namespace=place.namespace)
        return JournalSelection(unit=process.unit, directory=directory, namespace=place.namespace)
    if process.container is None:
        return None
    return JournalSelection(
        matches=_container_groups(process.container), directory=directory, namespace=place.namespace
    )


def _container_groups(container: str) -> tuple[dict[str, str], ...]:
    """A container's lines, as it cannot be known from outside who writes them.

    Docker and Podman's monitor put its id in a field. A container of Podman's that writes by itself, as those of a kube
    quadlet do, has a scope of its own, the system's or a user's, which is the entries' unit then.
    """
    scope = f"libpod-{container}.scope"
    return {"CONTAINER_ID_FULL": container}, {"_SYSTEMD_UNIT": scope}, {"_SYSTEMD_USER_UNIT": scope}


def _logs(unit: str) -> bool:
    """A service's output goes to the journal; a scope's stays on its terminal."""
    return unit.endswith(".service")


def _process_of(
    server: ServerConfig, processes: Sequence[FoundProcess], options: dict[int, LaunchOptions]
) -> FoundProcess | None:
    """The running process of a configured server: by its unit, its log file, or the port of a local URL."""
    unit = server.unit or server.user_unit
    candidates = [p for p in processes if unit is not None and p.unit == unit]
    log_file = server.log.file if server.log is not None else None
    if not candidates and unit is None and log_file is not None:
        candidates = [p for p in processes if options[p.pid].log_file == str(log_file)]
    if not candidates and unit is None and server.url is not None:
        parts = urlsplit(server.url)
        if parts.hostname in _LOCAL_HOSTS:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            candidates = [p for p in processes if _port(p, options[p.pid]) == port]
            unknown = [p for p in processes if _port(p, options[p.pid]) is None]
            if not candidates and port == DEFAULT_PORT and len(unknown) == 1:
                candidates = unknown  # none is more likely
    if len(candidates) > 1:
        # A router's children live in its unit; the router is the one whose parent is none of them.
        pids = {p.pid for p in candidates}
        candidates = [p for p in candidates if p.parent not in pids] or candidates
    return candidates[0] if candidates else None


def _port(process: FoundProcess, options: LaunchOptions) -> int | None:
    """Where a server of this host listens; None where an environment that cannot be read may say it."""
    if options.port is not None and (options.port in process.listen_ports or not process.listen_ports):
        return options.port
    if process.listen_ports:
        return process.listen_ports[0]
    return DEFAULT_PORT if options.environment_known else None


def _local_api(process: FoundProcess, options: LaunchOptions) -> ApiTarget | None:
    """How to reach a server of this host; None where its address is not known, which its log may tell."""
    port = _port(process, options)
    if port is None and unix_socket(options.host) is None:
        return None
    return _api_of(local_url(options.host, port or DEFAULT_PORT, options.api_prefix, options.tls), options)


def _model_name(options: LaunchOptions) -> str | None:
    """What a model is called: by its alias, else by its file."""
    name = options.alias or (Path(options.model).name if options.model is not None else None)
    return name[:_LONGEST_NAME] if name is not None else None


def _api_of(url: str, options: LaunchOptions | None) -> ApiTarget | None:
    """How to reach a server of this host with what its command line tells; None where that is no address."""
    try:
        return _api_target(url, options)
    except ValueError:
        return None  # anybody may start a process of that name with any --host


def _api_target(url: str, options: LaunchOptions | None) -> ApiTarget:
    if options is None:
        return ApiTarget(url)
    key_file = Path(options.api_key_file) if options.api_key_file is not None else None
    return ApiTarget(
        url,
        unix_socket=unix_socket(options.host),
        # A relative path would be one in the server's own folder.
        api_key_file=key_file if key_file is not None and key_file.is_absolute() else None,
        # The certificate of a server on this host names the host's public name, not its loopback address.
        insecure_skip_verify=options.tls,
    )


def _geometry(configured: GeometryConfig | None) -> Geometry | None:
    if configured is None:
        return None
    return Geometry(configured.slots, configured.slot_context, configured.capacity, configured.shared, "config")


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host
