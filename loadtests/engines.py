"""One run in a process of its own, with Locust or the open-loop driver."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import msgspec

from contract.errors import CutoverError
from loadtests.arrivals import Arrivals, Constant, Poisson
from loadtests.children import ROOT, child_environment, module_command
from loadtests.open_loop import OpenLoopPlan

if TYPE_CHECKING:
    from loadtests.interleaving import PlannedRun
    from loadtests.plan import LoadPlan

HEADERS_VARIABLE = "CUTOVER_LOAD_HEADERS"
QA_KEY_VARIABLE = "CUTOVER_LOAD_QA_KEY"
DECLARED_VARIABLE = "CUTOVER_LOAD_DECLARED"
LOCUSTFILE = ROOT / "loadtests" / "users.py"
WARM_UP = Constant(4.0)
WARM_UP_SECONDS = 1.0
LAST_LINES = 5
ENDS_WITHIN = 5.0
"""Seconds a generator that is broken off has to write down what it has seen."""


class GeneratorFailed(CutoverError):
    """A load generator ended with an error."""

    def __init__(self, stack: str, status: int, output: str) -> None:
        last = "\n".join(output.splitlines()[-LAST_LINES:])
        super().__init__(f"the generator for {stack!r} ended with {status}:\n{last}")


@dataclass(frozen=True, slots=True)
class Child:
    """A process to run: what it is told on its input, and what by its environment."""

    command: Sequence[str]
    told: bytes
    environment: dict[str, str]


async def load(plan: LoadPlan, run: PlannedRun, folder: Path) -> None:
    """Do one run; its raw rows are in `folder` afterwards. Raises `GeneratorFailed`.

    Cancelled, it ends the generator; the rows it had seen are there all the same.
    """
    match plan.engine:
        case "locust":
            child = _locust(plan, run, folder)
        case "open":
            arrivals = Poisson(plan.requests_per_second, run.seed)
            child = _open(plan, run, folder, arrivals, plan.seconds)
        case _:
            assert_never(plan.engine)
    await _finish(child, run.stack)


async def warm_up(plan: LoadPlan, run: PlannedRun, folder: Path) -> None:
    """Send a few requests that are not counted: caches, templates, connections."""
    await _finish(_open(plan, run, folder, WARM_UP, WARM_UP_SECONDS), run.stack)


def _locust(plan: LoadPlan, run: PlannedRun, folder: Path) -> Child:
    target = plan.target(run.stack)
    settings = {
        "--locustfile": LOCUSTFILE,
        "--users": plan.users,
        "--spawn-rate": plan.users,
        "--run-time": f"{ceil(plan.seconds)}s",
        # Streams that are under way when the time is over are read to their end: to cut them off
        # would leave out the slow ones.
        "--stop-timeout": ceil(plan.patience),
        "--exit-code-on-error": 0,
        "--host": target.url,
        "--flow": plan.flow,
        "--route-key": plan.route_key,
        "--stack": run.stack,
        "--messages": plan.messages.resolve(),
        "--rows": folder,
        "--think": plan.think,
        "--patience": plan.patience,
        "--stall": plan.stall,
        "--run-number": run.run,
        "--think-seed": run.seed,
    }
    words = [str(word) for setting in settings.items() for word in setting]
    headers = "\n".join(f"{name}: {value}" for name, value in target.headers)
    return Child(
        module_command("locust", "--headless", "--only-summary", *words),
        b"",
        child_environment(
            **{
                HEADERS_VARIABLE: headers,
                QA_KEY_VARIABLE: target.qa_key,
                DECLARED_VARIABLE: _declared(plan),
            }
        ),
    )


def _declared(plan: LoadPlan) -> str:
    return "" if plan.declared is None else msgspec.json.encode(plan.declared).decode()


def _open(
    plan: LoadPlan, run: PlannedRun, folder: Path, arrivals: Arrivals, seconds: float
) -> Child:
    told = OpenLoopPlan(
        flow=plan.flow,
        declared=plan.declared,
        route_key=plan.route_key,
        run=run.run,
        target=plan.target(run.stack),
        messages=str(plan.messages.resolve()),
        rows=str(folder),
        arrivals=arrivals,
        seconds=seconds,
        patience=plan.patience,
        stall=plan.stall,
    )
    command = module_command("loadtests.open_loop")
    return Child(command, msgspec.json.encode(told), child_environment())


async def _finish(child: Child, stack: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *child.command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=STDOUT,
        env=child.environment,
        # Ctrl-C on a terminal is for us: we end it, once what it has seen is written.
        process_group=0,
    )
    try:
        output, _ = await process.communicate(child.told)
    finally:
        if process.returncode is None:
            await _break_off(process)
    if process.returncode:
        raise GeneratorFailed(stack, process.returncode, output.decode("utf-8", "replace"))


async def _break_off(process: asyncio.subprocess.Process) -> None:
    """End a generator: it may write its last rows down, within `ENDS_WITHIN`."""
    try:
        process.terminate()
        async with asyncio.timeout(ENDS_WITHIN):
            await process.wait()
    except TimeoutError:
        pass
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
