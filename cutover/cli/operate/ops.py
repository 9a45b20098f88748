"""`cutover ops`: a turn of the flow ops in a terminal, which is asked for approvals."""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from contract.errors import CutoverError, Refused, visible
from contract.flows.ops import MOST_ITERATIONS, OPS, OpsRequest, pending_approval
from contract.human import HumanAnswer, PendingQuestion
from contract.wire import WireReader
from cutover.cli.terminal import refusals, tables
from cutover.flows import DEFAULT_CONFIG, settings_at
from cutover.wiring.composition import open_services
from effects.stores import PauseStore
from router.config.schema import Settings
from router.router import Router
from router.serving.stream import NotServed, ServedStream

REFUSED = 2
EXITS = {"completed": 0, "failed": 1, "rejected": 1, "approval_required": 3}
"""Exit statuses, by how the turn stands at the end."""
_COLOURS = {"low": "green", "medium": "yellow", "high": "red", "critical": "bold red"}

Ask = Callable[[str], bool | None]
"""Asks for a decision; None where none is made now."""


class NothingAsked(CutoverError):
    """Neither a message nor an approval is named, or both are."""

    def __init__(self) -> None:
        super().__init__('name what is to be done ("check the disks"), or an approval: --resume ID')


class NoTerminal(CutoverError):
    """An approval needs a person."""

    def __init__(self) -> None:
        super().__init__(
            "without a terminal nobody can approve: run it in one, or send the decision to "
            "POST /ops/resume"
        )


class UnknownApproval(CutoverError):
    """No instruction waits under an id."""

    def __init__(self, approval_id: str) -> None:
        super().__init__(f"no instruction waits for the approval {approval_id!r}")


class TurnRefused(CutoverError):
    """The turn was refused before it began."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}" if detail else code)


def ops(
    message: Annotated[str | None, typer.Argument(help="What is to be done.")] = None,
    *,
    resume: Annotated[
        str | None, typer.Option(metavar="ID", help="Decide on an approval that waits.")
    ] = None,
    session: Annotated[
        str, typer.Option(help="The conversation; your own without one.", show_default=False)
    ] = "",
    by: Annotated[
        str, typer.Option(help="Who decides, for the audit log.", show_default="your login")
    ] = "",
    max_iterations: Annotated[
        int | None, typer.Option(min=1, max=MOST_ITERATIONS, help="Steps of the turn.")
    ] = None,
    config: Annotated[Path, typer.Option(help="The configuration.")] = DEFAULT_CONFIG,
) -> None:
    """Let workers do something, step by step, and approve what is risky.

    Without a terminal risky instructions are refused. Exit 0: done, 1: failed, rejected, or the
    last instruction did not go well, 2: the turn was refused, 3: an approval waits.
    """
    with refusals(REFUSED):
        if (message is None) == (resume is None):
            raise NothingAsked
        terminal = sys.stdin.isatty()
        if resume is not None and not terminal:
            raise NoTerminal
        who = by.strip() or getpass.getuser()
        body = None
        if message is not None:
            named: dict[str, Any] = {"input": message, "session_id": session or f"terminal-{who}"}
            body = msgspec.convert(named | {"max_iterations": max_iterations}, OpsRequest)
        settings = settings_at(config)
        if not terminal:
            settings = refusing(settings)
        raise typer.Exit(asyncio.run(_run(settings, body, resume or "", who)))


def refusing(settings: Settings) -> Settings:
    """Return settings by which risky instructions are refused: there is no approver."""
    flow = settings.flows[OPS.name]
    options = msgspec.structs.replace(flow.options, approvals="refuse")
    changed = flow.model_copy(update={"options": options})
    return settings.model_copy(update={"flows": {**settings.flows, OPS.name: changed}})


async def _run(settings: Settings, body: OpsRequest | None, approval_id: str, by: str) -> int:
    async with open_services(lambda: settings, os.environ) as services:
        turn = TerminalTurn(services.router, services.sessions.pauses, tables(), by, _ask)
        status = await (turn.take(body) if body is not None else turn.resume(approval_id))
        return EXITS[status]


def _ask(question: str) -> bool | None:
    try:
        return typer.confirm(question)
    except typer.Abort:
        typer.echo()
        return None


@dataclass(slots=True)
class TerminalTurn:
    """A turn shown on a console; `ask` decides on each approval, `by` is who decides."""

    router: Router
    pauses: PauseStore
    console: Console
    by: str
    ask: Ask
    _results: list[tuple[bool, str]] = field(default_factory=list, init=False)
    """Whether each instruction went well, and the message of its result."""
    _decided: str = field(default="", init=False)
    """The approval that was decided on last."""

    async def take(self, body: OpsRequest) -> str:
        """Take a turn, through any number of approvals; returns how it stands then."""
        return await self._show(await self.router.open(OPS, body))

    async def resume(self, approval_id: str) -> str:
        """Decide on an approval that waits, and continue its turn; returns how it stands then."""
        pause = await self.pauses.get(approval_id)
        if pause is None or pause.flow != OPS.name or pause.question is None:
            raise UnknownApproval(approval_id)
        question = PendingQuestion(approval_id, pause.question.form)
        self._print_instruction(msgspec.to_builtins(pending_approval(question)[1]))
        return await self._decide(approval_id)

    async def _decide(self, approval_id: str) -> str:
        decision = self.ask("Carry it out?")
        if decision is None:
            waits = "It waits until the next turn of its session"
            self._print_hint(f"{waits}: cutover ops --resume {approval_id}")
            return "approval_required"
        self._decided = approval_id
        answer = HumanAnswer("approve" if decision else "reject", by=self.by)
        await self.router.respond(OPS, approval_id, answer)
        return await self._show(await self.router.resume(OPS, approval_id))

    async def _show(self, stream: ServedStream) -> str:
        """Print the events of a stream as they come; ask for the approval it ends with."""
        reader, approval_id, status = WireReader(OPS.decoder), "", "failed"
        try:
            try:
                await stream.open()
            except Refused as refused:
                raise TurnRefused(refused.code, refused.detail) from refused
            except NotServed as unserved:
                raise TurnRefused(unserved.code, "no stack could serve it") from unserved
            async for piece in stream.pieces():
                for event in reader.feed(b"".join(piece)):
                    data = msgspec.json.decode(event.data)
                    self._print_event(event.name, data)
                    approval_id = data.get("approval_id", approval_id)
                    status = data.get("status", status)
            await stream.close_in_grace()
        except BaseException as error:
            stream.disconnect()  # else the rest of a deployment would go on
            if isinstance(error, asyncio.CancelledError):
                self._print_interrupted()
            raise
        finally:
            self.router.close(stream)
        if status == "approval_required":
            return await self._decide(approval_id)
        went_well = not self._results or self._results[-1][0]
        return status if went_well or status != "completed" else "failed"

    def _print_interrupted(self) -> None:
        self.console.print("interrupted: what has begun comes to its end, nothing more is done")
        if self._decided:
            self._print_hint(f"To go on: cutover ops --resume {self._decided}")

    def _print_hint(self, hint: str) -> None:
        self.console.print(hint, highlight=False, soft_wrap=True)  # to be copied in one piece

    def _print_event(self, name: str, data: dict[str, Any]) -> None:
        match name:
            case "step":
                self._print_instruction(data)
            case "progress":
                self.console.print(f"  [dim]{_shown(data['message'])}[/]", highlight=False)
            case "result":
                mark = "[green]✓[/]" if data["ok"] else "[red]✗[/]"
                self.console.print(f"  {mark} {_shown(data['message'])}", highlight=False)
                self._results.append((data["ok"], data["message"]))
            case "final" if data["message"] != "\n".join(one for _, one in self._results):
                self.console.print(_shown(data["message"]), highlight=False)
            case "error":
                self.console.print(f"[red]failed:[/] {_shown(data['code'])}", highlight=False)
            case "done" if data["status"] == "rejected":
                self.console.print("rejected: nothing more is done", highlight=False)
            case _:
                pass

    def _print_instruction(self, data: dict[str, Any]) -> None:
        risk, args = data["risk"], data["args"]
        instruction = f"{data['worker']}.{data['action']}"
        if args:
            instruction += f" {msgspec.json.encode(args).decode()}"
        self.console.print(f"{_shown(instruction)} [{_COLOURS[risk]}]{risk}[/]", highlight=False)


def _shown(text: str) -> str:
    return escape(visible(text))
