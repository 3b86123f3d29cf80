"""`kvexporter lint`: judges what starts a llama-server, before it is started."""

from __future__ import annotations

import re
from typing import Any

import click

from kvexporter.commands.failures import UnusableError


class _Build(click.ParamType[int]):
    name = "build"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"b?([0-9]{1,6})", str(value))
        if match is None:
            self.fail(f"{value!r} is no build: expected a number as b8635", param, ctx)
        return int(match[1])


class _Lint(click.Command):
    """Keeps apart what stands before and after --, which click hands over as one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta["kvexporter.lint.command"] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


@click.command(cls=_Lint, short_help="Find mistakes in environment files, units and llama-server command lines.")
@click.argument("target", required=False, metavar="[FILE|UNIT] [-- COMMAND...]")
@click.option(
    "--as", "rules", type=click.Choice(["bash", "systemd", "script", "unit"]),
    help="Who reads FILE: an environment file that bash reads with ., or systemd with EnvironmentFile=; a shell "
    "script; a unit. Without it: what the name and the units on this host say, else bash and systemd both.",
)  # fmt: skip
@click.option(
    "--build", type=_Build(), metavar="bN",
    help="The build of llama-server that will be started, as b8635. Without it: what holds for builds of today, with a "
    "warning where others differ.",
)  # fmt: skip
@click.option(
    "--severity", type=click.Choice(["note", "warning", "error"]), default="note", show_default=True,
    help="The least severe finding that gives exit status 1. All are shown.",
)  # fmt: skip
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How it is printed.",
)
@click.pass_context
def lint(ctx: click.Context, target: str | None, rules: Any, build: int | None, severity: Any, form: str) -> int:
    """Find mistakes in what starts a llama-server, before it is started.

    FILE is an environment file, a unit or drop-in, or a shell script; UNIT is looked for in systemd's folders, with its
    drop-ins, environment files and scripts. A command line is given after --. Nothing is executed or changed, and keys
    and tokens are not shown.

    Exit status 0: nothing found; 1: something found; 2: not readable. So it can stand in ExecStartPre=.
    """
    command: list[str] = ctx.meta.get("kvexporter.lint.command", [])
    if (target is None) == (not command):
        raise click.UsageError("expected a FILE or UNIT, or a command line after --")
    from kvexporter.lint.linter import Linter
    from kvexporter.lint_targets import judge, read_named
    from kvexporter.reports.lint import failing, lint_json, print_lint
    from kvexporter.reports.terminal import show
    from kvexporter.sources.unit_files import UnreadableError

    linter = Linter(read_named, build)
    try:
        if target is None:
            linter.command_line(command)
        else:
            judge(linter, target, rules)
    except UnreadableError as error:
        raise UnusableError(str(error)) from None
    findings = linter.findings()
    if form == "json":
        click.echo(lint_json(linter.readings, findings), nl=False)
    else:
        show(lambda console: print_lint(linter.readings, findings, console))
    return int(failing(findings, severity))
