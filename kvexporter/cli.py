"""The command line: `kvexporter [run]`, `check` and `replay`.

Exit status: 0 all well, 1 something was found or failed, 2 the command line or the configuration cannot be used.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

import click

import kvexporter
from kvexporter.commands.demo import demo
from kvexporter.commands.diagnose import diagnose
from kvexporter.commands.finite_range import FiniteRange
from kvexporter.commands.incidents import incidents
from kvexporter.commands.lint import lint
from kvexporter.commands.plan import plan
from kvexporter.commands.verify import verify
from kvexporter.logs import LEVELS, LogFormat, set_up_logging
from kvexporter.options import (
    SYSTEM_STORE,
    ListenAddress,
    OneServer,
    RunOptions,
    default_storage_path,
    parse_listen_address,
    parse_name,
    parse_storage_path,
    parse_telemetry_path,
    parse_url,
)

T = TypeVar("T")
_FILE = click.Path(path_type=Path)
_DEFAULT = "run"


class _Failure(click.ClickException):
    """Ends the command with a message and exit status 1."""

    exit_code = 1


class _Unusable(click.ClickException):
    """Ends the command with a message and exit status 2."""

    exit_code = 2


class _Parsed(click.ParamType[T]):
    """A parameter read by a function that raises ValueError with what was expected."""

    def __init__(self, name: str, read: Callable[[str], T]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return] # a default, already converted
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Commands(click.Group):
    """A group whose command `run` need not be named, and whose help shows that command's options too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("--help", "-h", "--version")):
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        rows = [row for param in self.commands[_DEFAULT].params if (row := param.get_help_record(ctx)) is not None]
        with formatter.section("Options of run"):
            formatter.write_dl(rows)


_config_option = click.option(
    "--config.file", "--config", "config_file", type=_FILE, metavar="FILE",
    help="Configuration file (YAML). Without one, the llama-server processes of this host are found.",
)  # fmt: skip

_log_file_option = click.option(
    "--log.file", "log_file", type=_FILE, metavar="FILE",
    help="Watch one server, whose log is this file, in place of a configuration file. It is followed over rotation.",
)  # fmt: skip
_name_option = click.option(
    "--name", "name", type=_Parsed("name", parse_name), default=None, metavar="NAME",
    help="The name of that server.  [default: after its log]",
)  # fmt: skip
_url_option = click.option(
    "--url", "url", type=_Parsed("url", parse_url), default=None, metavar="URL",
    help="Where that server answers.  [default: where its log says]",
)  # fmt: skip


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 all well, 1 something was found or failed, 2 wrong command line or configuration.",
)
@click.version_option(kvexporter.__version__, prog_name="kvexporter", message="%(prog)s %(version)s")
def commands() -> None:
    """Watch the KV pool of this host's llama-servers: Prometheus metrics about who fills it and whose requests die.

    Without a command: run.
    """


@commands.command()
@_config_option
@click.option(
    "--config.check", "config_check", is_flag=True,
    help="Check --config.file and --web.config.file, say what is wrong, and exit.",
)  # fmt: skip
@click.option(
    "--web.listen-address", "listen_addresses", type=_Parsed("address", parse_listen_address), multiple=True,
    default=[str(address) for address in RunOptions().listen_addresses], show_default=True, metavar="HOST:PORT",
    help="Address to answer on, also [IPv6]:PORT, or :PORT for all addresses. Can be given several times.",
)  # fmt: skip
@click.option(
    "--web.config.file", "web_config_file", type=_FILE, metavar="FILE",
    help="File of TLS, basic authentication and headers, in the format of Prometheus' exporters.",
)  # fmt: skip
@click.option(
    "--web.telemetry-path", "telemetry_path", type=_Parsed("path", parse_telemetry_path),
    default=RunOptions().telemetry_path, show_default=True, metavar="PATH", help="Path of the metrics.",
)  # fmt: skip
@click.option(
    "--web.enable-lifecycle", "enable_lifecycle", is_flag=True,
    help="Allow POST /-/reload to whoever can connect. SIGHUP always reloads.",
)  # fmt: skip
@click.option(
    "--storage.path", "storage_path", type=_Parsed("path", parse_storage_path), default=None, metavar="FILE",
    help="File that keeps counters and journal positions over restarts; empty for none. "
    "[default: kvexporter.db in $STATE_DIRECTORY, else in the user's state folder]",
)  # fmt: skip
@_log_file_option
@click.option(
    "--log.stdin", "log_stdin", is_flag=True,
    help="Watch one server, whose log is piped into standard input: docker logs -f NAME 2>&1 | kvexporter --log.stdin",
)  # fmt: skip
@_name_option
@_url_option
@click.option(
    "--log.level", "log_level", type=click.Choice(LEVELS), default="info", show_default=True,
    help="Lowest level that kvexporter itself logs.",
)  # fmt: skip
@click.option(
    "--log.format", "log_format", type=click.Choice(["logfmt", "json"]), default="logfmt", show_default=True,
    help="Format of kvexporter's own log, on stderr.",
)  # fmt: skip
def run(
    config_file: Path | None,
    config_check: bool,
    listen_addresses: tuple[ListenAddress, ...],
    web_config_file: Path | None,
    telemetry_path: str,
    enable_lifecycle: bool,
    storage_path: Path | Literal[""] | None,
    log_file: Path | None,
    log_stdin: bool,
    name: str | None,
    url: str | None,
    log_level: str,
    log_format: LogFormat,
) -> int:
    """Run the exporter (the default command)."""
    one_server = _one_server(config_file, log_file, log_stdin, name, url)
    if config_check:
        return _check_config(config_file, web_config_file)
    set_up_logging(log_level, log_format)
    # httpx brings a command line of its own, which loads rich and pygments (4 MB) if they are installed.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type] # None: cannot be imported
    from kvexporter.config import ConfigError
    from kvexporter.daemon import run_daemon
    from kvexporter.web.serve import ListenError

    options = RunOptions(config_file, tuple(dict.fromkeys(listen_addresses)), telemetry_path, enable_lifecycle)
    options = replace(options, storage_path=default_storage_path() if storage_path is None else storage_path or None)
    options = replace(options, web_config_file=web_config_file, one_server=one_server)
    try:
        return run_daemon(options)
    except ConfigError as error:
        raise _Unusable(str(error)) from None
    except ListenError as error:
        raise _Failure(str(error)) from None


def _one_server(
    config_file: Path | None, log_file: Path | None, log_stdin: bool, name: str | None, url: str | None
) -> OneServer | None:
    """The server that the command line tells of, if it does."""
    if log_file is None and not log_stdin:
        if name is not None or url is not None:
            raise click.UsageError("--name and --url belong to --log.file or --log.stdin")
        return None
    if log_file is not None and log_stdin:
        raise click.UsageError("expected --log.file or --log.stdin, found both")
    if config_file is not None:
        raise click.UsageError("--log.file and --log.stdin take the place of --config.file, which has log: by server")
    return OneServer(log_file.absolute() if log_file is not None else None, name, url)


def _check_config(config_file: Path | None, web_config_file: Path | None) -> int:
    from kvexporter.config import ConfigError, load_config
    from kvexporter.web.live_config import check_web_config

    if config_file is None and web_config_file is None:
        raise click.UsageError("--config.check needs --config.file or --web.config.file")
    errors = []
    try:
        if config_file is not None:
            config = load_config(config_file)
            number = len(config.servers)
            _say_usable(config_file, f"{number} server{'' if number == 1 else 's'}", config.warnings)
    except ConfigError as error:
        errors.append(str(error))
    try:
        if web_config_file is not None:
            said, warnings = check_web_config(web_config_file)
            _say_usable(web_config_file, said, warnings)
    except ConfigError as error:
        errors.append(str(error))
    if errors:
        raise _Unusable("\n".join(errors))
    return 0


def _say_usable(file: Path, what: str, warnings: Sequence[str]) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(f"{file}: usable, {what}")


@commands.command(short_help="Say what can be read, what is missing, and how to mend it.")
@_config_option
@click.option(
    "--storage.path", "storage_path", type=_FILE, default=None, metavar="FILE",
    help="File that the exporter keeps its counters in; read to compare the servers' last two starts. "
    "[default: that of the packaged unit, else of this user]",
)  # fmt: skip
@_log_file_option
@_name_option
@_url_option
def check(
    config_file: Path | None, storage_path: Path | None, log_file: Path | None, name: str | None, url: str | None
) -> int:
    """Say what was found, what can be read, what is missing, and how to mend it.

    Exit status 1 if something is missing. Run it as the user that kvexporter runs as: for the packaged unit, whose user
    exists only while it runs, root is told a command for that.
    """
    from kvexporter.config import Config, ConfigError, config_of_one, load_config
    from kvexporter.reports.check import exit_status, format_findings, gather

    one = _one_server(config_file, log_file, False, name, url)
    try:
        config = load_config(config_file) if config_file is not None else Config()
        if one is not None:
            config = config_of_one(one.name, one.url, one.log_file)
    except ConfigError as error:
        raise _Unusable(str(error)) from None
    stores = (SYSTEM_STORE, default_storage_path()) if storage_path is None else (storage_path,)
    command = _own_command("check", config_file, storage_path)
    if one is not None:
        command += [f"--log.file={one.log_file}", *(f"--{k}={v}" for k, v in (("name", name), ("url", url)) if v)]
    findings = gather(config, stores=stores, command=command)
    click.echo(format_findings(findings), nl=False)
    return exit_status(findings)


def _own_command(name: str, config_file: Path | None, storage_path: Path | None) -> list[str]:
    """The command line of this process, as another user can give it from any folder."""
    program = Path(sys.argv[0]).absolute()
    words = [sys.executable, "-m", "kvexporter"] if program.name == "__main__.py" else [str(program)]
    words.append(name)
    for option, file in (("--config.file", config_file), ("--storage.path", storage_path)):
        if file is not None:
            words += [option, str(file.absolute())]
    return words


@commands.command(short_help="Print the metrics that a recording would have given.")
@click.argument("directory", type=_FILE, required=False, metavar="[DIR]")
@click.option(
    "--journal-export", type=_FILE, metavar="FILE",
    help="What `journalctl -u UNIT -o export` wrote; - for standard input. Without -u, every unit that is a "
    "llama-server's becomes a server.",
)  # fmt: skip
@click.option(
    "--log-file", type=_FILE, metavar="FILE",
    help="What the server printed, line by line; - for standard input. Times are seconds since its start.",
)  # fmt: skip
@click.option("--polls", type=_FILE, metavar="FILE", help="Recorded answers of the server's endpoints (JSON lines).")
@click.option(
    "--at", type=FiniteRange(min=0), metavar="SECONDS",
    help="Stop this long after the first line instead of at the end.",
)  # fmt: skip
def replay(
    directory: Path | None, journal_export: Path | None, log_file: Path | None, polls: Path | None, at: float | None
) -> int:
    """Run a recording through the exporter's model and print the metrics at its end.

    What happened until then goes to stderr in a few lines: how the pool is cut, how full it was at most, and each
    incident with its time and who held what. Exit status 1 if no line is a llama-server's.

    DIR holds journal.export or server.log, and where there are any polls.jsonl and requests.json.
    """
    if (directory is not None) + (journal_export is not None) + (log_file is not None) != 1:
        raise click.UsageError("expected one of DIR, --journal-export and --log-file")
    from kvexporter.metrics.exposition import exposition
    from kvexporter.replay import replay as run_recording
    from kvexporter.replay_input import NothingFoundError
    from kvexporter.reports.replay_summary import replay_summary
    from kvexporter.sources.recording import RecordingError

    try:
        replayed = run_recording(directory, journal_export, log_file, polls, at)
    except NothingFoundError as error:
        raise _Failure(str(error)) from None
    except RecordingError as error:
        raise _Unusable(str(error)) from None
    except OSError as error:
        raise _Unusable(f"{error.filename}: {error.strerror}") from None
    click.echo(exposition(replayed.snapshot), nl=False)
    sys.stdout.flush()
    summary = replay_summary(replayed.snapshot, replayed.peaks, since_start=replayed.since_start)
    click.echo(summary, nl=False, err=True)
    return 0


commands.add_command(demo)
commands.add_command(diagnose)
commands.add_command(incidents)
commands.add_command(lint)
commands.add_command(plan)
commands.add_command(verify)


def run_cli(arguments: Sequence[str]) -> int:
    """Run a command line; give its exit status. Errors are one line each on stderr."""
    try:
        status = commands.main(list(arguments), prog_name="kvexporter", standalone_mode=False)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "kvexporter"
        return _fail(f"{error.format_message()} (see {command} --help)", error.exit_code)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except click.Abort:
        return 130
    return int(status or 0)


def _fail(message: str, status: int) -> int:
    for line in message.splitlines():
        click.echo(f"kvexporter: {line}", err=True)
    return status


def main() -> NoReturn:
    """Entry point of the command `kvexporter`."""
    _open_closed_streams()
    try:
        sys.exit(run_cli(sys.argv[1:]))
    except OSError as error:
        if error.errno not in _NO_ROOM or error.filename is not None:
            raise
    # What could not be written would be tried again at the end, with a traceback.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(_fail("what is printed cannot be written: no room is left where it goes", 2))


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _open_closed_streams() -> None:
    """Have what was closed before the start (`<&-`) read as empty, or written to nowhere."""
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))
