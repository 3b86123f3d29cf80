"""Options of `run` and `check` that say which servers: a configuration file, or one server by its log."""

from __future__ import annotations

from pathlib import Path

import click

from kvexporter.commands.any_path import AnyPath
from kvexporter.commands.parsed import Parsed
from kvexporter.options import OneServer, parse_name, parse_url

FILE = AnyPath()

config_option = click.option(
    "--config.file", "--config", "config_file", type=FILE, metavar="FILE",
    help="Configuration file (YAML). Without one, the llama-server processes of this host are found.",
)  # fmt: skip

log_file_option = click.option(
    "--log.file", "log_file", type=FILE, metavar="FILE",
    help="Watch one server, whose log is this file, in place of a configuration file. It is followed over rotation.",
)  # fmt: skip
name_option = click.option(
    "--name", "name", type=Parsed("name", parse_name), default=None, metavar="NAME",
    help="The name of that server.  [default: after its log]",
)  # fmt: skip
url_option = click.option(
    "--url", "url", type=Parsed("url", parse_url), default=None, metavar="URL",
    help="Where that server answers.  [default: where its log says]",
)  # fmt: skip


def one_server(
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
