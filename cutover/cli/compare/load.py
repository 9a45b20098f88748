"""`cutover load`: both stacks under load, one report."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import TimeElapsedColumn
from rich.table import Table

from contract.errors import CutoverError
from contract.flow import FlowSpec
from contract.flows.chat import CHAT
from contract.flows.companion import COMPANION
from contract.flows.ops import OPS
from contract.flows.pipeline import PIPELINE
from contract.flows.session import SESSION
from cutover.cli.terminal import bar, refusals, tables
from cutover.cluster import LOADING, differing, versions
from cutover.demo.client import BUNDLED
from cutover.flows import declared_at, settings_at
from cutover.load_trace import captured_requests, trace_of
from loadtests.arrivals import Cancellations, Shape
from loadtests.machines import Address, Machines, Secrets, work
from loadtests.metrics import DEFAULT_OBJECTIVES, parse_objective
from loadtests.plan import Engine, LoadPlan, Spacing
from loadtests.report import (
    HEADS,
    LoadReport,
    method_line,
    metric_lines,
    objectives_line,
    paired_lines,
    stack_line,
    void_lines,
)
from loadtests.requests import Target, flow_named, parse_header
from loadtests.runner import (
    TICK_SECONDS,
    UI_HOST,
    Generators,
    LoadProgress,
    NothingMeasured,
    OwnProcesses,
    run_load,
)
from router.config.schema import RemoteStackSettings, Settings
from router.remote import endpoint_url

STACKS = ("legacy", "graph")
CANNOT_TELL = 3
REFUSED = 2

Option = typer.Option


SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def first_signal() -> Iterator[list[signal.Signals]]:
    """Yield a list that takes the first signal of the block; a second one ends the process.

    Signals that are ignored (`nohup`) stay ignored.
    """
    loop = asyncio.get_running_loop()
    handled = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
    received: list[signal.Signals] = []

    def restore() -> None:
        while handled:
            loop.remove_signal_handler(handled.pop())

    def handle(number: signal.Signals) -> None:
        received.append(number)
        restore()

    for one in handled:
        loop.add_signal_handler(one, handle, one)
    try:
        yield received
    finally:
        restore()


class MessagesDue(CutoverError):
    """There are no bundled messages for a flow."""

    def __init__(self, flow: str) -> None:
        super().__init__(
            f"say what to ask the flow {flow!r}: --messages, a JSON object a line, or "
            f"[flows.{flow}] example"
        )


def bundled(flow: str, folder: Path, example: str = "") -> Path:
    """Write the bundled messages of a flow to a file and return it; raises `MessagesDue`.

    Those of a flow that has none are its `example`.
    """
    rows = msgspec.json.Decoder(dict[str, Any]).decode_lines(BUNDLED.read_bytes())
    if flow in _BODIES:
        rows = [*map(_BODIES[flow], rows)]
    elif example:
        rows = [msgspec.json.decode(example, type=dict[str, Any])]
    else:
        raise MessagesDue(flow)
    path = folder / "messages.jsonl"
    path.write_bytes(msgspec.json.Encoder().encode_lines(rows))
    return path


def _pipeline_turn(row: dict[str, Any]) -> dict[str, Any]:
    """Return a turn of a named user, whose session needs no opening."""
    named = {"user_name": row["user_name"]} if row.get("user_name") else {}
    return {**_companion_turn(row), **named}


def _ops_turn(row: dict[str, Any]) -> dict[str, Any]:
    return {"session_id": row.get("chat_id", row["message_id"]), "input": row["content"]}


def _companion_turn(row: dict[str, Any]) -> dict[str, Any]:
    return {"session_id": row.get("chat_id", row["message_id"]), **_session_turn(row)}


def _session_turn(row: dict[str, Any]) -> dict[str, Any]:
    """Return a turn that opens its session: one with an unknown id may be refused."""
    return {"message": row["content"], "user_id": row.get("user_name") or row["message_id"]}


_BODIES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    CHAT.name: lambda row: row,
    COMPANION.name: _companion_turn,
    OPS.name: _ops_turn,
    PIPELINE.name: _pipeline_turn,
    SESSION.name: _session_turn,
}


class TargetsUnclear(CutoverError):
    """The options do not say where each stack is, or how a request selects it."""

    def __init__(self) -> None:
        super().__init__(
            "say how to reach each stack: --legacy-url and --graph-url; or --url with "
            "--qa-key-env, or with --header-legacy and --header-graph; or nothing, where both "
            "stacks have an address in the configuration (--config)"
        )


class StackUnknown(CutoverError):
    """`--ui` names no stack."""

    def __init__(self, name: str) -> None:
        super().__init__(f"--ui {name!r} is no stack: write {' or '.join(STACKS)}")


def _target(stack: str, targets: tuple[Target, ...]) -> Target:
    """Find the target of a stack; raises `StackUnknown`."""
    try:
        return next(target for target in targets if target.stack == stack)
    except StopIteration:
        raise StackUnknown(stack) from None


class KeyNotThere(CutoverError):
    """The variable of the QA key is not set."""

    def __init__(self, variable: str) -> None:
        super().__init__(f"--qa-key-env: {variable!r} is not set, or empty")


def load_targets(
    url: str, urls: tuple[str, str], headers: tuple[Sequence[str], Sequence[str]], qa_key: str
) -> tuple[Target, Target]:
    """Make the two targets, control first; raises `TargetsUnclear` and `TargetRefused`.

    One address is enough when something in the requests (headers, or signed wishes made with
    `qa_key`) tells the stacks apart; without that, one stack would be measured twice.
    """
    told_apart = all(urls) or bool(url and (qa_key or all(headers)))
    if not told_apart:
        raise TargetsUnclear
    control, candidate = (
        Target(
            stack=stack,
            url=own or url,
            headers=tuple(parse_header(line) for line in lines),
            qa_key=qa_key,
        )
        for stack, own, lines in zip(STACKS, urls, headers, strict=True)
    )
    return control, candidate


def configured_urls(settings: Settings, spec: FlowSpec) -> tuple[str, str]:
    """Return where a configuration has a flow, legacy first; "" for a stack without an address."""
    return _url_of(settings.stacks.legacy, spec), _url_of(settings.stacks.graph, spec)


def _url_of(place: str | RemoteStackSettings, spec: FlowSpec) -> str:
    if not isinstance(place, RemoteStackSettings) or not place.serves(spec.name):
        return ""
    return str(endpoint_url(place, spec))


async def load_and_show(
    plan: LoadPlan, out: Path, console: Console, master: Address | None = None
) -> int:
    """Run a plan with a progress bar and print the report; returns the exit status.

    A `master` waits there for as many workers as are planned. A signal breaks the load off; with
    Locust's web UI it is how it ends.
    """
    if master is not None:
        own = versions(LOADING)
        console.print(f"waiting at {master} for workers: {plan.workers}")
        async with Machines.at(master, plan.workers, partial(differing, own=own)) as machines:
            return await _load_and_show(plan, out, console, machines)
    return await _load_and_show(plan, out, console, OwnProcesses())


async def _load_and_show(
    plan: LoadPlan, out: Path, console: Console, generators: Generators
) -> int:
    if plan.ui:
        console.print(f"Locust: http://{UI_HOST}:{plan.ui}, ended and reported by Ctrl-C")
    with first_signal() as received, bar(console, TimeElapsedColumn()) as shown:
        task = shown.add_task("warming up", total=1.0)

        def watch(step: LoadProgress) -> None:
            text = f"run {step.number} of {step.runs}: {step.stack}"
            if step.elapsed > step.seconds:
                text += ", last streams"
            shown.update(task, completed=step.share, description=text)

        try:
            report = await run_load(plan, out, watch, lambda: bool(received), generators)
        except NothingMeasured as nothing:
            Console(stderr=True).print(str(nothing), highlight=False)
            return 128 + received[0]
    show(report, console)
    more = "rows.parquet, " if plan.parquet else ""
    console.print(f"{more}rows.jsonl, load.json and load.html are in {out}", soft_wrap=True)
    if report.broken_off:
        return 128 + received[0]
    return CANNOT_TELL if report.basis == "void" else 0


def show(report: LoadReport, console: Console) -> None:
    """Print a report."""
    for line in void_lines(report):
        console.print(line, style="bold red", markup=False)
    console.print(_table(report))
    for stack in report.stacks:
        console.print(f"{stack.stack}: {stack_line(stack)}", markup=False)
    for line in paired_lines(report):
        console.print(line, markup=False)
    console.print(objectives_line(report), markup=False)
    console.print(method_line(report), style="dim", markup=False)


def _table(report: LoadReport) -> Table:
    table = Table(title=f"Load, flow {report.flow}, ms", title_justify="left")
    for place, head in enumerate(HEADS):
        table.add_column(head, justify="right" if place > 1 else "left")
    for cells in metric_lines(report):
        table.add_row(*map(escape, cells), end_section=not cells[0])
    return table


LegacyHeaders = Annotated[
    list[str],
    Option(help="'name: value' that asks for legacy.", default_factory=list, show_default=False),
]
GraphHeaders = Annotated[
    list[str],
    Option(help="'name: value' that asks for graph.", default_factory=list, show_default=False),
]
Objectives = Annotated[
    list[str],
    Option(help="NAME=SECONDS a good request meets.", default_factory=list, show_default=False),
]
Folder = Annotated[Path, Option("--output", "-o", help="Folder for the report.")]


def load(
    *,
    url: Annotated[str, Option(help="One address for both stacks.")] = "",
    legacy_url: Annotated[str, Option(help="Address of the legacy stack.")] = "",
    graph_url: Annotated[str, Option(help="Address of the graph stack.")] = "",
    header_legacy: LegacyHeaders,
    header_graph: GraphHeaders,
    qa_key_env: Annotated[str, Option(help="Variable with the router's QA key.")] = "",
    route_key: Annotated[str, Option(help="What the router routes by, if not its default.")] = "",
    flow: Annotated[str, Option(help="Flow to ask.")] = "chat",
    users: Annotated[int, Option(min=1, help="Users at a time (Locust).")] = 10,
    rate: Annotated[float | None, Option(help="Open loop alone: requests a second.")] = None,
    seconds: Annotated[float, Option(min=1, help="Length of one run.")] = 20.0,
    pairs: Annotated[int, Option(min=1, help="Pairs of runs; 5 for a statement.")] = 2,
    engine: Annotated[Engine, Option(help="Closed loop (locust) or open loop (open).")] = "locust",
    config: Annotated[
        Path | None, Option(help="Where the flow is declared; default: cutover.toml, if there.")
    ] = None,
    messages: Annotated[
        Path | None, Option(help="Request bodies, JSONL; or bundled ones, or the flow's example.")
    ] = None,
    shape: Annotated[Shape, Option(help="How high the load is when.")] = "flat",
    arrivals: Annotated[Spacing, Option(help="Open loop: how requests are spaced.")] = "poisson",
    trace: Annotated[
        str, Option(help="Open loop: captures whose requests are sent when they came.")
    ] = "",
    cancel: Annotated[float, Option(help="Share of clients that leave early.")] = 0.0,
    cancel_within: Annotated[float, Option(help="Seconds within which they leave.")] = 5.0,
    workers: Annotated[
        int, Option(min=1, help="Generator processes; with --master, workers to wait for.")
    ] = 1,
    master: Annotated[
        str, Option(metavar="HOST:PORT", help="Wait here for workers on other machines.")
    ] = "",
    worker: Annotated[
        str, Option(metavar="HOST:PORT", help="Be a worker of the master there.")
    ] = "",
    ui: Annotated[
        str, Option(help="Stack to load by hand in Locust's web UI.", metavar="[legacy|graph]")
    ] = "",
    ui_port: Annotated[int, Option(min=1, max=65535, help="Port of the web UI.")] = 8089,
    parquet: Annotated[bool, Option("--parquet", help="Write rows.parquet, too.")] = False,
    objective: Objectives,
    seed: Annotated[int, Option(help="Seed of order, arrivals and pauses.")] = 0,
    out: Folder = Path("build/load"),
) -> None:
    """Put both stacks under the same load, turn by turn, and report them side by side.

    Without an address they are asked where the configuration says.

    With --master, --workers commands with --worker on other machines send, and this one reports.
    These take no other options than headers and QA key, as the master has them.

    Exit 0: measured, 2: refused, 3: measured, but a stack has no valid run, and so nothing follows;
    130 (Ctrl-C) or 143: broken off, what was measured until then is written and shown.
    """
    with refusals(REFUSED), TemporaryDirectory() as folder:
        if worker:
            if master:
                raise MasterAndWorker
            secrets = worker_secrets((header_legacy, header_graph), _secret(qa_key_env))
            at = Address.parse(worker, "--worker")
            raise typer.Exit(asyncio.run(_worked(at, secrets, tables())))
        listening = Address.parse(master, "--master") if master else None
        if listening and ui:
            raise UiOfOneMachine
        declared = declared_at(config, flow)
        urls = legacy_url, graph_url
        spec = flow_named(flow, declared)
        if not (url or any(urls)):
            urls = configured_urls(settings_at(config), spec)
        both = load_targets(url, urls, (header_legacy, header_graph), _secret(qa_key_env))
        moments: tuple[float, ...] = ()
        bodies = messages
        if trace:
            traced = Path(folder) / "traced.jsonl"
            moments = trace_of(captured_requests(trace, flow), traced)
            bodies = messages or traced
        plan = LoadPlan(
            targets=(_target(ui, both),) if ui else both,
            messages=bodies or bundled(spec.name, Path(folder), spec.example),
            users=users,
            seconds=seconds,
            engine=engine,
            flow=flow,
            declared=declared,
            route_key=route_key,
            pairs=1 if ui else pairs,
            seed=seed,
            rate=rate,
            shape=shape,
            arrivals=arrivals,
            trace=moments,
            cancellations=Cancellations(cancel, cancel_within),
            workers=workers,
            ui=ui_port if ui else 0,
            parquet=parquet,
            objectives=tuple(map(parse_objective, objective)) or DEFAULT_OBJECTIVES,
        )
        status = asyncio.run(load_and_show(plan, out, tables(), listening))
    raise typer.Exit(status)


class MasterAndWorker(CutoverError):
    """One command is to be both."""

    def __init__(self) -> None:
        super().__init__(
            "--master and --worker are two commands: on one machine, start both, the worker with "
            "the master's address"
        )


class UiOfOneMachine(CutoverError):
    """Locust's web UI is to have workers on other machines."""

    def __init__(self) -> None:
        super().__init__("--ui loads by hand from this machine alone: leave out --master")


def worker_secrets(
    headers: tuple[Sequence[str], Sequence[str]], qa_key: str
) -> Mapping[str, Secrets]:
    """Return what a worker's requests bear, by stack; raises `TargetRefused`."""
    return {
        stack: Secrets(tuple(map(parse_header, lines)), qa_key)
        for stack, lines in zip(STACKS, headers, strict=True)
    }


async def _worked(at: Address, secrets: Mapping[str, Secrets], console: Console) -> int:
    """Work for a master until its last run, or until a signal; returns the exit status."""
    with first_signal() as received:
        working = asyncio.create_task(
            work(
                at,
                versions(LOADING),
                secrets,
                lambda: console.print(f"a worker of the master at {at}"),
            )
        )
        try:
            while not working.done() and not received:
                await asyncio.wait({working}, timeout=TICK_SECONDS)
            if working.done():
                working.result()
        finally:
            # What it has started ends with it.
            working.cancel()
            await asyncio.wait({working})
    return 128 + received[0] if received else 0


def _secret(variable: str) -> str:
    """Read the key; raises `KeyNotThere` where a variable is named that holds none."""
    if variable and not os.environ.get(variable):
        raise KeyNotThere(variable)
    return os.environ[variable] if variable else ""
