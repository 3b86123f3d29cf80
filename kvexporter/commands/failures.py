"""How a command ends that cannot do what it should: one message, and the exit status."""

from __future__ import annotations

import click


class FailedError(click.ClickException):
    """Ends the command with a message and exit status 1."""

    exit_code = 1


class UnusableError(click.ClickException):
    """Ends the command with a message and exit status 2: the command line or a file cannot be used."""

    exit_code = 2
