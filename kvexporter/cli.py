"""The command line: which commands there are, and how one ends.

Exit status: 0 all well, 1 something was found or failed, 2 the command line or the configuration cannot be used.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

import kvexporter
from kvexporter.commands.check import check
from kvexporter.commands.demo import demo
from kvexporter.commands.diagnose import diagnose
from kvexporter.commands.incidents import incidents
from kvexporter.commands.lint import lint
from kvexporter.commands.plan import plan
from kvexporter.commands.replay import replay
from kvexporter.commands.run import run
from kvexporter.commands.verify import verify
from kvexporter.signals_at_start import without_command

_DEFAULT = "run"


class _Commands(click.Group):
    """A group whose command `run` need not be named, and whose help shows that command's options too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if without_command(args):
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        rows = [row for param in self.commands[_DEFAULT].params if (row := param.get_help_record(ctx)) is not None]
        with formatter.section("Options of run"):
            formatter.write_dl(rows)


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


commands.add_command(run)
commands.add_command(check)
commands.add_command(replay)
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
    """The command `kvexporter`, once its signals are seen to (`__main__`)."""
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
