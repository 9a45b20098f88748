"""Plans: which flow and targets are loaded, how, and in which order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

import msgspec

from contract.errors import CutoverError
from contract.flows.declared import DeclaredFlow
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


class PlanRefused(CutoverError):
    """A load plan makes no sense; names the setting and what it may be."""

    def __init__(self, value: object, setting: str, wanted: str) -> None:
        super().__init__(f"cannot load with {setting} {value!r}: {wanted}")


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison under load: control first, then candidate; or a single target.

    `seconds` is the length of one run, and each pair has a run of every target. `rate` (requests
    a second) is the open loop's; `users` and `think` (mean seconds between answer and question)
    are Locust's. `declared` is the wire of a flow that is not built in. `route_key` is what the
    router routes by, "" the flow's default. `patience` (longest stream) and `stall` in seconds;
    `lag` is the schedule lag in seconds at P99 over which a run is void.
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

    def __post_init__(self) -> None:
        if not self.targets or len(self.targets) > MOST_TARGETS:
            raise PlanRefused(self.stacks, "targets", ONE_OR_TWO)
        if len(set(self.stacks)) < len(self.targets):
            raise PlanRefused(self.stacks, "targets", ONE_OR_TWO)
        for setting in ("users", "seconds", "pairs"):
            if getattr(self, setting) < 1:
                raise PlanRefused(getattr(self, setting), setting, AT_LEAST_ONE)
        if self.rate is not None and not self.rate > 0:
            raise PlanRefused(self.rate, "rate", "above 0 requests a second")

    @property
    def requests_per_second(self) -> float:
        """Rate of the open loop."""
        return self.users * REQUESTS_OF_A_USER if self.rate is None else self.rate

    @property
    def stacks(self) -> tuple[str, ...]:
        """Names of the targets, control first."""
        return tuple(target.stack for target in self.targets)

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
