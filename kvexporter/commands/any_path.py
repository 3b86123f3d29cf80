"""The type of options that name a file or folder, without looking whether it is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem


class AnyPath(click.ParamType[Path]):
    """A path as it was given. click's own type looks at the file at once, and on a dead disk it would say nothing."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Give the path."""
        return Path(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Have the shell complete names of files, as for click's own type."""
        return [CompletionItem(incomplete, type="file")]
