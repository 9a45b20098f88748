"""Plans: which flow and targets are loaded, how, and in which order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

import msgspec

from contract.errors import CutoverError
from contract.flows.declared import DeclaredFlow
from loadtests.arrivals import Arrivals, Cancellations, Constant, Poisson, Shape, Trace, offsets
from loadtests.metrics import DEFAULT_OBJECTIVES, Objective
from loadtests.requests import Target
from loadtests.rows import STALL_SECONDS

REQUESTS_OF_A_USER = 0.2
"""Requests a second an open loop sends in place of one Locust user, by default."""
MOST_TARGETS = 2
ONE_OR_TWO = "one or two, of different names"
AT_LEAST_ONE = "at least 1"
PAIRS_FOR_A_STATEMENT = 5
Engine = Literal["locust", "open"]
Spacing = Literal["poisson", "constant"]


class PlanRefused(CutoverError):
    """A load plan makes no sense; names the setting and what it may be."""

    def __init__(self, value: object, setting: str, wanted: str) -> None:
        super().__init__(f"cannot load with {setting} {value!r}: {wanted}")


class OneStackServes(CutoverError):
    """A router answers a flow of two formats by one stack alone: there is nothing to compare."""

    def __init__(self, flow: str) -> None:
        super().__init__(
            f"cannot load both stacks of {flow!r} through a router: graph streams another format "
            "(graph_dialect), so legacy answers all requests; load the services themselves, with "
            "--legacy-url and --graph-url, or by their addresses in the configuration"
        )


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison under load: control first, then candidate; or a single target.

    `seconds` is the length of one run, and each pair has a run of every target. `rate` (requests
    a second) is the open loop's; `users` and `think` (mean seconds between answer and question)
    are Locust's. `declared` is the wire of a flow that is not built in. `route_key` is what the
    router routes by, "" the flow's default. `patience` (longest stream) and `stall` in seconds;
    `lag` is the schedule lag in seconds at P99 over which a run is void.

    `shape` is how high the load is when, of the peak that `users` or `rate` are. `trace` are the
    moments of an open loop's requests, seconds from its start; empty, they are drawn by `arrivals`.
    `workers` processes share the load. `ui` is the port of Locust's web UI, 0 for none: then the
    one target is loaded as its pages say, until the command is interrupted. `parquet`: whether rows
    are written as Parquet, too.
    """

    targets: tuple[Target, ...]
    messages: Path
    users: int = 10
    seconds: float = 20.0
    engine: Engine = "locust"
    flow: str = "chat"
    declared: DeclaredFlow | None = None
    route_key: str = ""
    pairs: int = 2
    seed: int = 0
    rate: float | None = None
    think: float = 1.0
    patience: float = 120.0
    stall: float = STALL_SECONDS
    objectives: tuple[Objective, ...] = DEFAULT_OBJECTIVES
    lag: float = 0.05
    shape: Shape = "flat"
    arrivals: Spacing = "poisson"
    trace: tuple[float, ...] = ()
    cancellations: Cancellations = Cancellations()
    workers: int = 1
    ui: int = 0
    parquet: bool = False

    def __post_init__(self) -> None:
        if not self.targets or len(self.targets) > MOST_TARGETS:
            raise PlanRefused(self.stacks, "targets", ONE_OR_TWO)
        if len(set(self.stacks)) < len(self.targets):
            raise PlanRefused(self.stacks, "targets", ONE_OR_TWO)
        forced = any(target.qa_key for target in self.targets)
        if forced and self.declared is not None and self.declared.graph_dialect is not None:
            raise OneStackServes(self.flow)
        for setting in ("users", "seconds", "pairs", "workers"):
            if getattr(self, setting) < 1:
                raise PlanRefused(getattr(self, setting), setting, AT_LEAST_ONE)
        if self.rate is not None and not self.rate > 0:
            raise PlanRefused(self.rate, "rate", "above 0 requests a second")
        if self.engine == "locust" and (self.rate is not None or self.arrivals == "constant"):
            open_alone = self.arrivals if self.rate is None else self.rate
            setting = "arrivals" if self.rate is None else "rate"
            raise PlanRefused(open_alone, setting, "--engine open; Locust's users wait for answers")
        if self.trace and (self.engine != "open" or self.shape != "flat"):
            raise PlanRefused(self.engine, "a trace and engine", "--engine open, without a shape")
        if not 0 <= self.cancellations.share < 1:
            raise PlanRefused(self.cancellations.share, "cancelled share", "from 0 to below 1")
        if not self.cancellations.within > 0:
            raise PlanRefused(self.cancellations.within, "cancelled within", "above 0 seconds")
        if self.ui and (self.engine != "locust" or len(self.targets) > 1):
            raise PlanRefused(self.stacks, "web UI for", "one target, with --engine locust")

    @property
    def requests_per_second(self) -> float:
        """Rate of the open loop, at the peak of its shape."""
        if self.trace:
            return len(offsets(Trace(self.trace), self.seconds)) / self.seconds
        return self.users * REQUESTS_OF_A_USER if self.rate is None else self.rate

    @property
    def stacks(self) -> tuple[str, ...]:
        """Names of the targets, control first."""
        return tuple(target.stack for target in self.targets)

    def schedule(self, seed: int) -> Arrivals:
        """Return the open loop's arrivals of a run with that seed."""
        if self.trace:
            return Trace(self.trace)
        if self.arrivals == "constant":
            return Constant(self.requests_per_second, self.shape)
        return Poisson(self.requests_per_second, seed, self.shape)

    def target(self, stack: str) -> Target:
        """Find the target of a stack."""
        return next(target for target in self.targets if target.stack == stack)


class PlannedRun(msgspec.Struct, frozen=True):
    """One run of one stack; the runs of a pair share arrivals, messages and seed."""

    run: int
    pair: int
    stack: str
    seed: int


def interleaved(stacks: tuple[str, ...], pairs: int, seed: int) -> tuple[PlannedRun, ...]:
    """Draw the runs: every second pair mirrors the one before; one stack alone just repeats."""
    chance = random.Random(seed)
    runs: list[PlannedRun] = []
    order: list[str] = []
    for pair in range(pairs):
        order = chance.sample(stacks, len(stacks)) if pair % 2 == 0 else order[::-1]
        trace = chance.getrandbits(32)
        runs += [
            PlannedRun(len(runs) + place, pair, stack, trace) for place, stack in enumerate(order)
        ]
    return tuple(runs)
