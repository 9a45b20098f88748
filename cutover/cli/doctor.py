"""`cutover doctor`: what a set-up is, what it lacks, what it can and cannot do."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from contract.errors import CutoverError
from cutover.doctor import declared_said, examine
from cutover.finding import Finding
from cutover.flows import DEFAULT_CONFIG, SPECS, flows_of
from router.config import (
    Capability,
    ModelAccess,
    capabilities_of,
    is_offered,
    load_settings,
    parse_settings,
    powers_of,
    stacks_without,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.config import Settings

_COLOURS = {"yes": "green", "no": "yellow", "off": "dim"}
_KINDS = ("fallback", "takeover", "shadow", "replay")


def doctor(
    config: Annotated[Path, typer.Option(help="The configuration.")] = DEFAULT_CONFIG,
) -> None:
    """Say what is configured, reachable and missing, and what this set-up can and cannot do.

    Exit 0: all is well, 1: something is missing or refused. What a set-up cannot do is no fault.
    """
    console = Console()
    try:
        settings = _settings(config)
    except CutoverError as refused:
        console.print(f"[red]refused[/] {escape(str(refused))}", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from refused
    findings = asyncio.run(examine(settings, os.environ))
    _tell(settings, findings, console)
    raise typer.Exit(0 if all(finding.good for finding in findings) else 1)


def _settings(config: Path) -> Settings:
    if config == DEFAULT_CONFIG and not config.exists():
        return parse_settings("", str(config), SPECS)
    return load_settings(config, SPECS)


def _tell(settings: Settings, findings: Sequence[Finding], console: Console) -> None:
    console.print(f"configuration {settings.version}", highlight=False)
    for finding in findings:
        mark = "[green]good   [/]" if finding.good else "[red]missing[/]"
        said = f"{mark} {escape(finding.part)}: {escape(finding.said)}"
        console.print(said, highlight=False, soft_wrap=True)
    for name, flow in settings.flows.items():
        shadow = settings.shadow
        asking = ModelAccess(
            settings.gateway.enabled, shadow.mode == "live", shadow.history == "own"
        )
        lacks = stacks_without(name, flow, settings.stacks)
        path = flows_of(settings)[name].path
        for able in capabilities_of(flow, powers_of(settings.stacks), lacks, asking):
            title = f"\n{path}, {name} ({flow.stage}), served by {able.served}"
            console.print(escape(title), highlight=False)
            console.print(_table({kind: getattr(able, kind) for kind in _KINDS}))
        if flow.declared is not None:
            console.print(f" {escape(declared_said(flow.declared))}", highlight=False)
        elif not is_offered(name, flow, settings.stacks):
            console.print(f"\n{path}, {name}: not offered, nobody has it", highlight=False)


def _table(rows: dict[str, Capability]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=True)
    for kind, able in rows.items():
        colour = _COLOURS[able.answer]
        table.add_row(kind, f"[{colour}]{able.answer}[/]", escape(able.why))
    return table
