"""`cutover doctor`: what a set-up is, what it lacks, what it can and cannot do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from contract.errors import CutoverError
from cutover.doctor import PartCheck, describe_declared, examine, stacks_without
from cutover.flows import DEFAULT_CONFIG, flows_of, settings_at
from cutover.wiring.stacks import DEFAULTS
from router.config.capabilities import (
    Capability,
    capabilities_of,
    is_offered,
    serving_stacks,
)
from router.config.schema import Settings

_COLOURS = {"yes": "green", "no": "yellow", "off": "dim"}
_KINDS = ("fallback", "takeover", "shadow", "replay")


def doctor(
    config: Annotated[Path, typer.Option(help="The configuration.")] = DEFAULT_CONFIG,
) -> None:
    """Show what is configured, reachable and missing, and what this set-up can and cannot do.

    Exit 0: all is well, 1: something is missing or refused. What a set-up cannot do is no fault.
    """
    console = Console()
    try:
        settings = settings_at(config)
    except CutoverError as refused:
        console.print(f"[red]refused[/] {escape(str(refused))}", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from refused
    checks = asyncio.run(examine(settings, os.environ))
    _print(settings, checks, console)
    raise typer.Exit(0 if all(check.ok for check in checks) else 1)


def _print(settings: Settings, checks: Sequence[PartCheck], console: Console) -> None:
    console.print(f"configuration {settings.version}", highlight=False)
    for check in checks:
        mark = "[green]good   [/]" if check.ok else "[red]missing[/]"
        line = f"{mark} {escape(check.part)}: {escape(check.detail)}"
        console.print(line, highlight=False, soft_wrap=True)
    for name, flow in settings.flows.items():
        path = flows_of(settings)[name].path
        if len(DEFAULTS) == 1:
            left = f"served by {next(iter(DEFAULTS))}, the only stack: no fallback, no shadow"
            console.print(f"\n{path}, {name}: {left}", highlight=False)
            continue
        without = stacks_without(name, settings)
        for stack in set(without).intersection(serving_stacks(flow)):
            left = f"{stack} is to serve it, and does not have it"
            console.print(escape(f"\n{path}, {name} ({flow.stage}): {left}"), highlight=False)
        for able in capabilities_of(name, settings, without):
            title = f"\n{path}, {name} ({flow.stage}), served by {able.served}"
            console.print(escape(title), highlight=False)
            console.print(_table({kind: getattr(able, kind) for kind in _KINDS}))
        if flow.declared is not None:
            console.print(f" {escape(describe_declared(flow.declared))}", highlight=False)
        elif not is_offered(name, settings):
            console.print(f"\n{path}, {name}: not offered, no stack has it", highlight=False)


def _table(rows: dict[str, Capability]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=True)
    for kind, able in rows.items():
        colour = _COLOURS[able.answer]
        table.add_row(kind, f"[{colour}]{able.answer}[/]", escape(able.why))
    return table
