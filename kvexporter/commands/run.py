"""`kvexporter [run]`: the exporter."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import click

from kvexporter.commands.failures import FailedError, UnusableError
from kvexporter.commands.parsed import Parsed
from kvexporter.commands.which_servers import (
    FILE,
    config_option,
    log_file_option,
    name_option,
    one_server,
    url_option,
)
from kvexporter.logs import LEVELS, LogFormat, set_up_logging
from kvexporter.options import (
    ListenAddress,
    RunOptions,
    default_storage_path,
    parse_listen_address,
    parse_storage_path,
    parse_telemetry_path,
)


@click.command()
@config_option
@click.option(
    "--config.check", "config_check", is_flag=True,
    help="Check --config.file and --web.config.file, say what is wrong, and exit.",
)  # fmt: skip
@click.option(
    "--web.listen-address", "listen_addresses", type=Parsed("address", parse_listen_address), multiple=True,
    default=[str(address) for address in RunOptions().listen_addresses], show_default=True, metavar="HOST:PORT",
    help="Address to answer on, also [IPv6]:PORT, or :PORT for all addresses. Can be given several times.",
)  # fmt: skip
@click.option(
    "--web.config.file", "web_config_file", type=FILE, metavar="FILE",
    help="File of TLS, basic authentication and headers, in the format of Prometheus' exporters.",
)  # fmt: skip
@click.option(
    "--web.telemetry-path", "telemetry_path", type=Parsed("path", parse_telemetry_path),
    default=RunOptions().telemetry_path, show_default=True, metavar="PATH", help="Path of the metrics.",
)  # fmt: skip
@click.option(
    "--web.enable-lifecycle", "enable_lifecycle", is_flag=True,
    help="Allow POST /-/reload to whoever can connect. SIGHUP always reloads.",
)  # fmt: skip
@click.option(
    "--storage.path", "storage_path", type=Parsed("path", parse_storage_path), default=None, metavar="FILE",
    help="File that keeps counters and journal positions over restarts; empty for none. "
    "[default: kvexporter.db in $STATE_DIRECTORY, else in the user's state folder]",
)  # fmt: skip
@log_file_option
@click.option(
    "--log.stdin", "log_stdin", is_flag=True,
    help="Watch one server, whose log is piped into standard input: docker logs -f NAME 2>&1 | kvexporter --log.stdin",
)  # fmt: skip
@name_option
@url_option
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
    one = one_server(config_file, log_file, log_stdin, name, url)
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
    options = replace(options, web_config_file=web_config_file, one_server=one)
    try:
        return run_daemon(options)
    except ConfigError as error:
        raise UnusableError(str(error)) from None
    except ListenError as error:
        raise FailedError(str(error)) from None


def _check_config(config_file: Path | None, web_config_file: Path | None) -> int:
    from kvexporter.config import ConfigError, load_config
    from kvexporter.reading_at_start import read_at_start
    from kvexporter.web.live_config import check_web_config

    if config_file is None and web_config_file is None:
        raise click.UsageError("--config.check needs --config.file or --web.config.file")
    errors = []
    try:
        if config_file is not None:
            config = read_at_start(partial(load_config, config_file))
            number = len(config.servers)
            _say_usable(config_file, f"{number} server{'' if number == 1 else 's'}", config.warnings)
    except ConfigError as error:
        errors.append(str(error))
    try:
        if web_config_file is not None:
            said, warnings = read_at_start(partial(check_web_config, web_config_file))
            _say_usable(web_config_file, said, warnings)
    except ConfigError as error:
        errors.append(str(error))
    if errors:
        raise UnusableError("\n".join(errors))
    return 0


def _say_usable(file: Path, what: str, warnings: Sequence[str]) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(f"{file}: usable, {what}")
