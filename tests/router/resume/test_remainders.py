"""What follows the end of a stream is done once, wherever in it the router is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from contract.errors import EffectFailed, Fault
from contract.stores import MemoryEntry
from effects.memory import InMemoryMemory
from effects.stores import MemoryPauses, MemoryWriteJournal, Pause
from legacy import FLOWS as LEGACY
from router.resume.pauses import Pauses
from router.stack import StackName
from tests.support.faulty_stacks import after, crash
from tests.support.pausing_flow import SteppedPauses
from tests.support.router_world import House, Rules
from tests.support.session_turns import House as Stores
from tests.support.session_turns import Saying, learning, turn

pytestmark = pytest.mark.virtual

LEASE_OVER_S = 31.0


@dataclass
class Moments:
    """What was stored at each moment from which a router could be killed."""

    memory: InMemoryMemory
    seen: list[tuple[dict[str, Pause], tuple[MemoryEntry, ...]]] = field(default_factory=list)

    def note(self, pauses: Mapping[str, Pause]) -> None:
        """Note one, unless it is the one before; the first is when something is stored."""
        moment = (dict(pauses), self.memory.entries)
        if moment not in self.seen[-1:] and (self.seen or pauses):
            self.seen.append(moment)


class StoredPauses(MemoryPauses):
    """Pauses as a killed router left them."""

    def __init__(self, clock: Callable[[], float], stored: Mapping[str, Pause]) -> None:
        super().__init__(clock)
        self._pauses = dict(stored)

    @property
    def ids(self) -> Collection[str]:
        """What is there."""
        return self._pauses.keys()

    @property
    def stored(self) -> Mapping[str, Pause]:
        """What is there, and how."""
        return self._pauses


class Killed(Exception):
    """The process has ended here."""


class EndingPauses(StoredPauses):
    """Pauses of a router that ends when it begins with one; `begun` counts those."""

    begun = 0

    async def get(self, hitl_id: str) -> Pause | None:
        """End, unless the remainder is only read to be removed."""
        pause = await super().get(hitl_id)
        if pause is not None and pause.owner.startswith(("1:", "2:", "3:")):
            self.begun += 1
            raise Killed
        return pause


SEALED = "rest:sealed"


class SealedPauses(StoredPauses):
    """Pauses of which one was encrypted with a key that is gone."""

    async def get(self, hitl_id: str) -> Pause | None:
        """Read all but that one."""
        if hitl_id == SEALED:
            raise EffectFailed(Fault("pause_sealed"))
        return await super().get(hitl_id)


def journalled(house: House, pauses: MemoryPauses, unknown: list[str]) -> None:
    """Let a house's router journal what it writes."""
    house.router.wall = asyncio.get_running_loop().time
    house.router.pauses = Pauses(
        pauses, 60.0, house.router.wall, lambda _flow, _id, what: unknown.append(what)
    )
    house.router.write_journal = MemoryWriteJournal()


async def moments_of(saying: Saying, stores: Stores, unknown: list[str] | None = None) -> Moments:
    """Take a turn; returns the moments from which its router could be killed."""
    moments, loop = Moments(stores.memory), asyncio.get_running_loop()
    async with House(saying) as house:
        journalled(
            house, SteppedPauses(loop.time, moments.note), [] if unknown is None else unknown
        )
        await house.ask()
    return moments


@pytest.mark.parametrize("first", ["legacy", "graph"])
@pytest.mark.parametrize("second", ["legacy", "graph"])
async def test_whenever_it_is_killed_the_rest_is_done_once(
    first: StackName, second: StackName
) -> None:
    """From the terminal frame on, by either stack; nothing is stored once it is done."""
    loop, stores, unknown = asyncio.get_running_loop(), Stores(), list[str]()
    moments = Moments(stores.memory)
    async with House(learning(stores), Rules(assigned=first)) as house:
        journalled(house, SteppedPauses(loop.time, moments.note), unknown)
        assert b'"done"' in (await house.ask()).wire[-1]
    assert [entry.text for entry in stores.memory.entries] == ["likes quinces"]
    assert moments.seen[-1][0] == {}
    await asyncio.sleep(LEASE_OVER_S)
    killed = [(pauses, entries) for pauses, entries in moments.seen if pauses]
    assert {len(entries) for _, entries in killed} == {0, 1}
    for pauses, entries in killed:
        left, after_kill = StoredPauses(loop.time, pauses), copy(stores)
        after_kill = replace(stores, memory=InMemoryMemory(entries))
        async with House(learning(after_kill), Rules(assigned=second)) as house:
            journalled(house, left, unknown)
            await house.router.finish_remainders()
            assert [one.text for one in after_kill.memory.entries] == ["likes quinces"]
            assert not left.ids
            assert house.world.count("conversations.put") == 0
            await house.router.finish_remainders()
            assert house.world.count("memory.write") <= 1
    assert unknown == []


async def test_what_no_stack_can_do_is_reported_and_not_tried_again() -> None:
    """Its code has changed: until the end of the stream no call is made anew."""
    loop, stores, unknown = asyncio.get_running_loop(), Stores(), list[str]()
    moments = await moments_of(learning(stores), stores, unknown)
    await asyncio.sleep(LEASE_OVER_S)
    left = StoredPauses(loop.time, moments.seen[0][0])
    broken: Any = after(LEGACY["session"], 0, crash)
    async with House(learning(Stores()), legacy=broken, graph=broken) as house:
        journalled(house, left, unknown)
        await house.router.finish_remainders()
        assert house.world.made == []
    assert unknown == ["what follows the end"]
    assert not left.ids


async def test_a_remainder_that_is_claimed_is_left_alone() -> None:
    """Its router lives, or another one is at it."""
    loop, stores = asyncio.get_running_loop(), Stores()
    moments = await moments_of(learning(stores), stores)
    left = StoredPauses(loop.time, moments.seen[0][0])
    async with House(learning(Stores())) as house:
        journalled(house, left, [])
        await house.router.finish_remainders()
        assert house.world.made == []
    assert len(left.ids) == 1


async def test_what_ends_every_router_that_finishes_it_is_tried_three_times() -> None:
    """A process that is out of memory there would take one router after another with it."""
    loop, stores, unknown = asyncio.get_running_loop(), Stores(), list[str]()
    moments = await moments_of(learning(stores), stores)
    left = StoredPauses(loop.time, moments.seen[0][0])
    claims = 0
    for _ in range(5):
        await asyncio.sleep(LEASE_OVER_S)
        killing = EndingPauses(loop.time, left.stored)
        async with House(learning(Stores())) as house:
            journalled(house, killing, unknown)
            with suppress(Killed):
                await house.router.finish_remainders()
            claims += killing.begun
            left = StoredPauses(loop.time, killing.stored)
    assert claims == 3
    assert unknown == ["what follows the end"]
    assert not left.ids


async def test_one_that_cannot_be_opened_holds_up_no_other() -> None:
    """Its key is gone, perhaps in this router alone."""
    loop, stores = asyncio.get_running_loop(), Stores()
    moments = await moments_of(learning(stores), stores)
    await asyncio.sleep(LEASE_OVER_S)
    ((hitl_id, pause),) = moments.seen[0][0].items()
    sealed = msgspec.structs.replace(pause, hitl_id=SEALED, created_at=pause.created_at - 1)
    left = SealedPauses(loop.time, {SEALED: sealed, hitl_id: pause})
    after_kill = replace(stores, memory=InMemoryMemory(moments.seen[0][1]))
    async with House(learning(after_kill)) as house:
        journalled(house, left, [])
        await house.router.finish_remainders()
    assert [one.text for one in after_kill.memory.entries] == ["likes quinces"]
    assert set(left.ids) == {SEALED}
    assert left.stored[SEALED].state == "answered"


class SlowPauses(StoredPauses):
    """Pauses in a store that takes its time to answer."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock, {})
        self.inserted = asyncio.Event()

    async def _insert(self, pause: Pause) -> bool:
        stored = await super()._insert(pause)
        self.inserted.set()
        await asyncio.sleep(1.0)
        return stored


async def test_a_sender_that_is_cancelled_leaves_nothing_behind() -> None:
    """While the remainder is being stored: the flow goes on to its end, and the row is removed."""
    stores, slow = Stores(), SlowPauses(asyncio.get_running_loop().time)
    async with House(learning(stores)) as house:
        journalled(house, slow, [])
        sender = asyncio.create_task(house.client(house.case.body))
        await slow.inserted.wait()
        sender.cancel()
        await asyncio.wait({sender})
    assert sender.cancelled()
    assert [entry.text for entry in stores.memory.entries] == ["likes quinces"]
    assert not slow.ids


async def test_nothing_is_stored_of_a_flow_that_ends_with_its_stream() -> None:
    """A conversation too short to learn from costs no row."""
    stores = Stores()
    assert (await moments_of(turn(stores, 0), stores)).seen == []
