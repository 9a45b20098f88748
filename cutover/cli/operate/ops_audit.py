"""`cutover ops audit`: what was requested of workers, decided and done."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from contract.errors import CutoverError, EffectFailed, visible
from contract.workers import AuditEntry
from cutover.cli.terminal import print_rows, refusals, tables
from cutover.flows import DEFAULT_CONFIG, settings_at
from cutover.wiring.addresses import audit_address
from effects.stores import SqlAudit, sqlite_file
from effects.stores.audit import LONGEST_PAGE

REFUSED = 2
_TITLES = ("when (UTC)", "session", "event", "instruction", "risk", "who", "result")


class NotLasting(CutoverError):
    """The log is in the memory of each process."""

    def __init__(self, address: str) -> None:
        super().__init__(f"[stores] audit = {address!r}: the log ends with the process it is in")


class Unreadable(CutoverError):
    """The log cannot be read."""

    def __init__(self, code: str) -> None:
        super().__init__(f"the audit log cannot be read: {code}; cutover doctor says more")


def audit(
    *,
    session: Annotated[str, typer.Option(help="Only of this session.", show_default="all")] = "",
    by: Annotated[
        str, typer.Option(help="Only what this person decided.", show_default="all")
    ] = "",
    before: Annotated[
        str, typer.Option(help="Only before the entry of this id.", metavar="ID")
    ] = "",
    limit: Annotated[
        int, typer.Option(help="How many, the newest first.", min=1, max=LONGEST_PAGE)
    ] = 50,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON line each instead of a table.")
    ] = False,
    config: Annotated[Path, typer.Option(help="The configuration.")] = DEFAULT_CONFIG,
) -> None:
    """Show what was requested of workers, decided and done, newest first.

    A name that was erased is shown, and asked for, as its pseudonym. Exit 0: shown, also where
    there is nothing; 2: the log cannot be read.
    """
    with refusals(REFUSED):
        found = asyncio.run(_read(config, session, by, before, limit))
    if as_json:
        for entry in found:
            typer.echo(msgspec.json.encode(entry).decode())
    elif found:
        print_rows(tables(), _TITLES, map(_cells, found), _lines)
    else:
        typer.echo("nothing is logged")


async def _read(
    config: Path, session: str, by: str, before: str, limit: int
) -> tuple[AuditEntry, ...]:
    place = audit_address(settings_at(config).stores, os.environ)
    scheme = place.partition("://")[0]
    if scheme == "memory":
        raise NotLasting(place)
    if scheme == "sqlite" and not sqlite_file(place).exists():
        return ()  # reading makes no file
    try:
        async with SqlAudit.open(place) as log:
            return await log.read(session_id=session, by=by, before=before, limit=limit)
    except EffectFailed as failure:
        raise Unreadable(failure.fault.code) from failure


def _cells(entry: AuditEntry) -> tuple[str, ...]:
    instruction = f"{entry.worker}.{entry.action}"
    if entry.args:
        instruction += f" {msgspec.json.encode(entry.args).decode()}"
    result = entry.code or ("ok" if entry.ok else "")
    moment = entry.at.removesuffix("Z").replace("T", " ")
    whole = (moment, entry.session_id, entry.event, instruction, entry.risk, entry.by, result)
    return tuple(map(visible, whole))


def _lines(cells: tuple[str, ...]) -> str:
    when, session, event, instruction, risk, who, result = cells
    told = ", ".join(filter(None, (f"by {who}" if who else "", result)))
    return f"{when}  {session}: {event}{f' {told}' if told else ''}\n    {instruction} ({risk})"
