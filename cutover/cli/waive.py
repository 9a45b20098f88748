"""`cutover waive`: accept a difference, with an owner, a reason and a last day."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from compare.input.files import read_text
from compare.report.document import unknown_flows_text
from compare.waivers import Waiver, with_waiver
from contract.errors import CutoverError, visible
from cutover.cli.terminal import refusals
from cutover.files import write_whole
from cutover.flows import flows_at
from cutover.reports import WAIVERS, known_flows, this_day

REFUSED = 2


class WaiverPast(CutoverError):
    """The last day of a waiver is past before it is written."""

    def __init__(self, until: date, today: date) -> None:
        super().__init__(f"until {until} is past: today is {today}")


def waive(
    finding: Annotated[str, typer.Argument(help="The finding's id, from a report.", metavar="ID")],
    *,
    owner: Annotated[str, typer.Option(help="Who answers for it.")],
    reason: Annotated[str, typer.Option(help="Why it is accepted.")],
    until: Annotated[
        datetime, typer.Option(formats=["%Y-%m-%d"], help="The last day it holds, in UTC.")
    ],
    file: Annotated[Path, typer.Option(help="The file of waivers; made if need be.")] = WAIVERS,
    flow: Annotated[str, typer.Option(help="Only in this flow; default: in all.")] = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="Write over the waiver there is for this id.")
    ] = False,
) -> None:
    """Accept a difference until a day; reports go on showing it, and who accepted it.

    Exit 0: written, 2: refused; then nothing was written.
    """
    waiver = Waiver(owner.strip(), reason.strip(), until.date(), flow)
    with refusals(REFUSED):
        known = known_flows(flows_at(None))
        add_waiver(file, finding, waiver, this_day(), replace=replace)
    if flow and flow not in known:
        note = (
            f"it is for {unknown_flows_text(flow, known)} (a dialect of your own may be called so)"
        )
        Console(stderr=True).print(f"[yellow]note:[/] {escape(visible(note))}", highlight=False)
    line = f"{finding} is waived until {waiver.until} in {file}"
    Console().print(escape(line), highlight=False, soft_wrap=True)


def add_waiver(file: Path, finding: str, waiver: Waiver, today: date, *, replace: bool) -> None:
    """Add a waiver to a file, whole or not at all, after concurrent writers.

    Raises `WaiverPast`, `DeclarationRefused`, `OSError`.
    """
    if waiver.until < today:
        raise WaiverPast(waiver.until, today)
    place = file.resolve()
    with _locked(place.parent):
        before = read_text(file) if file.exists() else ""
        after = with_waiver(before, str(file), finding, waiver, replace=replace)
        write_whole(place, after.encode())


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder: one on the file would be lost with its replacement."""
    held = os.open(folder, os.O_RDONLY)
    try:
        flock(held, LOCK_EX)
        yield
    finally:
        os.close(held)
