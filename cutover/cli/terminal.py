"""The terminal: progress bars, tables, refusals, and where something was written."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from contract.errors import CutoverError, visible

UNFOLDED = 1_000
"""Columns of a line that is never folded."""


@contextmanager
def refusals(status: int) -> Iterator[None]:
    """Print the error that ended the block to standard error, and exit with a status."""
    try:
        yield
    except (CutoverError, OSError) as error:
        text = str(error)
        if isinstance(error, OSError) and error.strerror and error.filename:
            text = f"{str(error.filename)!r}: {error.strerror.lower()}"  # instead of its number
        text = escape(visible(text))
        Console(stderr=True).print(f"[red]error:[/] {text}", highlight=False, soft_wrap=True)
        raise typer.Exit(status) from error


def terminal_user(command: str = "command line") -> str:
    """Return who runs a command, as the audit names them."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user} ({command})"


def tables() -> Console:
    """Return a console for tables: a terminal folds them, a file or a pipe gets whole lines."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=UNFOLDED)


def print_rows(
    console: Console,
    titles: Iterable[str],
    rows: Iterable[tuple[str, ...]],
    folded: Callable[[tuple[str, ...]], str],
) -> None:
    """Print a table if the console is wide enough for it, else each row as it is `folded`.

    Cells are text: what people or models write is no markup.
    """
    table, found = Table(box=None, pad_edge=False), list(rows)
    for title in titles:
        table.add_column(title, no_wrap=True)
    for cells in found:
        table.add_row(*map(Text, cells))
    wide = console.options.update(width=UNFOLDED)
    if console.measure(table, options=wide).maximum <= console.width:
        console.print(table)
        return
    for cells in found:
        console.print(Text(folded(cells)), soft_wrap=True)


def bar(console: Console, *columns: ProgressColumn) -> Progress:
    """Return a progress bar that ends with these columns; only a terminal shows it."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def print_outcome(headline: str, colour: str, reasons: Iterable[str], console: Console) -> None:
    """Print an outcome in its colour, and its reasons below it."""
    console.print(f"[bold {colour}]{escape(visible(headline))}[/]", highlight=False)
    for reason in reasons:
        console.print(f"  {escape(visible(reason))}", highlight=False)


def print_written(paths: Iterable[Path], console: Console) -> None:
    """Print the files that were written."""
    for path in paths:
        console.print(f"[dim]{escape(str(path))}[/]", highlight=False, soft_wrap=True)
