"""`python -m kvexporter` is the command `kvexporter`."""

from kvexporter.cli import main

main()
