"""`cutover retire legacy`: what is left to do before legacy is removed, and the last step."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from contract.errors import visible
from cutover.cli.terminal import refusals, terminal_user
from cutover.flows import DEFAULT_CONFIG, settings_at
from cutover.reports import waivers_at
from cutover.retirement import Retirement, Task, examine, retirement_page
from effects.files import write_whole
from router.admin.audit import now

LEFT = 1
REFUSED = 2
_MARKS = {True: ("done", "green"), False: ("to do", "red"), None: ("unknown", "yellow")}


def retire(
    stack: Annotated[Literal["legacy"], typer.Argument(help="The stack that is to go.")],
    config: Annotated[Path, typer.Option(help="The configuration.")] = DEFAULT_CONFIG,
    captures: Annotated[
        str, typer.Option(help="Folder or URL.", show_default="those of the configuration")
    ] = "",
    waivers: Annotated[
        Path | None, typer.Option(help="Accepted differences.", show_default="waivers.toml")
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="Days without legacy that are due.")] = 14,
    *,
    page: Annotated[
        Path | None, typer.Option(help="Write it as one HTML page, too.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
) -> None:
    """Show what is left to do before legacy is removed, and the last step.

    Nothing is changed. Exit 0: nothing is left, 1: something is, or cannot be told, 2: refused.
    """
    del stack
    with refusals(REFUSED):
        settings = settings_at(config)
        place = captures or settings.captures.path
        found = asyncio.run(
            examine(settings, os.environ, place, waivers_at(waivers), terminal_user(), days, now())
        )
        if page is not None:
            write_whole(page, retirement_page(found).encode("utf-8", "replace"))
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        _print(found)
    raise typer.Exit(0 if found.ready else LEFT)


def _print(found: Retirement) -> None:
    console = Console()
    for task in found.tasks:
        console.print(_line(task), soft_wrap=True)
    left = sum(not task.done for task in found.tasks)
    headline = "legacy can be removed; the last step:" if found.ready else f"{left} left; then:"
    console.print(Text(headline, "bold"))
    for number, step in enumerate(found.last_step, 1):
        console.print(Text(f"  {number}. {step}"), soft_wrap=True)


def _line(task: Task) -> Text:
    mark, colour = _MARKS[task.done]
    about = f" {task.flow}" if task.flow else ""
    line = Text(f"{mark:7} ", colour)
    line.append(visible(f"{task.name}{about}: {task.detail}"), "none")
    if task.advice:
        line.append(visible(f": {task.advice}"), "none")
    return line
