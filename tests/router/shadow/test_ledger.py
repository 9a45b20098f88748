"""The ledger balances: every request ends in exactly one state, whatever is mixed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.input.captures import CapturedExchange, exchanges
from compare.input.segments import CapturedLine
from contract.flow import Event
from contract.flows.chat import ChatRequest
from contract.ports import Effects
from contract.records import RunRecord, encode_run
from effects.testing import VirtualLoop
from router.stack import StackName
from tests.support.faulty_stacks import Act, after, crash, deaf, hang, short
from tests.support.flow_runs import FOREVER
from tests.support.router_world import House, Rules
from tests.support.tool_replies import CASE, FLOWS

Fate = Literal["well", "refused", "leaves", "crashes", "hangs", "cut short", "twice", "large"]
Candidate = Literal["well", "crashes", "hangs", "deaf", "cut short"]

ACTS: dict[str, Act] = {"crashes": crash, "hangs": hang, "twice": crash, "deaf": deaf(400.0)}


@dataclass(frozen=True)
class Client:
    """One request of the mix: when it comes, how it fares, after how many frames."""

    fate: Fate
    candidate: Candidate
    at: float
    events: int


@dataclass(frozen=True)
class Mix:
    """A house and its clients; `stops` is when the router is closed, with so much patience."""

    clients: list[Client]
    assigned: StackName
    stand_in: bool
    shadow: float
    mode: Literal["replay", "tail"]
    queue: int
    stops: float | None
    patience: float


clients = st.builds(
    Client,
    fate=st.sampled_from(get_args(Fate)),
    candidate=st.sampled_from(get_args(Candidate)),
    at=st.sampled_from([0.0, 0.0, 0.5, 2.0, 30.0]),
    events=st.integers(0, 15),
)
mixes = st.builds(
    Mix,
    clients=st.lists(clients, min_size=1, max_size=6),
    assigned=st.sampled_from(["legacy", "graph"]),
    stand_in=st.booleans(),
    shadow=st.sampled_from([100.0, 100.0, 50.0, 0.0]),
    mode=st.sampled_from(["replay", "tail"]),
    queue=st.integers(1, 3),
    stops=st.sampled_from([None, None, 1.0, 20.0, 40.0]),
    patience=st.sampled_from([0.0, 5.0, FOREVER]),
)


def fated(name: StackName, mix: Mix) -> Any:
    """Make a stack that does to each client what the mix says."""
    plain = FLOWS[name]

    def flow(request: Any, effects: Effects) -> AsyncIterator[Event]:
        client = mix.clients[int(request.body.message_id[1:])]
        trouble = client.fate if name == mix.assigned else client.candidate
        if client.fate == "twice" and name != mix.assigned:
            trouble = "twice"
        if trouble == "cut short":
            return short(plain, client.events)(request, effects)
        if trouble in ACTS:
            return after(plain, client.events, ACTS[trouble])(request, effects)
        return plain(request, effects)

    return flow


async def come(house: House, client: Client, number: int) -> None:
    """Be one client."""
    await asyncio.sleep(client.at)
    body = ChatRequest(message_id=f"m{number}", content="x" * 3)
    if client.fate == "refused":
        body = msgspec.structs.replace(body, content=None)
    if client.fate == "large":
        body = msgspec.structs.replace(body, content="x" * 60_000)
    leaves = client.events if client.fate == "leaves" else None
    await house.client(body, leaves_after=leaves)


async def balance(mix: Mix) -> House:
    """Let everything happen, then close the house."""
    rules = Rules(
        assigned=mix.assigned,
        stand_in=mix.stand_in,
        shadow=mix.shadow,
        mode=mix.mode,
        queue=mix.queue,
        exchange_bytes=40_000,
    )
    house = House(CASE, rules, legacy=fated("legacy", mix), graph=fated("graph", mix))
    streams = [
        asyncio.ensure_future(come(house, client, number))
        for number, client in enumerate(mix.clients)
    ]
    if mix.stops is not None:
        await asyncio.sleep(mix.stops)
        await house.router.aclose(mix.patience)
    await asyncio.gather(*streams)
    await house.router.aclose(FOREVER)
    await asyncio.sleep(900.0)
    return house


def books(house: House, mix: Mix) -> None:
    """Check that nothing is missing, doubled or contradicted."""
    ledger = house.router.ledger
    assert ledger.open == 0
    assert ledger.total() == len(mix.clients)
    assert ledger.total("failed") == 0
    written = [batch[0].exchange for batch in house.captured.batches]
    assert len(written) == len(set(written)) == len(mix.clients)
    roles = [[run.role for run in batch] for batch in house.captured.batches]
    assert {role[0] for role in roles} == {"serving"}
    assert not any("shadow" in role and "fallback" in role for role in roles)
    runs = house.runs
    shadows = [run for run in runs if run.role == "shadow"]
    assert sum(not run.shadow for run in shadows) == ledger.total("compared")
    # Of each exchange is known what became of its second run, from its lines alone.
    due = {run.exchange for run in runs if run.role == "serving" and run.shadow == "due"}
    assert due == {run.exchange for run in shadows}
    read = [settled_state(batch) for batch in house.captured.batches]
    for state in ("compared", "dropped", "cancelled", "not_sampled"):
        assert read.count(state) == ledger.total(state)
    if mix.shadow == 0:
        assert ledger.total("not_sampled") == len(mix.clients)
    assert house.router.settings().limits.total_bytes == house.router.bytes_left


def settled_state(runs: list[RunRecord]) -> str:
    """Read what became of a second run from its line and those of the served ones behind it."""
    apart = sorted(runs, key=lambda run: run.role != "shadow")
    lines = [CapturedLine(1, encode_run(run).rstrip()) for run in apart]
    [read] = exchanges(lines, "memory")
    assert isinstance(read, CapturedExchange)
    serving, *others = read.runs
    assert serving.shadow != "due" or [run.role for run in others] == ["shadow"]
    return "compared" if serving.shadow == "due" else serving.shadow


@pytest.mark.slow
@given(mixes)
@settings(max_examples=2 * settings().max_examples)
def test_every_request_ends_in_exactly_one_state(mix: Mix) -> None:
    """Refused, left, broken, replaced, too large, too many, not sampled, stopped: all mixed."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        house = runner.run(balance(mix))
    books(house, mix)
