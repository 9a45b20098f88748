"""Exchanges that did not go well: what failed then fails the same way now, or is repaired."""

from __future__ import annotations

from typing import Any

import pytest

from contract.flows import SPECS
from contract.records import RunRecord
from cutover.replay.parts import Skipped
from cutover.replay.play import PlayOptions
from cutover.replay.replayer import Replayed, Replayer
from cutover.replay.sides import sides_of
from cutover.selftest.cases import case
from graph_impl import FLOWS as GRAPH
from legacy import FLOWS as LEGACY
from tests.cutover.replay import stacks
from tests.support.faulty_stacks import after, crash
from tests.support.planted_faults import PLAIN
from tests.support.router_world import House, Rules

HERE = "tests.cutover.replay.stacks"

pytestmark = pytest.mark.virtual


async def served(rules: Rules, **flows: stacks.Flows) -> list[RunRecord]:
    """Serve one exchange on stacks that are not all well; gives its lines."""
    chat: dict[str, Any] = {name: flow["chat"] for name, flow in flows.items()}
    async with House(case(PLAIN), rules, **chat) as house:
        await house.ask()
    (batch,) = house.captured.batches
    return batch


async def replayed(batch: list[RunRecord], stack: str, against: str | None = None) -> object:
    """Replay an exchange."""
    replayer = Replayer(sides_of(stack, against), PlayOptions(), SPECS)
    return await replayer.replay(tuple(batch), str.encode, {}, lambda *_: None)


@pytest.mark.parametrize("name", ["OLD_CRASHING", "OLD_SHORT", "OLD_LATE"])
async def test_what_failed_then_fails_the_same_way_now(name: str) -> None:
    """Frames the router put in its place to end the stream included, and where it was stopped."""
    flows: stacks.Flows = getattr(stacks, name)
    batch = await served(Rules(stand_in=False), legacy=flows)
    assert [run.outcome for run in batch] != ["completed"]
    done = await replayed(batch, f"{HERE}:{name}", "graph")
    assert isinstance(done, Replayed)
    assert done.basis == "legacy as recorded → legacy as it is now"
    *_, was, now = done.runs
    assert [text for _, text in now.frames] == [text for _, text in was.frames]
    assert (now.outcome, now.error) == (was.outcome, was.error)


async def test_what_was_repaired_is_equal_to_the_stack_that_took_over() -> None:
    """The failed run is not the measure: its successor's stream is what the client should get."""
    crashing = {"chat": after(GRAPH["chat"], 3, crash)}
    batch = await served(Rules("graph"), graph=crashing)
    assert [run.role for run in batch] == ["serving", "fallback"]
    done = await replayed(batch, "graph")
    assert isinstance(done, Replayed)
    assert (done.equal, done.basis) == (True, "legacy as recorded → graph as it is now")


async def test_what_is_still_broken_is_found_again() -> None:
    """Legacy took over; graph as it is now crashes as it did."""
    batch = await served(Rules("graph"), graph={"chat": after(GRAPH["chat"], 3, crash)})
    done = await replayed(batch, f"{HERE}:OLD_CRASHING")
    assert isinstance(done, Replayed)
    assert (done.equal, done.outcome) == (False, "failed")


async def test_an_exchange_that_had_outgrown_its_bounds_has_no_tape() -> None:
    """Half of a tape is worse than none."""
    batch = await served(Rules(exchange_bytes=200), legacy=dict(LEGACY))
    assert await replayed(batch, "legacy") == Skipped("no tape")
