"""The command `kvexporter`, also as `python -m kvexporter`."""

from __future__ import annotations

import sys
from typing import NoReturn

from kvexporter.signals_at_start import runs_exporter, take_signals


def main() -> NoReturn:
    """Run the command line of this process."""
    if runs_exporter(sys.argv[1:]):
        take_signals()
    from kvexporter import cli  # takes a while: signals come meanwhile

    cli.main()


if __name__ == "__main__":
    main()
