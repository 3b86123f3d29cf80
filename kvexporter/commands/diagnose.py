"""`kvexporter diagnose`: from an old journal or log, who died of what, and what to change."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvexporter.commands.any_path import AnyPath
from kvexporter.commands.failures import UnusableError

if TYPE_CHECKING:
    from kvexporter.diagnosing.logbook import ServerStory
    from kvexporter.diagnosing.reading import LogInput
    from kvexporter.reports.diagnosis import Diagnosis

_FILE = AnyPath()
FORMATS = ("text", "json", "markdown")


def _moment(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    from kvexporter.time_words import parse_moment

    if value is None:
        return None
    try:
        return parse_moment(value, time.time())
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


@click.command(short_help="Say from an old log whose requests died of what, and what to change.")
@click.option(
    "--unit", "-u", metavar="UNIT",
    help="The unit whose journal is read. [default: every unit and container with lines of a llama-server]",
)  # fmt: skip
@click.option(
    "--since", metavar="TIME", callback=_moment,
    help="Look at nothing older: 2026-11-30, '2026-11-30 14:05', 14:05, today, yesterday, '2 hours ago', -90m, @UNIX.",
)  # fmt: skip
@click.option("--until", metavar="TIME", callback=_moment, help="Look at nothing of this time or newer.")
@click.option(
    "--journal", type=_FILE, metavar="DIR", help="A folder of journal files, instead of this host's own journal."
)
@click.option(
    "--journal-export", type=_FILE, metavar="FILE",
    help="What `journalctl -u UNIT -o export` wrote; - for standard input.",
)  # fmt: skip
@click.option(
    "--log-file", type=_FILE, metavar="FILE",
    help="What the server printed, or what somebody pasted of it; - for standard input.",
)  # fmt: skip
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="How it is printed."
)
@click.option(
    "--last", type=click.IntRange(0, 100_000), default=20, show_default=True, metavar="N",
    help="Incidents that are shown of each server, the latest ones; all are counted.",
)  # fmt: skip
def diagnose(
    unit: str | None,
    since: float | None,
    until: float | None,
    journal: Path | None,
    journal_export: Path | None,
    log_file: Path | None,
    form: str,
    last: int,
) -> int:
    """Say from an old journal or log of any build: whose requests died of what, how often, who held how much, whether
    the pool is shared and overcommitted, and what to change.

    Nothing need have been installed before. Times without a zone are local. Exit status: 0 healthy, 1 something was
    found, 2 the log cannot be read or is none of a llama-server.
    """
    from kvexporter.diagnosing.reading import LogInput

    _demand_one_source(unit, since, until, journal, journal_export, log_file)
    source = LogInput(unit, journal, journal_export, log_file, since, until, last)
    diagnoses = _diagnosed(_read(source))
    _show(diagnoses, form)
    return int(any(each.verdict.found for each in diagnoses))


def _demand_one_source(
    unit: str | None,
    since: float | None,
    until: float | None,
    journal: Path | None,
    journal_export: Path | None,
    log_file: Path | None,
) -> None:
    if sum(source is not None for source in (journal, journal_export, log_file)) > 1:
        raise click.UsageError("expected one of --journal, --journal-export and --log-file")
    if unit is not None and (journal_export is not None or log_file is not None):
        raise click.UsageError("--unit chooses in a journal: an export or a log file is read whole")
    if log_file is not None and (since is not None or until is not None):
        raise click.UsageError("--since and --until need a journal: a log file does not tell the time of day")
    if since is not None and until is not None and since >= until:
        raise click.UsageError("expected --since to be before --until")


def _read(source: LogInput) -> list[ServerStory]:
    from kvexporter.diagnosing.reading import read_stories
    from kvexporter.sources.journal_library import JournalUnavailableError
    from kvexporter.sources.recording import RecordingError

    try:
        if not sys.stderr.isatty():
            return read_stories(source)
        from kvexporter.reports.progress_bar import ProgressBar

        with ProgressBar() as bar:
            return read_stories(source, bar.reached)
    except (RecordingError, JournalUnavailableError, ValueError) as error:
        raise UnusableError(str(error)) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        raise UnusableError(f"{where}{error.strerror or error}") from None


def _diagnosed(stories: list[ServerStory]) -> list[Diagnosis]:
    from kvexporter.reports.diagnosis import diagnose as judge

    return [judge(story) for story in stories]


def _show(diagnoses: list[Diagnosis], form: str) -> None:
    if form == "json":
        from kvexporter.reports.diagnosis_json import diagnoses_json

        click.echo(diagnoses_json(diagnoses), nl=False)
    elif form == "markdown":
        from kvexporter.reports.diagnosis_markdown import diagnoses_markdown

        click.echo(diagnoses_markdown(diagnoses), nl=False)
    else:
        from kvexporter.reports.diagnosis_text import print_diagnoses
        from kvexporter.reports.terminal import show

        show(lambda console: print_diagnoses(diagnoses, console))
