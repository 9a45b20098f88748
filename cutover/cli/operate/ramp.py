"""`cutover ramp`: raise a flow's percentage step by step while the gate says promote."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from compare.captures import KnownParts
from contract.errors import visible
from cutover.cli.terminal import refusals, terminal_user
from cutover.flows import DEFAULT_CONFIG, flows_of, settings_at
from cutover.gate import decide
from cutover.pins import describe_moves, describe_remaining
from cutover.ramp.flags import FileFlags, FlagWriter, ServiceFlags, file_audit
from cutover.ramp.hooks import CommandHooks
from cutover.ramp.machine import Phase, Plan, RampState, begin
from cutover.ramp.pace import captured_rate, describe_pace
from cutover.ramp.runner import Decide, Ramp, SystemClock
from cutover.ramp.state import MemoryState, StateFile
from cutover.wiring.flags import create, factory_options
from evidence.decision import Decision
from router.config.errors import unknown_name
from router.config.loader import convert_table
from router.config.schema import RampSettings, Settings, percentage

REFUSED = 4
EXIT_CODES: dict[Phase, int] = {
    "done": 0,
    "running": 1,
    "rolling_back": 1,
    "rolled_back": 2,
    "stopped": 3,
}
_COLOURS: dict[str, str] = {
    "promote": "green",
    "hold": "yellow",
    "cannot_tell": "yellow",
    "rollback": "red",
}
_MICROSECONDS: Final = 1_000_000
_REASONS: Final = 3
"""How many reasons a line has."""


@dataclass(frozen=True, slots=True)
class RampPlace:
    """Which flow, by which configuration and captures."""

    flow: str
    config: Path
    captures: str | None
    load: Path | None
    noise: tuple[str, ...] = ()

    def settings(self) -> Settings:
        """Read the configuration; raises `ConfigRefused`."""
        settings = settings_at(self.config)
        if self.flow not in settings.flows:
            where = f"flows.{self.flow}"
            raise unknown_name(str(self.config), where, settings.flows, "flow")
        return settings

    def decider(self, writer: FlagWriter) -> Decide:
        """Return what asks the gate, by the flags in force, which may be a service's.

        It reads what was captured since it was asked last.
        """
        known_parts = KnownParts()

        def ask(to: float, since: float | None) -> Decision:
            settings, flags = self.settings(), writer.read()
            flow = settings.flows[self.flow].model_copy(
                update={
                    "enable_langgraph": flags.enabled,
                    "langgraph_percent": percentage(flags.percent),
                }
            )
            flows = {**settings.flows, self.flow: flow}
            return decide(
                self.captures or settings.captures.path,
                settings.model_copy(update={"flows": flows}),
                self.flow,
                to=to,
                load=self.load,
                noise=self.noise,
                since=None if since is None else int(since * _MICROSECONDS),
                known_parts=known_parts,
            )

        return ask


def ramp(
    flow: Annotated[str, typer.Argument(help="The flow.")],
    config: Annotated[Path, typer.Option(help="The configuration.")] = DEFAULT_CONFIG,
    captures: Annotated[
        str | None,
        typer.Option(help="Folder or URL, for it.", show_default="those of the configuration"),
    ] = None,
    load: Annotated[Path | None, typer.Option(help="A folder of cutover load, for it.")] = None,
    noise: Annotated[
        list[str] | None,
        typer.Option(help="Captures of legacy's answers to the same messages; may be repeated."),
    ] = None,
    steps: Annotated[str, typer.Option(help="As 1,5,25,50,100.", show_default="[ramp]")] = "",
    hold: Annotated[
        float | None, typer.Option(help="Seconds each step is held.", show_default="[ramp]")
    ] = None,
    passes: Annotated[
        int | None, typer.Option(help="Looks in a row that must pass.", show_default="[ramp]")
    ] = None,
    interval: Annotated[
        float | None, typer.Option(help="Seconds between two looks.", show_default="[ramp]")
    ] = None,
    *,
    once: Annotated[bool, typer.Option("--once", help="One look, as for cron.")] = False,
    advise: Annotated[
        bool, typer.Option("--advise", help="Report what it would do; write nothing.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and one look; write nothing.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Begin anew after a ramp that has ended.")
    ] = False,
) -> None:
    """Raise a flow's percentage step by step while the gate says promote, or roll back.

    Exit 0: done, 1: under way (start it again to go on), 2: rolled back, 3: stopped by a person's
    change, 4: refused; then nothing was changed.
    """
    logging.basicConfig(level=logging.ERROR)
    with refusals(REFUSED):
        place = RampPlace(flow, config, captures, load, tuple(noise or ()))
        settings = place.settings()
        given = {"steps": steps.split(",") if steps else None, "hold_seconds": hold}
        given |= {"passes": passes, "interval_seconds": interval}
        table = _with_options(settings.ramp, given)
        plan = Plan(
            tuple(map(float, table.steps)), table.hold_seconds, table.passes, table.interval_seconds
        )
        writer, clock = open_writer(place, settings), SystemClock()
        if advise or dry_run:
            if dry_run:
                _print_plan(plan, writer)
                _print_pace(plan, writer.read().share, place)
            begun = begin(flow, writer.read(), clock.now())
            memory, decider = MemoryState(begun), place.decider(writer)
            advising = Ramp(begun, plan, writer, memory, decider, clock, advise=True)
            raise typer.Exit(_run(advising, clock, once=once or dry_run))
        writer.check()
        file = StateFile(Path(table.state), flow)
        with file.only_runner():
            state = file.load()
            if state is None or (state.ended and again):
                state = begin(flow, writer.read(), clock.now())
                file.save(state)
            elif state.ended:
                typer.echo(f"{flow}: {state.detail}; --again begins the next ramp")
                raise typer.Exit(EXIT_CODES[state.phase])
            if not once:
                _print_pace(plan, state.flags.share, place)
            hooks = CommandHooks(table.before, table.after, table.hook_seconds)
            running = Ramp(state, plan, writer, file, place.decider(writer), clock, hooks)
            status = _run(running, clock, once=once)
    with refusals(status):  # what cannot be said of pins changes nothing of how it ended
        typer.echo(_describe_pins(running.state, place), nl=False)
    raise typer.Exit(status)


def open_writer(place: RampPlace, settings: Settings) -> FlagWriter:
    """Return what writes the flags that routers read; raises `ProviderNotLoaded`."""
    file = FileFlags(place.config, place.flow, terminal_user("cutover ramp"))
    table = settings.ramp
    if table.writer == "file":
        return file
    options = {"flow": place.flow, **factory_options(table.options, os.environ)}
    return ServiceFlags(file, create(table.writer, options), file_audit(settings))


def _with_options(table: RampSettings, given: dict[str, Any]) -> RampSettings:
    """Return the settings with what the command line gives; raises `ConfigRefused`."""
    given = {key: value for key, value in given.items() if value is not None}
    if "steps" in given:
        given["steps"] = [_number(step) for step in given["steps"]]
    read = convert_table(given, RampSettings, "the command line", "ramp.")
    return table.model_copy(update={key: getattr(read, key) for key in given})


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # refused by name with the others


def _run(ramp: Ramp, clock: SystemClock, *, once: bool) -> int:
    """Look until the ramp ends, a signal comes or one look is made; return the exit status."""
    console = Console()
    if once:
        _print_look(ramp.look(), console)
        return EXIT_CODES[ramp.state.phase]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: clock.stop())
    shown = console.status("first look") if console.is_terminal else nullcontext()
    with shown as status:

        def report(state: RampState) -> None:
            _print_look(state, console)
            if status is not None:
                status.update(f"{state.flow}: {state.flags.share:g} % on graph")

        ramp.run(report)
    return EXIT_CODES[ramp.state.phase]


def _print_look(state: RampState, console: Console) -> None:
    """Print one line: when, the flow and its share, the verdict, what follows, and the reasons."""
    look = state.look
    at = datetime.fromtimestamp(look.at if look else state.since, UTC)
    verdict = "" if look is None else look.verdict
    reasons: tuple[str, ...] = () if look is None or look.failure else look.reasons
    more = len(reasons) - _REASONS
    named = [*reasons[:_REASONS], *([f"and {more} more"] if more > 0 else [])]
    line = Text(f"{at:%Y-%m-%dT%H:%M:%SZ} {state.flow} {state.flags.share:g} % ")
    line.append(verdict, _COLOURS.get(verdict, ""))
    line.append(visible(f" {state.detail}{': ' if named else ''}{'; '.join(named)}"))
    console.print(line, soft_wrap=True)


def _print_plan(plan: Plan, writer: FlagWriter) -> None:
    """Print the steps from the flags in force on."""
    flags = writer.read()
    steps = " → ".join(f"{step:g} %" for step in plan.steps if step > flags.share) or "none"
    typer.echo(f"now: {flags}")
    typer.echo(
        f"steps: {steps}; each held for {plan.hold:g} s and promoted after {plan.passes} passes, "
        f"a look every {plan.interval:g} s"
    )


def _print_pace(plan: Plan, share: float, place: RampPlace) -> None:
    """Print how long each step takes at least, at the rate of requests that captures show."""
    settings = place.settings()
    captures = place.captures or settings.captures.path
    rate = captured_rate(captures, flows_of(settings)[place.flow])
    requests = settings.gate_of(place.flow).requests
    for line in describe_pace(plan, share, requests, rate):
        typer.echo(line)


def _describe_pins(state: RampState, place: RampPlace) -> str:
    """Describe the pinned conversations that an end leaves behind, as lines."""
    if state.phase not in {"done", "rolled_back"}:
        return ""
    who, settings, text = terminal_user("cutover ramp"), place.settings(), ""
    if state.phase == "done":
        text = asyncio.run(describe_remaining(state.flow, settings, who))
    elif settings.flows[state.flow].history == "own":
        text = asyncio.run(describe_moves(state.flow, settings, who))
    return f"{text}\n" if text else ""
