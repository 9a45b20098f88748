"""`cutover load`: both stacks under the same load, run by run, and one page on what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import typer

from compare.report.page import render
from cutover.errors import Unusable
from harness.config import load
from loadtests.plan import BUILT_IN, STACKS, interleaved
from loadtests.report import STATUS, Terms, load_report
from loadtests.rows import read_rows

_NEXT: Final = {
    "within margins": "raise the share: cutover ramp",
    "slower": "find the node that takes the time (nodes_ms in the router's log), and load again",
    "fails more": "read how requests end, in the page and in the router's log, and load again",
    "cannot tell": "load again, with more --pairs or what a reason above asks for",
}
Target = tuple[str, Mapping[str, str]]
"""A base URL, and the headers of each request there, which may be secrets."""


def targets(
    config: Path | None, flow: str, url: str, own: Sequence[str], headers: Mapping[str, str]
) -> dict[str, Target]:
    """Return where each stack is asked: at its own address, or at a router that knows the tester.

    Raises `Unusable` where only one of them would answer.
    """
    if any(own):
        if not all(own):
            raise Unusable(where="--legacy and --graph", reason="name both, or none")
        return {one: (at, headers) for one, at in zip(STACKS, own, strict=True)}
    settings = load(config)
    key = settings.rollout.qa_key
    if not key or not settings.flows[flow].enable_langgraph:
        keys = f"rollout.qa_key and flows.{flow}.enable_langgraph"
        needed = f"set {keys} in cutover.toml, or name --legacy and --graph"
        raise Unusable(
            where=f"the router lets no client ask for a stack of {flow!r}", reason=needed
        )
    at = url or settings.server_url
    asks = {**headers, "x-cutover-qa-key": key}
    return {one: (at, {**asks, "x-cutover-stack": one}) for one in STACKS}


def load_test(
    at: Mapping[str, Target], terms: Terms, pairs: int, out: Path, locust: Mapping[str, Any]
) -> int:
    """Run pairs with Locust's options, write the page in `out`, and return the exit status.

    A run that breaks off leaves too few rows, and is void. Raises `Unusable`.
    """
    rows = out / "rows"
    if rows.exists():
        raise Unusable(where=rows, reason="holds the rows of another test: name another folder")
    rows.mkdir(parents=True)
    plan = interleaved(pairs, seed=pairs)
    locustfile = str(BUILT_IN.parent / "locustfile.py")
    command = [sys.executable, "-m", "locust", "--headless", "-f", locustfile]
    for run in plan:
        typer.echo(f"{terms.flow}: run {run.number + 1} of {len(plan)}, {run.stack}")
        url, headers = at[run.stack]
        own = {"host": url, "stack": run.stack, "run-number": run.number, "seed": run.seed}
        lasts = f"{terms.warm_up + terms.seconds:.0f}s"
        given = {**locust, **own, "flow": terms.flow, "rows": rows, "run-time": lasts}
        with (out / f"run-{run.number:03}.log").open("wb") as log:
            subprocess.run(  # noqa: S603 - the arguments are ours
                [*command, *(f"--{name}={value}" for name, value in given.items() if value)],
                env={**os.environ, "CUTOVER_LOAD_HEADERS": json.dumps(dict(headers))},
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,  # it is 1 where a request failed
            )
    report = load_report(read_rows(rows), plan, terms)
    (out / "load.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    (out / "load.html").write_text(render("load.html.j2", report=report), "utf-8")
    typer.echo("\n".join([report.verdict, *report.reasons, str(out / "load.html")]))
    typer.echo(f"next: {_NEXT[report.verdict]}")
    return STATUS[report.verdict]
