"""`cutover doctor`: what a set-up is, what it lacks, what it can and cannot do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from contract.errors import CutoverError, visible
from contract.flow import SESSION
from cutover.cli.setup.findings import COLOURS, headline, lines_of, rung_lines
from cutover.cli.terminal import refusals, tables
from cutover.doctor import PartCheck, describe_declared, examine, stacks_without
from cutover.flow_probe import probed_flows, promises_of, requests_for, see
from cutover.flows import DEFAULT_CONFIG, flows_of, settings_at
from cutover.ladder import observe
from cutover.probe import SECONDS, ProbeRequest, body_of, headers_of, text_in
from cutover.recognition import Recognised
from cutover.wiring.stacks import DEFAULTS
from router.config.capabilities import (
    Capability,
    capabilities_of,
    history_cost,
    is_offered,
    rungs_of,
    serving_stacks,
)
from router.config.schema import Settings
from router.stack import StackName

MISUSED = 2
_KINDS = ("fallback", "takeover", "shadow", "replay")
_MARKS = {"good": "green", "note": "yellow", "missing": "red"}


def doctor(
    config: Annotated[Path, typer.Option(help="The configuration.")] = DEFAULT_CONFIG,
    *,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            help="Ask each service behind an address once for each of its flows, as a shadow: one "
            "request each, which costs what a request costs.",
        ),
    ] = False,
    flow: Annotated[str, typer.Option(help="With --probe: this flow alone.")] = "",
    body: Annotated[
        str,
        typer.Option(
            help="With --probe: the request; default: the flow's example.", metavar="FILE|JSON"
        ),
    ] = "",
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            help='With --probe: a header to send, such as "authorization: Bearer $TOKEN"; it is '
            "not shown.",
            metavar="NAME:VALUE",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1, help="With --probe: what an answer may take.")
    ] = SECONDS,
) -> None:
    """Show what is configured, reachable and missing, and what this set-up can and cannot do.

    Exit 0: all is well, 1: something is missing or refused, or, with --probe, a service does not
    answer as configured, 2: misused. What a set-up cannot do is no fault.
    """
    console = tables()
    try:
        settings = settings_at(config)
    except CutoverError as refused:
        console.print(f"[red]refused[/] {escape(str(refused))}", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from refused
    with refusals(MISUSED):
        template = ProbeRequest(b"", headers_of(header or ()), seconds)
        given = replace(template, body=body_of(text_in(body))) if body else None
        requests = requests_for(settings, given, flow, template) if probe else {}
    checks = asyncio.run(examine(settings, os.environ))
    _print(settings, checks, console)
    answered = [_probe(name, settings, request, console) for name, request in requests.items()]
    raise typer.Exit(0 if all(check.ok for check in checks) and all(answered) else 1)


def _probe(name: str, settings: Settings, request: ProbeRequest | None, console: Console) -> bool:
    """Ask the services of a flow and print what they answer.

    Returns whether all answer as configured.
    """
    path = flows_of(settings)[name].path
    if request is None:
        why = "no request is known: give --body, or example in the file"
        console.print(f"\n{path}, {name}: not asked, {why}", highlight=False, soft_wrap=True)
        return True
    stacks = probed_flows(settings)[name]
    count = "one request" if len(stacks) == 1 else f"{len(stacks)} requests"
    title = f"{path}, {name}: {count} sent, with x-cutover-role: shadow"
    console.print(f"\n{escape(title)}", highlight=False, soft_wrap=True)
    seen = {stack: asyncio.run(see(stack, name, settings, request)) for stack in stacks}
    for stack, one in seen.items():
        mark = "[green]good   [/]" if one.fits else "[red]missing[/]"
        found = "as configured" if one.fits else headline(one.found)
        if isinstance(one.found, Recognised) and not one.fits:
            found = f"not in the format that is configured, but in {found}"
        for line in (f"{mark} {stack}: {found}", *lines_of(one.found)):
            console.print(line, highlight=False, soft_wrap=True)
    table = Table(box=None, show_header=False, pad_edge=True)
    for promise in promises_of(name, settings, seen):
        holds = "[green]holds[/]" if promise.holds else "[red]fails[/]"
        table.add_row(f"{promise.kind}, {promise.served} serving", holds, escape(promise.why))
    if table.row_count:
        console.print(table)
    return all(one.fits for one in seen.values())


def _print(settings: Settings, checks: Sequence[PartCheck], console: Console) -> None:
    console.print(f"configuration {settings.version}", highlight=False)
    for check in checks:
        mark = f"[{_MARKS[check.word]}]{check.word:<7}[/]"
        line = f"{mark} {escape(check.part)}: {escape(check.detail)}"
        console.print(line, highlight=False, soft_wrap=True)
    if len(DEFAULTS) == 1:
        left = f"served by {next(iter(DEFAULTS))}, the only stack: no fallback, no shadow"
        for name in settings.flows:
            console.print(f"\n{flows_of(settings)[name].path}, {name}: {left}", highlight=False)
        return
    for name in settings.flows:
        if not _is_off(name, settings):
            _print_flow(name, settings, console)


def _is_off(name: str, settings: Settings) -> bool:
    """Whether a built-in flow is not offered: no stack has it, and none is to serve it."""
    flow, without = settings.flows[name], stacks_without(name, settings)
    if flow.declared is not None:
        return False
    left = set(serving_stacks(flow)) <= set(without)
    return not is_offered(name, settings) or (left and not flow.enable_langgraph)


def _print_flow(name: str, settings: Settings, console: Console) -> None:
    flow, path = settings.flows[name], flows_of(settings)[name].path
    without = stacks_without(name, settings)
    for stack in set(without).intersection(serving_stacks(flow)):
        left = f"{stack} is to serve it, and does not have it"
        console.print(
            escape(f"\n{path}, {name} (configured: {flow.stage}): {left}"), highlight=False
        )
    for able in capabilities_of(name, settings, without):
        title = f"\n{path}, {name} (configured: {flow.stage}), served by {able.served}"
        console.print(escape(title), highlight=False)
        console.print(_table({kind: getattr(able, kind) for kind in _KINDS}))
    cost = history_cost(name, settings) if SESSION in flows_of(settings)[name].route_keys else ""
    if cost:
        console.print(escape(f" conversations {cost}"), highlight=False, soft_wrap=True)
    if flow.declared is not None:
        line = f" {escape(describe_declared(flow.declared))}"
        console.print(line, highlight=False, soft_wrap=True)
    observed = observe(name, settings)
    for number, one in enumerate(observed):
        if not number:
            console.print(" what the newest captures show", highlight=False)
        console.print(
            f"  {one.stack:<8} {escape(visible(one.seen))}", highlight=False, soft_wrap=True
        )
        if one.lift:
            line = f"  {'':<8} [dim]one rung up: {escape(one.lift)}[/]"
            console.print(line, highlight=False, soft_wrap=True)
    called = {one.stack for one in observed if one.called} == set(get_args(StackName))
    if rungs := rungs_of(name, settings, called=called):
        for line in (" what each step gives, and what it takes", *rung_lines(rungs)):
            console.print(line, highlight=False, soft_wrap=True)


def _table(rows: dict[str, Capability]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=True)
    for kind, able in rows.items():
        colour = COLOURS[able.answer]
        table.add_row(kind, f"[{colour}]{able.answer}[/]", escape(able.why))
    return table
