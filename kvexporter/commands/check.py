"""`kvexporter check`: what can be read here, what is missing, and how to mend it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kvexporter.commands.configured import configured
from kvexporter.commands.failures import UnusableError
from kvexporter.commands.which_servers import (
    FILE,
    config_option,
    log_file_option,
    name_option,
    one_server,
    url_option,
)
from kvexporter.options import SYSTEM_STORE, default_storage_path


@click.command(short_help="Say what can be read, what is missing, and how to mend it.")
@config_option
@click.option(
    "--storage.path", "storage_path", type=FILE, default=None, metavar="FILE",
    help="File that the exporter keeps its counters in; read to compare the servers' last two starts. "
    "[default: that of the packaged unit, else of this user]",
)  # fmt: skip
@log_file_option
@name_option
@url_option
def check(
    config_file: Path | None, storage_path: Path | None, log_file: Path | None, name: str | None, url: str | None
) -> int:
    """Say what was found, what can be read, what is missing, and how to mend it.

    Exit status 1 if something is missing. Run it as the user that kvexporter runs as: for the packaged unit, whose user
    exists only while it runs, root is told a command for that.
    """
    from kvexporter.config import ConfigError, config_of_one
    from kvexporter.reports.check import exit_status, format_findings, gather

    one = one_server(config_file, log_file, False, name, url)
    config = configured(config_file)
    try:
        if one is not None:
            config = config_of_one(one.name, one.url, one.log_file)
    except ConfigError as error:
        raise UnusableError(str(error)) from None
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
