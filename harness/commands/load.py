"""`cutover load`: runs Locust against each stack in turn, and writes a page that compares them."""

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
from loadtests.plan import BUILT_IN, STACKS, PlannedRun, interleaved
from loadtests.report import STATUS, Terms, load_report
from loadtests.rows import read_rows

_NEXT_BY_VERDICT: Final = {
    "within margins": "raise the share: cutover ramp",
    "slower": "find the node that takes the time (nodes_ms in the router's log), and load again",
    "fails more": "read how requests end, in the page and in the router's log, and load again",
    "cannot tell": "load again, with more --pairs, other rates, or what a reason above asks for",
    "keeps up": "load both in pairs, at a rate that they keep: cutover load",
    "leaves the bound earlier": "find what graph waits for at that rate, and sweep again",
}

Target = tuple[str, Mapping[str, str]]
"""A base URL, and the headers of each request there, which may be secrets."""


def targets(
    config: Path | None, flow: str, url: str, direct: Sequence[str], headers: Mapping[str, str]
) -> dict[str, Target]:
    """Return where requests to each stack go.

    They go to the stacks' own addresses, `direct`, where these are not empty. Otherwise they go to
    the router, at `url` or as configured, with the headers by which a tester picks a stack. Raises
    `Unusable` for one address of the two, and for a router that lets no tester pick.
    """
    if any(direct):
        if not all(direct):
            raise Unusable(where="--legacy and --graph", reason="name both, or none")
        return {stack: (address, headers) for stack, address in zip(STACKS, direct, strict=True)}
    settings = load(config)
    key = settings.rollout.qa_key
    if not key or not settings.flows[flow].enable_langgraph:
        keys = f"rollout.qa_key and flows.{flow}.enable_langgraph"
        needed = f"set {keys} in cutover.toml, or name --legacy and --graph"
        raise Unusable(
            where=f"the router lets no client ask for a stack of {flow!r}", reason=needed
        )
    router, tester = url or settings.server_url, {**headers, "x-cutover-qa-key": key}
    return {stack: (router, {**tester, "x-cutover-stack": stack}) for stack in STACKS}


def load_test(
    at: Mapping[str, Target], terms: Terms, pairs: int, out: Path, options: Mapping[str, Any]
) -> int:
    """Run `pairs` pairs of runs, write the page in `out`, and return the exit status.

    `at` says where each stack is, `options` are Locust's for all runs. A run that breaks off leaves
    too few rows, and is void. A sweep has a pair for each rate, of which `pace` is 1 a second, and
    loads a stack up to its bound. Raises `Unusable` where `out` has the rows of another test.
    """
    rows = out / "rows"
    if rows.exists():
        raise Unusable(where=rows, reason="holds the rows of another test: name another folder")
    rows.mkdir(parents=True)
    plan = interleaved(len(terms.rates) or pairs, seed=pairs)  # the same line, the same order
    made, left = list[PlannedRun](), set[str]()
    locustfile = str(BUILT_IN.parent / "locustfile.py")
    command = [sys.executable, "-m", "locust", "--headless", "-f", locustfile]
    for run in plan:
        if run.stack in left:
            continue
        rate = terms.rates[run.pair] if terms.rates else 0
        speed = f", {rate:g} requests a second" if rate else ""
        typer.echo(f"{terms.flow}: run {run.number + 1} of {len(plan)}, {run.stack}{speed}")
        url, headers = at[run.stack]
        run_options = {
            "host": url,
            "stack": run.stack,
            "run-number": run.number,
            "seed": run.seed,
            "flow": terms.flow,
            "rows": rows,
            "pace": options["pace"] / (rate or 1),
            "run-time": f"{terms.warm_up + terms.seconds:.0f}s",
        }
        every = {**options, **run_options}.items()
        with (out / f"run-{run.number:03}.log").open("wb") as log:
            subprocess.run(  # noqa: S603 - the arguments are ours
                [*command, *(f"--{name}={value}" for name, value in every if value)],
                env={**os.environ, "CUTOVER_LOAD_HEADERS": json.dumps(dict(headers))},
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,  # it is 1 where a request failed
            )
        made.append(run)
        for one in load_report(read_rows(rows), made, terms).stacks if rate else ():
            left |= {one["stack"]} if one["stack"] == run.stack and one["kept"] < rate else set()
    report = load_report(read_rows(rows), made, terms)
    (out / "load.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    page = "sweep.html.j2" if terms.rates else "load.html.j2"
    (out / "load.html").write_text(render(page, report=report), "utf-8")
    typer.echo("\n".join([report.verdict, *report.reasons, str(out / "load.html")]))
    typer.echo(f"next: {_NEXT_BY_VERDICT[report.verdict]}")
    return STATUS[report.verdict]
