"""Plans: which flow and targets are loaded, how, in which order, and the request each one gets."""

from __future__ import annotations

import hmac
import random
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from contract.errors import CutoverError
from contract.flow import FlowSpec
from contract.flows.chat import CHAT
from contract.flows.companion import COMPANION
from contract.flows.declared import DeclaredFlow, declared_spec
from contract.flows.session import SESSION
from loadtests.messages import LoadMessage
from loadtests.metrics import DEFAULT_OBJECTIVES, Clock, Objective
from loadtests.rows import STALL_SECONDS

HEADER = "x-cutover-qa"
VALID_SECONDS = 300


REQUESTS_OF_A_USER = 0.2
"""Requests a second an open loop sends in place of one Locust user, by default."""
MOST_TARGETS = 2
ONE_OR_TWO = "one or two, of different names"
AT_LEAST_ONE = "at least 1"
PAIRS_FOR_A_STATEMENT = 5
FLOWS: Mapping[str, FlowSpec] = MappingProxyType(
    {spec.name: spec for spec in (CHAT, COMPANION, SESSION)}
)
"""The built-in ones."""


def qa_header(stack: str, route_key: str, key: str, now: float) -> tuple[str, str]:
    """Sign a wish for the next five minutes; `now` in Unix seconds."""
    expires = int(now) + VALID_SECONDS
    content = f"{stack}|{expires}|{route_key}".encode("utf-8", "surrogatepass")
    signature = hmac.new(key.encode(), content, "sha256").hexdigest()
    return HEADER, f"{stack};exp={expires};sig={signature}"


class TargetRefused(CutoverError):
    """An address or a header of a target cannot be used."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"cannot use {what!r} as a load target: {reason}")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One stack's address; `headers` (name, value) go with every request.

    With a `qa_key` every request carries a signed wish for this stack. Headers and key may be
    secrets: they are handed on by pipe or environment, never in an argument list, a row or a
    report.
    """

    stack: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    qa_key: str = ""

    def __post_init__(self) -> None:
        shown = self.url.rpartition("@")[2]
        try:
            parts = urlsplit(self.url)
            # Reading the port checks it.
            _ = parts.port
        except ValueError:  # its text may hold a piece of a password
            raise TargetRefused(shown, "its host or its port is none") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise TargetRefused(shown, "it is not an http or https address")
        if parts.username or parts.password:
            raise TargetRefused(parts.hostname, "put credentials into a header, not the address")

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return urlsplit(self.url).scheme == "https"

    @property
    def host(self) -> str:
        """Host name or address, without brackets."""
        return str(urlsplit(self.url).hostname)

    @property
    def port(self) -> int:
        """TCP port."""
        return urlsplit(self.url).port or (443 if self.tls else 80)

    def request(self, message: LoadMessage, accepted: str = "text/event-stream") -> bytes:
        """Write a whole POST request; what is `accepted` goes into its head.

        One connection per request: each one pays for what a new client pays for, and no request
        dies of a connection the server closed while it was idle.
        """
        parts = urlsplit(self.url)
        forced = (
            [qa_header(self.stack, message.route_key, self.qa_key, time.time())]
            if self.qa_key and message.route_key is not None
            else []
        )
        lines = [
            f"POST {parts.path.rstrip('/')}{message.path} HTTP/1.1",
            f"Host: {parts.netloc}",
            "Connection: close",
            f"Accept: {accepted}",
            "Content-Type: application/json",
            f"Content-Length: {len(message.body)}",
            *(f"{name}: {value}" for name, value in (*self.headers, *forced)),
        ]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + message.body


def parse_header(text: str) -> tuple[str, str]:
    """Read `name: value`; raises `TargetRefused` without showing the value."""
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
        raise TargetRefused(name[:32], "a header is written as 'name: value'")
    if not value.isprintable() or not value.isascii():
        raise TargetRefused(name, "its value holds a character no header may hold")
    return name, value


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
    clock: Clock = "scheduled"
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


class FlowUnknown(CutoverError):
    """No flow has that name."""

    def __init__(self, name: str) -> None:
        known = ", ".join(map(repr, FLOWS))
        super().__init__(f"no flow {name!r}; there are {known}, and those a configuration declares")


def flow_named(name: str, declared: DeclaredFlow | None = None) -> FlowSpec:
    """Return a flow by its declaration, or by its name alone; raises `FlowUnknown`."""
    if declared is not None:
        return declared_spec(name, declared)
    try:
        return FLOWS[name]
    except KeyError as error:
        raise FlowUnknown(name) from error
