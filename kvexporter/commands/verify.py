"""`kvexporter verify`: after a change, one tiny real completion, and the pool as it is against how it was meant."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvexporter.commands.any_path import AnyPath
from kvexporter.commands.configured import configured
from kvexporter.commands.failures import UnusableError
from kvexporter.commands.finite_range import FiniteRange

if TYPE_CHECKING:
    from kvexporter.config import Config
    from kvexporter.targets import Target

_FILE = AnyPath()
_RETRY_SECONDS = 0.5


@click.command(short_help="After a change: one tiny completion, and the pool as it is against how it was meant.")
@click.option("--url", metavar="URL", help="The server's address, such as http://127.0.0.1:8080.")
@click.option(
    "--unit", metavar="UNIT",
    help="The server's systemd unit, whose log tells the pool. [default: the only llama-server here]",
)  # fmt: skip
@click.option("--server", metavar="NAME", help="The server by its name in --config.file or among those found here.")
@click.option(
    "--config.file", "--config", "config_file", type=_FILE, metavar="FILE",
    help="The exporter's configuration, for names, addresses, keys and TLS of servers.",
)  # fmt: skip
@click.option("--api-key-file", type=_FILE, metavar="FILE", help="File whose first line is the server's API key.")
@click.option("--expect-window", type=click.IntRange(min=1), metavar="TOKENS", help="Window that each slot is sure of.")
@click.option("--expect-slots", type=click.IntRange(min=1), metavar="N", help="Number of slots.")
@click.option("--expect-pool", type=click.IntRange(min=1), metavar="TOKENS", help="Size of the whole pool.")
@click.option(
    "--allow-overcommit", is_flag=True,
    help="The window may be promised to more slots than the pool has room for.",
)  # fmt: skip
@click.option("--no-completion", is_flag=True, help="Only read how it is set; have nothing generated.")
@click.option("--wake", is_flag=True, help="A sleeping server may be woken, and a router's model loaded.")
@click.option("--model", metavar="NAME", help="Which model, where the server is a router.")
@click.option(
    "--deadline", type=FiniteRange(1, 86_400), default=60.0, show_default=True, metavar="SECONDS",
    help="For all of it, waiting until the model is loaded included.",
)  # fmt: skip
def verify(
    url: str | None,
    unit: str | None,
    server: str | None,
    config_file: Path | None,
    api_key_file: Path | None,
    expect_window: int | None,
    expect_slots: int | None,
    expect_pool: int | None,
    allow_overcommit: bool,
    no_completion: bool,
    wake: bool,
    model: str | None,
    deadline: float,
) -> int:
    """Have a running llama-server generate one token, and compare its slots, window and pool with what was meant.

    Fit for a deploy script: waits until the model is loaded. Exit status 0 as expected, 1 not as expected, 2 it could
    not be asked. Never wakes a sleeping server and never loads a router's model unless told to.
    """
    if url is not None and server is not None:
        raise click.UsageError("expected one of --url and --server")
    from kvexporter.reports.findings import exit_status, format_findings
    from kvexporter.reports.verify import CouldNotAsk, Wanted
    from kvexporter.reports.verify import verify as look
    from kvexporter.reports.verify_words import Expected
    from kvexporter.sources.discovery import discover
    from kvexporter.targets import plan_targets

    until = time.monotonic() + deadline
    config = configured(config_file, deadline=deadline)
    target = _find(config, url, unit, server, until)
    if target.api is not None and api_key_file is not None:
        target = replace(target, api=replace(target.api, api_key_file=api_key_file))
    expected = Expected(expect_window, expect_slots, expect_pool, allow_overcommit)
    wanted = Wanted(expected, max(1.0, until - time.monotonic()), not no_completion, wake, model)
    try:
        findings = asyncio.run(look(target, lambda: plan_targets(config, discover()), wanted))
    except CouldNotAsk as error:
        raise UnusableError(str(error)) from None
    click.echo(format_findings(findings), nl=False)
    return exit_status(findings)


def _find(config: Config, url: str | None, unit: str | None, server: str | None, until: float) -> Target:
    """The server that is meant, waiting until it runs."""
    from kvexporter.sources.discovery import discover
    from kvexporter.targets import plan_targets

    while True:
        try:
            targets = plan_targets(config, discover())
        except OSError as error:
            raise UnusableError(f"/proc: {error.strerror}") from None
        found = _chosen(targets, url, unit, server)
        if isinstance(found, str):
            if time.monotonic() + _RETRY_SECONDS < until and (unit is not None or not targets):
                time.sleep(_RETRY_SECONDS)
                continue
            raise UnusableError(found)
        return found


def _chosen(targets: list[Target], url: str | None, unit: str | None, server: str | None) -> Target | str:
    """The server that is meant, or in words why it is not found."""
    own = [target for target in targets if target.child_of is None]
    if server is not None:
        found = [target for target in own if target.name == server]
    elif unit is not None:
        name = unit if "." in unit else f"{unit}.service"
        found = [target for target in own if target.unit == name]
    elif url is not None:
        found = [target for target in own if target.api is not None and _same(target.api.base_url, url)]
    else:
        found = own
    if url is not None:
        return _addressed(found[0] if found else None, url, unit)
    if len(found) == 1:
        return found[0]
    names = ", ".join(target.name for target in own[:20]) or "none"
    what = f"server {server!r}" if server is not None else f"llama-server in {unit}" if unit is not None else "server"
    return f"{'no' if not found else 'more than one'} {what} runs here: say --url; running here: {names}"


def _addressed(found: Target | None, url: str, unit: str | None) -> Target:
    """A target at this address, with what is known of its process and log where it runs here."""
    from kvexporter.sources.api_target import ApiTarget
    from kvexporter.sources.journal_selection import JournalSelection
    from kvexporter.targets import Target

    try:
        if found is not None:
            # Its key is for its own address only.
            own = found.api is not None and _same(found.api.base_url, url)
            return replace(found, api=replace(found.api, base_url=url) if own and found.api else ApiTarget(url))
        selection = JournalSelection(unit=unit) if unit is not None else None
        return Target(unit or url, unit=unit, selection=selection, api=ApiTarget(url))
    except ValueError as error:
        raise UnusableError(str(error)) from None


def _same(one: str, other: str) -> bool:
    """Whether two addresses are one server's, however this host is named."""
    from urllib.parse import urlsplit

    try:
        a, b = urlsplit(one), urlsplit(other)
        local = {"localhost", "127.0.0.1", "::1"}
        hosts_match = a.hostname == b.hostname or (a.hostname in local and b.hostname in local)
        return hosts_match and a.port == b.port and a.path.rstrip("/") == b.path.rstrip("/")
    except ValueError:
        return False
