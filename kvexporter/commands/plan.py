"""`kvexporter plan`: every sound way to cut the KV cache for the requests that were measured."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from kvexporter.commands.any_path import AnyPath
from kvexporter.commands.configured import configured
from kvexporter.commands.failures import UnusableError
from kvexporter.commands.finite_range import FiniteRange

if TYPE_CHECKING:
    from kvexporter.diagnosing.reading import LogInput
    from kvexporter.facts import GpuReport, HostMemory
    from kvexporter.reports.plan import Plan
    from kvexporter.reports.plan_running import Running
    from kvexporter.reports.plan_told import Told
    from kvexporter.targets import Target

_FILE = AnyPath()


def _read_by(read: Callable[[str], object]) -> Callable[[click.Context, click.Parameter, str | None], object]:
    """A callback that reads an option's text with a function that raises ValueError."""

    def callback(context: click.Context, parameter: click.Parameter, value: str | None) -> object:
        if value is None:
            return None
        try:
            return read(value)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from None

    return callback


def _size(text: str) -> int:
    from kvexporter.reports.quantities import parse_size

    return parse_size(text)


def _moment(text: str) -> float:
    from kvexporter.time_words import parse_moment

    return parse_moment(text, time.time())


def _cache_type(text: str) -> str:
    from kvexporter.reports.plan_facts import known_cache_type

    return known_cache_type(text)


@click.command(short_help="Say how to cut the KV cache for the requests that were measured.")
@click.option(
    "--storage.path", "storage_path", type=_FILE, default=None, metavar="FILE",
    help="The exporter's store, whose measured sizes are used where nothing else is given. "
    "[default: that of the packaged unit, else of this user]",
)  # fmt: skip
@click.option("--server", metavar="NAME", help="The server, where several are known.")
@click.option(
    "--config.file", "--config", "config_file", type=_FILE, metavar="FILE",
    help="The exporter's configuration, for names and addresses of servers.",
)  # fmt: skip
@click.option(
    "--journal-export", type=_FILE, metavar="FILE",
    help="Measure from what `journalctl -u UNIT -o export` wrote; - for standard input.",
)  # fmt: skip
@click.option(
    "--log-file", type=_FILE, metavar="FILE", help="Measure from what the server printed; - for standard input."
)
@click.option("--journal", type=_FILE, metavar="DIR", help="Measure from a folder of journal files.")
@click.option(
    "--unit", "-u", metavar="UNIT", help="Measure from this unit's entries, of --journal or of this host's journal."
)
@click.option(
    "--since", metavar="TIME", callback=_read_by(_moment),
    help="Measure from nothing older in a journal: 2026-11-30, '2026-11-30 14:05', yesterday, '2 weeks ago', @UNIX.",
)  # fmt: skip
@click.option(
    "--p95", type=click.IntRange(min=1), metavar="TOKENS",
    help="95 % of all requests hold no more than this, prompt and answer together; nothing is measured.",
)  # fmt: skip
@click.option("--max", "largest", type=click.IntRange(min=1), metavar="TOKENS", help="The largest request; with --p95.")
@click.option(
    "--slots", type=click.IntRange(1, 256), metavar="N",
    help="Requests that are to run at a time. [default: as many as today]",
)  # fmt: skip
@click.option(
    "--model", "model_file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="The model (GGUF), whose header tells the cache's size and the training context.",
)  # fmt: skip
@click.option(
    "--kv-bytes-per-token", type=FiniteRange(min=1, max=1 << 30), metavar="BYTES",
    help="What one token takes in the cache, where no file or log tells it.",
)  # fmt: skip
@click.option(
    "--cache-type", metavar="TYPE", callback=_read_by(_cache_type),
    help="Type of the cache today, and of --kv-bytes-per-token. [default: the running server's, else f16]",
)  # fmt: skip
@click.option(
    "--training-context", type=click.IntRange(min=1), metavar="TOKENS",
    help="What the model was trained on, where no file tells it.",
)  # fmt: skip
@click.option(
    "--memory", metavar="SIZE", callback=_read_by(_size),
    help="Memory for the whole cache: bytes, or 512M, 16G. [default: what is free now where the cache is, and what "
    "today's takes]",
)  # fmt: skip
@click.option("--clients", is_flag=True, help="Also say what to tell the clients.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True,
    help="How it is printed.",
)  # fmt: skip
def plan(
    storage_path: Path | None,
    server: str | None,
    config_file: Path | None,
    journal_export: Path | None,
    log_file: Path | None,
    journal: Path | None,
    unit: str | None,
    since: float | None,
    p95: int | None,
    largest: int | None,
    slots: int | None,
    model_file: Path | None,
    kv_bytes_per_token: float | None,
    cache_type: str | None,
    training_context: int | None,
    memory: int | None,
    clients: bool,
    form: Literal["text", "json", "markdown"],
) -> int:
    """Say how to cut the KV cache: every sound configuration for the sizes that requests really have.

    Sizes come from the exporter's store, from an old log, or from --p95. Of each configuration the window that is sure
    for each slot, the share of measured requests that fit, the memory, and the flags ready to paste. The 95th
    percentile decides; nothing overcommitted is proposed.

    Exit status 1 if no configuration is enough for it, 2 if too little is known.
    """
    files = sum(each is not None for each in (journal_export, log_file, journal))
    if files + (p95 is not None) > 1:
        raise click.UsageError("expected one of --journal-export, --log-file, --journal and --p95")
    if (unit is not None or since is not None) and (journal_export, log_file, p95) != (None, None, None):
        raise click.UsageError("--unit and --since choose in a journal: nothing else is read with them")
    if largest is not None and (p95 is None or largest < p95):
        raise click.UsageError("--max goes with --p95 and is no less than it")
    from kvexporter.reports.plan_facts import PlanError, Said, plan_of
    from kvexporter.reports.plan_running import read_model

    header = read_model([str(model_file.absolute())]) if model_file is not None else None
    said = Said(p95, largest, slots, kv_bytes_per_token, cache_type, training_context, memory, header)
    told: Told | None = None
    running: Running | None = None
    gpus: GpuReport | None = None
    host: HostMemory | None = None
    logged = files > 0 or unit is not None or since is not None
    if logged:
        from kvexporter.diagnosing.reading import LogInput

        told = _logged(LogInput(unit, journal, journal_export, log_file, since), server)
    if not files:  # a log in a file may be of any host
        targets = _targets(config_file)
        if p95 is None and not logged:
            told = _stored(storage_path, server)
        target = _target(targets, told.name if told is not None else server, needed=told is None and slots is None)
        running, gpus, host = _here(targets, target)
    try:
        made = plan_of(said, told, running, gpus, host)
    except PlanError as error:
        raise UnusableError(str(error)) from None
    _print(made, form, clients=clients)
    return int(made.first is None)


def _print(made: Plan, form: str, *, clients: bool) -> None:
    if form == "json":
        from kvexporter.reports.plan_json import plan_json

        click.echo(plan_json(made, clients=clients), nl=False)
    elif form == "markdown":
        from kvexporter.reports.plan_markdown import plan_markdown

        click.echo(plan_markdown(made, clients=clients), nl=False)
    else:
        from kvexporter.reports.plan_text import print_plan
        from kvexporter.reports.terminal import show

        show(lambda console: print_plan(made, console, clients=clients))


def _logged(source: LogInput, server: str | None) -> Told:
    from kvexporter.reports.plan_told import NoServerError, from_log, only_server
    from kvexporter.sources.journal_library import JournalUnavailableError
    from kvexporter.sources.recording import RecordingError

    try:
        if not sys.stderr.isatty():
            return only_server(from_log(source), server)
        from kvexporter.reports.progress_bar import ProgressBar

        with ProgressBar() as bar:
            found = from_log(source, bar.reached)
        return only_server(found, server)
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        raise UnusableError(f"{where}{error.strerror or error}") from None
    except (RecordingError, JournalUnavailableError, ValueError, NoServerError) as error:
        raise UnusableError(str(error)) from None


def _stored(storage_path: Path | None, server: str | None) -> Told:
    from kvexporter.options import SYSTEM_STORE, default_storage_path
    from kvexporter.reports.plan_told import NoServerError, from_stores, only_server
    from kvexporter.store_file import StoreError

    stores = (SYSTEM_STORE, default_storage_path()) if storage_path is None else (storage_path,)
    try:
        found = from_stores(stores)
        if not found:
            places = " or ".join(str(path) for path in stores)
            raise UnusableError(
                f"there is no store in {places}: run the exporter for a while, or give --journal-export, --log-file, "
                "--journal or --p95"
            )
        return only_server(found, server)
    except (StoreError, OSError, NoServerError) as error:
        raise UnusableError(str(error)) from None


def _targets(config_file: Path | None) -> list[Target]:
    from kvexporter.reports.plan_running import find_servers

    config = configured(config_file)
    try:
        return find_servers(config)
    except OSError as error:
        raise UnusableError(f"/proc: {error.strerror}") from None


def _target(targets: list[Target], name: str | None, *, needed: bool) -> Target | None:
    """The running server of this name, or the only one where one is needed."""
    if name is not None:
        found = next((target for target in targets if target.name == name), None)
        if found is None and needed:
            raise UnusableError(f"no server {name!r} runs here: say --slots to plan without it")
        return found
    if not needed:
        return None
    if len(targets) != 1:
        running = ", ".join(target.name for target in targets[:20]) or "none"
        raise UnusableError(f"which server? Say --server or --slots; running here: {running}")
    return targets[0]


def _here(targets: list[Target], target: Target | None) -> tuple[Running | None, GpuReport | None, HostMemory | None]:
    """The server, and this host's memory unless the server runs on another one."""
    from kvexporter.reports.plan_running import look_at, read_memory

    gpus, host = read_memory(each.process.pid for each in targets if each.process is not None)
    if target is None:
        return None, gpus, host
    running = look_at(target, gpus)
    return (running, gpus, host) if target.process is not None else (running, None, None)
