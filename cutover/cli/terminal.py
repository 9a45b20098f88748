"""The terminal: how far a command is, what it refuses, and where it wrote."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from compare.report.formats import visible
from contract.errors import CutoverError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from rich.progress import ProgressColumn

UNFOLDED = 1_000
"""Columns of a line nobody folds."""


@contextmanager
def refusals(status: int) -> Iterator[None]:
    """Say on standard error why the block ended, and leave with a status."""
    try:
        yield
    except (CutoverError, OSError) as trouble:
        said = escape(visible(in_words(trouble)))
        Console(stderr=True).print(f"[red]error:[/] {said}", highlight=False, soft_wrap=True)
        raise typer.Exit(status) from trouble


def in_words(trouble: CutoverError | OSError) -> str:
    """Say what went wrong, and of the system's errors where, without their number."""
    if isinstance(trouble, CutoverError) or not (trouble.strerror and trouble.filename):
        return str(trouble)
    return f"{str(trouble.filename)!r}: {trouble.strerror.lower()}"


def tables() -> Console:
    """Make a console for tables: a terminal folds them, a file or a pipe gets whole lines."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=UNFOLDED)


def bar(console: Console, *columns: ProgressColumn) -> Progress:
    """Make a bar that ends with these columns, and is gone afterwards; only a terminal shows it."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def tell_written(paths: Iterable[Path], console: Console) -> None:
    """Say where something was written."""
    for path in paths:
        console.print(f"[dim]{escape(str(path))}[/]", highlight=False, soft_wrap=True)
