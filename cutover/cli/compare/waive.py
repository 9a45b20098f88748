"""`cutover waive`: accept a difference, with an owner, a reason and a last day."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from compare.input.files import read_text
from compare.report import Report
from compare.report.changes import read_report
from compare.report.document import unknown_flows_text
from compare.report.migration import Migration, bounded, migrated, migration_lines
from compare.waivers import Waiver, waivers_of, with_ids, with_waiver
from contract.errors import CutoverError, visible
from cutover.cli.terminal import refusals
from cutover.flows import flows_at
from cutover.reports import WAIVERS, known_flows, this_day
from effects.files import locked_folder, write_whole

REFUSED = 2
REPORT = Path("report/report.json")


class MigrationMisused(CutoverError):
    """Waivers are to be carried over, and one of them is described."""

    def __init__(self) -> None:
        super().__init__("--migrate carries over all waivers of --file: no other option is due")


class WaiverIncomplete(CutoverError):
    """A waiver is to be written, and part of it is not given."""

    def __init__(self, missing: str) -> None:
        super().__init__(f"a waiver needs an ID, an owner, a reason and a day; missing: {missing}")


class WaiverPast(CutoverError):
    """The last day of a waiver is past before it is written."""

    def __init__(self, until: date, today: date) -> None:
        super().__init__(f"until {until} is past: today is {today}")


_Report = Annotated[
    Path | None,
    typer.Option(
        help="The report that shows it: the waiver lapses where its share grows beyond what "
        "was seen there, or other values appear; default: report/report.json, if it is there."
    ),
]
_Migrate = Annotated[
    Path | None,
    typer.Option(
        "--migrate",
        help="Carry the waivers of the file over to the ids of today, by the older report that "
        "shows their causes; takes no ID.",
        metavar="OLD_REPORT",
    ),
]


def waive(
    finding: Annotated[
        str, typer.Argument(help="The finding's id, from a report.", metavar="ID")
    ] = "",
    *,
    owner: Annotated[str | None, typer.Option(help="Who answers for it.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why it is accepted.")] = None,
    until: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="The last day it holds, in UTC.")
    ] = None,
    report: _Report = None,
    migrate: _Migrate = None,
    file: Annotated[Path, typer.Option(help="The file of waivers; made if need be.")] = WAIVERS,
    flow: Annotated[str, typer.Option(help="Only in this flow; default: in all.")] = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="Write over the waiver there is for this id.")
    ] = False,
) -> None:
    """Accept a difference until a day; reports go on showing it, and who accepted it.

    Exit 0: written, 2: refused; then nothing was written.
    """
    notes: list[str] = []
    with refusals(REFUSED):
        if migrate is not None:
            if finding or owner or reason or until or report or flow or replace:
                raise MigrationMisused
            lines = list(migration_lines(migrate_waivers(file, read_report(migrate))))
        else:
            if not finding or owner is None or reason is None or until is None:
                due = (finding or None, owner, reason, until)
                names = zip(("ID", "--owner", "--reason", "--until"), due, strict=True)
                raise WaiverIncomplete(", ".join(name for name, given in names if given is None))
            waiver = Waiver(owner.strip(), reason.strip(), until.date(), flow)
            notes = _add(file, finding, waiver, report, replace=replace)
            lines = [f"{finding} is waived until {waiver.until} in {file}"]
    for note in notes:
        Console(stderr=True).print(f"[yellow]note:[/] {escape(visible(note))}", highlight=False)
    for line in lines:
        Console().print(escape(line), highlight=False, soft_wrap=True)


def _add(
    file: Path, finding: str, waiver: Waiver, report: Path | None, *, replace: bool
) -> list[str]:
    """Add a waiver that a report bounds, if there is one; returns what it may hide beyond that."""
    known = known_flows(flows_at(None))
    shown = read_report(report or REPORT) if report or REPORT.exists() else None
    if shown is not None:
        waiver = bounded(waiver, finding, shown)
    add_waiver(file, finding, waiver, this_day(), replace=replace)
    notes: list[str] = []
    if not waiver.classes:
        held = "no report is there" if shown is None else "the report does not show it"
        notes.append(f"{held}: the waiver covers whatever has this id; --report bounds it")
    if waiver.flow and waiver.flow not in known:
        unknown = unknown_flows_text(waiver.flow, known)
        notes.append(f"it is for {unknown} (a dialect of your own may be called so)")
    return notes


def add_waiver(file: Path, finding: str, waiver: Waiver, today: date, *, replace: bool) -> None:
    """Add a waiver to a file, whole or not at all, after concurrent writers.

    Raises `WaiverPast`, `DeclarationRefused`, `OSError`.
    """
    if waiver.until < today:
        raise WaiverPast(waiver.until, today)
    place = file.resolve()
    with locked_folder(place.parent):
        before = read_text(file) if file.exists() else ""
        after = with_waiver(before, str(file), finding, waiver, replace=replace)
        write_whole(place, after.encode())


def migrate_waivers(file: Path, report: Report) -> Migration:
    """Carry the waivers of a file over to the ids of today; those that lapse stay as they are.

    Raises `DeclarationRefused`, `OSError`.
    """
    place = file.resolve()
    with locked_folder(place.parent):
        before = read_text(file)
        found = migrated(waivers_of(before, str(file)), report)
        write_whole(place, with_ids(before, str(file), found.carried, found.waivers).encode())
    return found
