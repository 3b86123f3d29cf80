"""`kvexporter replay`: the metrics that a recording would have given."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kvexporter.commands.any_path import AnyPath
from kvexporter.commands.failures import FailedError, UnusableError
from kvexporter.commands.finite_range import FiniteRange

_FILE = AnyPath()


@click.command(short_help="Print the metrics that a recording would have given.")
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
        raise FailedError(str(error)) from None
    except RecordingError as error:
        raise UnusableError(str(error)) from None
    except OSError as error:
        raise UnusableError(f"{error.filename}: {error.strerror}") from None
    click.echo(exposition(replayed.snapshot), nl=False)
    sys.stdout.flush()
    summary = replay_summary(replayed.snapshot, replayed.peaks, since_start=replayed.since_start)
    click.echo(summary, nl=False, err=True)
    return 0
