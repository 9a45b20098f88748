"""`cutover import`: an old application's messages, memories and threads into the stores."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import TextColumn, TimeRemainingColumn

from contract.errors import CutoverError, visible
from contract.flows import SPECS
from contract.flows.session import SESSION
from contract.stores import MemoryEntry, Turn
from cutover.cli.terminal import bar, refusals
from cutover.flows import DEFAULT_CONFIG, settings_at
from cutover.imports import (
    THREAD_FIELDS,
    ImportTally,
    Place,
    Put,
    Rows,
    Shaped,
    Value,
    entries_of_rows,
    lasting_store,
    mapped,
    open_memories,
    open_nothing,
    open_rows,
    open_turns,
    redaction,
    take_in,
    turns_of_rows,
    turns_of_threads,
)
from cutover.wiring.stacks import reader_of_threads
from router.config.addresses import resolve_address

ALL = 0
SOME_LEFT = 1
REFUSED = 2

imports = typer.Typer(
    help="Bring what an old application holds into the stores: turns, memories, threads.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)

_Source = Annotated[
    str,
    typer.Argument(
        help="A .csv, .tsv or .jsonl file, also .gz or .zst; with --query an SQLAlchemy URL; "
        "env:NAME takes it from a variable.",
        metavar="SOURCE",
    ),
]
_Checkpointer = Annotated[
    str,
    typer.Argument(
        help="A checkpointer: sqlite:///… or postgresql://…; env:NAME takes it from a variable.",
        metavar="SOURCE",
    ),
]
_Config = Annotated[Path, typer.Option(help="The configuration.")]
_Flow = Annotated[str, typer.Option(help="The flow whose conversations they are.")]
_Query = Annotated[str | None, typer.Option(help="SQL that returns the rows, in their order.")]
_Map = Annotated[
    list[str] | None,
    typer.Option("--map", help="A column of ours, and its name there.", metavar="OURS=THEIRS"),
]
_Rejects = Annotated[
    Path | None, typer.Option(help="A file for the rows that are not stored, and why.")
]
_DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Store nothing; print the first rows as they would be.")
]


@imports.command()
def turns(
    source: _Source,
    flow: _Flow,
    config: _Config = DEFAULT_CONFIG,
    query: _Query = None,
    names: _Map = None,
    rejects: _Rejects = None,
    *,
    dry_run: _DryRun = False,
) -> None:
    """Store the messages of conversations, which come in their order.

    Exit 0: all are stored, 1: some are not, or not yet, 2: refused, nothing is stored.
    """
    with ExitStack() as stack:
        with refusals(REFUSED):
            settings = settings_at(config)
            store = lasting_store("conversations", settings, os.environ)
            opening = open_turns(store, _known_flow(flow))
            rows = stack.enter_context(open_rows(resolve_address(source, os.environ), query))
            items = turns_of_rows(rows, names or (), redaction(settings, os.environ))
        _take_in(f"turns of {flow}", items, opening, rejects, rows, dry_run=dry_run)


@imports.command()
def memories(
    source: _Source,
    config: _Config = DEFAULT_CONFIG,
    query: _Query = None,
    names: _Map = None,
    rejects: _Rejects = None,
    *,
    dry_run: _DryRun = False,
) -> None:
    """Store what is known of users, with vectors of the configured embeddings.

    Exit 0: all is stored, 1: some is not, or not yet, 2: refused, nothing is stored.
    """
    with ExitStack() as stack:
        with refusals(REFUSED):
            settings = settings_at(config)
            store = lasting_store("memory", settings, os.environ)
            opening = open_memories(store, settings.embeddings, os.environ)
            rows = stack.enter_context(open_rows(resolve_address(source, os.environ), query))
            items = entries_of_rows(rows, names or (), redaction(settings, os.environ))
        _take_in("memories", items, opening, rejects, rows, dry_run=dry_run)


@imports.command()
def threads(
    source: _Checkpointer,
    flow: _Flow = SESSION.name,
    config: _Config = DEFAULT_CONFIG,
    names: _Map = None,
    rejects: _Rejects = None,
    *,
    dry_run: _DryRun = False,
) -> None:
    """Store the messages of users and assistants in the threads of a LangGraph checkpointer.

    Each thread becomes the conversation of its id. Channels with other names than messages, user_id
    and user_name are named with --map. Exit 0: all are stored, 1: some are not, or not yet, 2:
    refused, nothing is stored.
    """
    with ExitStack() as stack:
        with refusals(REFUSED):
            settings = settings_at(config)
            store = lasting_store("conversations", settings, os.environ)
            opening = open_turns(store, _known_flow(flow))
            named = mapped(THREAD_FIELDS, names or ())
            read = reader_of_threads()
            address = resolve_address(source, os.environ)
            saved = stack.enter_context(read(address, named.get("messages", "messages")))
            items = turns_of_threads(saved, named, redaction(settings, os.environ))
        _take_in(f"turns of {flow}", items, opening, rejects, dry_run=dry_run)


class _NoSuchFlow(CutoverError):
    def __init__(self, name: str) -> None:
        super().__init__(f"--flow {name!r}: flows with conversations are {', '.join(SPECS)}")


def _known_flow(name: str) -> str:
    if name not in SPECS:
        raise _NoSuchFlow(name)
    return name


def _take_in(
    what: str,
    items: Iterator[tuple[Place, Shaped[Value]]],
    opening: AbstractAsyncContextManager[Put[Value]],
    rejects: Path | None,
    rows: Rows | None = None,
    *,
    dry_run: bool,
) -> None:
    """Store what comes, and report; exits."""
    tally = ImportTally()
    with refusals(SOME_LEFT), ExitStack() as stack:
        stack.callback(_report, what, tally, rejects, dry_run=dry_run)
        file = stack.enter_context(rejects.open("wb")) if rejects is not None else None
        shown = stack.enter_context(
            bar(
                Console(stderr=True),
                TextColumn("{task.fields[rows]:,} rows"),
                TimeRemainingColumn(),
            )
        )
        task = shown.add_task("importing", total=None if rows is None else rows.size, rows=0)

        def progress() -> None:
            at = rows.position() if rows is not None else None
            shown.update(task, completed=at or 0, rows=tally.read)

        if dry_run:
            opening = open_nothing(_print)
        asyncio.run(take_in(items, opening, tally, file, progress))
    raise typer.Exit(SOME_LEFT if tally.rejected else ALL)


def _print(value: Turn | MemoryEntry) -> None:
    typer.echo(msgspec.json.encode(value))


def _report(what: str, tally: ImportTally, rejects: Path | None, *, dry_run: bool) -> None:
    stored = "would be stored" if dry_run else f"new, {tally.known} there already"
    typer.echo(f"{what}: {tally.new} {stored}")
    if tally.left_out:
        counts = ", ".join(f"{count} {why}" for why, count in sorted(tally.left_out.items()))
        typer.echo(f"left out: {counts}")
    if tally.without_vectors:
        typer.echo(f"without vectors: {tally.without_vectors}, until a router has made them")
    if tally.rejected:
        typer.echo(f"not stored: {tally.rejected}" + (f", see {rejects}" if rejects else ""))
        for reason in tally.reasons if rejects is None else ():
            typer.echo(f"  {visible(reason)}", err=True)
