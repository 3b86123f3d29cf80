"""`kvexporter incidents`: the incidents that the exporter has kept."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kvexporter.commands.any_path import AnyPath
from kvexporter.commands.diagnose import FORMATS
from kvexporter.commands.failures import UnusableError

_FILE = AnyPath()


@click.command(short_help="List the incidents that the exporter has kept.")
@click.option(
    "--last", type=click.IntRange(1, 100_000), default=10, show_default=True, metavar="N",
    help="Incidents that are shown of each server, the latest ones.",
)  # fmt: skip
@click.option("--server", metavar="NAME", help="Only this server's. [default: all]")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="How it is printed."
)
@click.option(
    "--storage.path", "storage_path", type=_FILE, default=None, metavar="FILE",
    help="File that the exporter keeps its counters in. [default: that of the packaged unit, else of this user]",
)  # fmt: skip
def incidents(last: int, server: str | None, form: str, storage_path: Path | None) -> int:
    """List the incidents that the exporter has kept, of each server the latest ones. The exporter may be running.

    Exit status: 0 also if there were none, 2 if the store cannot be read.
    """
    from kvexporter.options import SYSTEM_STORE, default_storage_path
    from kvexporter.reports.incident_list import kept_incidents, list_json, list_markdown, print_list
    from kvexporter.store_file import StoreError
    from kvexporter.store_reading import read_kept

    places = (SYSTEM_STORE, default_storage_path()) if storage_path is None else (storage_path,)
    path = next((place for place in places if _exists(place)), None)
    if path is None:
        looked = " and ".join(str(place) for place in dict.fromkeys(places))
        raise UnusableError(
            f"there is no store at {looked}: has the exporter run here? It may be told another place (--storage.path)"
        )
    try:
        kept = kept_incidents(read_kept(path).incidents, last, server)
    except StoreError as error:
        hint = "" if os.access(path, os.R_OK) else ": run this as root or as the user that kvexporter runs as"
        raise UnusableError(f"{error}{hint}") from None
    except ValueError as error:
        raise UnusableError(f"{path}: {error}") from None
    if form == "json":
        click.echo(list_json(kept), nl=False)
    elif form == "markdown":
        click.echo(list_markdown(kept), nl=False)
    else:
        from kvexporter.reports.terminal import show

        show(lambda console: print_list(kept, console))
    return 0


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True  # in a folder that may not be looked into: reading will say why
