"""`cutover load`: both stacks under the same load, run by run, and one page on what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec
import typer

from compare.report.page import render
from harness.config import load
from loadtests.plan import (
    HERE,
    STACKS,
    LoadFlow,
    PlannedRun,
    PlanRefused,
    Terms,
    interleaved,
    load_flows,
)
from loadtests.report import STATUS, LoadReport, load_report
from loadtests.rows import read_rows

WARM_UP_SECONDS: Final = 3.0
Target = tuple[str, Mapping[str, str]]
"""A base URL, and the headers of each request there, which may be secrets."""


@dataclass(frozen=True)
class Load:
    """A load test, as the command line asks for it."""

    config: Path | None
    named: str
    messages: Path | None
    users: int
    pace: float
    seconds: int
    pairs: int
    out: Path

    @cached_property
    def flow(self) -> LoadFlow:
        """The flow; raises `PlanRefused`, naming all there are, where it is not the only one."""
        flows = load_flows(self.config, self.named, self.messages)
        if len(flows) > 1:
            message = f"--flow: name one of {', '.join(flows)}"
            raise PlanRefused(message)
        return next(iter(flows.values()))

    def options(self, run: PlannedRun, url: str) -> list[str]:
        """Return Locust's options for a run."""
        named = {
            "--flow": self.flow.name,
            "--stack": run.stack,
            "--run-number": run.number,
            "--seed": run.seed,
            "--pace": self.pace,
            "--rows": self.out / "rows",
            "--users": self.users,
            "--spawn-rate": self.users,
            "--run-time": f"{WARM_UP_SECONDS + self.seconds:.0f}s",
            "--host": url,
            "--cutover-config": self.config,
            "--messages": self.messages,
        }
        given = ((name, str(value)) for name, value in named.items() if value is not None)
        return [part for option in given for part in option]


def targets(
    chosen: Load, url: str, addresses: tuple[str, str], headers: Mapping[str, str]
) -> dict[str, Target]:
    """Return where each stack is asked: at its own address, or at a router that knows the tester.

    Raises `PlanRefused` where only one of them would answer.
    """
    if any(addresses):
        if not all(addresses):
            message = "--legacy and --graph: name both, or none"
            raise PlanRefused(message)
        return {one: (at, headers) for one, at in zip(STACKS, addresses, strict=True)}
    settings, flow = load(chosen.config), chosen.flow.name
    key, host = settings.rollout.qa_key, settings.server.host
    if not key or not settings.flows[flow].enable_langgraph:
        message = (
            f"the router lets nobody ask for a stack of {flow!r}: set rollout.qa_key and "
            f"flows.{flow}.enable_langgraph in cutover.toml, or name --legacy and --graph"
        )
        raise PlanRefused(message)
    host = "127.0.0.1" if host in {"0.0.0.0", "::"} else host  # noqa: S104 - where it listens
    at = url or f"http://{host}:{settings.server.port}"
    asks = {**headers, "x-cutover-qa-key": key}
    return {one: (at, {**asks, "x-cutover-stack": one}) for one in STACKS}


def load_test(chosen: Load, at: Mapping[str, Target]) -> int:
    """Run the pairs, write the page, and return the exit status; raises `PlanRefused`."""
    rows = chosen.out / "rows"
    if rows.exists() and any(rows.iterdir()):
        message = f"--out: {rows} holds the rows of another test: name another folder"
        raise PlanRefused(message)
    rows.mkdir(parents=True, exist_ok=True)
    flow, plan = chosen.flow.name, interleaved(chosen.pairs, seed=chosen.pairs)
    for run in plan:
        typer.echo(f"{flow}: run {run.number + 1} of {len(plan)}, {run.stack}")
        url, headers = at[run.stack]
        _locust(chosen.options(run, url), headers, chosen.out / f"run-{run.number:03}.log")
    terms = Terms(flow=flow, seconds=chosen.seconds, warm_up=WARM_UP_SECONDS)
    report = load_report(read_rows(rows), plan, terms)
    page = write(report, chosen.out)
    typer.echo("\n".join([f"{flow}: {report.verdict}", *report.reasons, str(page)]))
    return STATUS[report.verdict]


def write(report: LoadReport, out: Path) -> Path:
    """Write a report as JSON and as a page, and return the page's path."""
    (out / "load.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    (out / "load.html").write_text(render("load.html.j2", report=report), "utf-8")
    return out / "load.html"


def _locust(options: list[str], headers: Mapping[str, str], log: Path) -> None:
    """Run Locust once; a run that breaks off leaves too few rows, and is void."""
    command = [sys.executable, "-m", "locust", "-f", str(HERE / "locustfile.py"), "--headless"]
    environment = {**os.environ, "CUTOVER_LOAD_HEADERS": json.dumps(dict(headers))}
    with log.open("wb") as written:
        done = subprocess.run(  # noqa: S603 - the arguments are ours
            [*command, "--exit-code-on-error", "0", *options],
            env=environment,
            stdout=written,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        typer.echo(f"locust ended with status {done.returncode}: see {log}", err=True)
