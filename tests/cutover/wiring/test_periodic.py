"""Periodic jobs: repeated after failures; pauses are swept, deleted conversations followed."""

from __future__ import annotations

import asyncio
import logging

import pytest

from contract.errors import EffectFailed, Fault
from contract.stores import ChatKey, DataSubject, SubjectKind, Turn
from cutover.wiring.periodic import (
    COUNT_PERIOD,
    PERIOD,
    counting_pauses,
    drop_unknown,
    following,
    periodic,
    sweeping,
)
from effects.local import ManualClock
from effects.stores import MemoryConversations, MemoryPauses, PauseTotals, Swept
from effects.stores.shadow_replies import ShadowReplies
from tests.support.records import a_pause, a_reply

CHAT = ChatKey("", "c")


@pytest.mark.virtual
@pytest.mark.parametrize("first", [0.0, 600.0])
async def test_a_job_that_fails_runs_again(first: float, caplog: pytest.LogCaptureFixture) -> None:
    """Its task goes on."""
    done: list[float] = []
    thrice = asyncio.Event()

    async def do() -> None:
        done.append(asyncio.get_running_loop().time())
        if len(done) == 3:
            thrice.set()
        message = "boom"
        raise ValueError(message)

    began = asyncio.get_running_loop().time()
    async with periodic("sweep", do, 600.0, at_once=not first):
        await thrice.wait()
    assert [at - began for at in done] == [first, first + 600.0, first + 1_200.0]
    assert caplog.messages == ["sweep: failed, and is tried again"] * 3


@pytest.mark.virtual
async def test_pauses_are_counted_every_minute() -> None:
    """At the start, too; a flow in which no pause is left has none, and not those of before."""
    clock = ManualClock()
    pauses = MemoryPauses(clock.time)
    totals: dict[str, PauseTotals] = {}
    await pauses.open(a_pause(expires_at=clock.time() + 30.0))
    async with counting_pauses(pauses, totals):
        await asyncio.sleep(COUNT_PERIOD / 2)
        [(flow, found)] = totals.items()
        assert found.pauses == 1
        clock.advance(31)
        await asyncio.sleep(COUNT_PERIOD)
        assert totals == {flow: (0, 0)}


async def both() -> tuple[ShadowReplies, MemoryConversations]:
    """Return the shadow's replies and the store of a conversation of two turns."""
    replies, store = ShadowReplies(), MemoryConversations()
    for number, user in ((1, "ann"), (2, "bob")):
        asked = Turn(message_id=f"u{number}", role="user", content="?", chat_id="c", user_id=user)
        await store.put("s", asked)
        await store.put("s", a_reply(number, "theirs"))
        replies.put(("graph", CHAT), a_reply(number, "mine"))
    return replies, store


@pytest.mark.parametrize(
    ("whose", "left"),
    [
        (("chat", "c"), set()),
        (("user", "ann"), {"u2"}),
        (("message", "u2"), {"u1"}),
        (("chat", "other"), {"u1", "u2"}),
    ],
)
async def test_what_is_forgotten_in_the_store_goes(
    whose: tuple[SubjectKind, str], left: set[str]
) -> None:
    """Of a chat, a user or a message, removed by another process such as `cutover forget`."""
    replies, store = await both()
    await store.erase(DataSubject(*whose))
    await drop_unknown(replies, store)
    assert set(replies.read(("graph", CHAT))) == left


class Away(MemoryConversations):
    """A store that fails."""

    async def history(self, *_: str, **__: object) -> tuple[Turn, ...]:
        """Fail."""
        raise EffectFailed(Fault("store_failed"))


@pytest.mark.virtual
async def test_a_store_that_fails_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It is read the next time."""
    replies, _ = await both()
    with caplog.at_level(logging.WARNING):
        async with following(replies, Away()):
            await asyncio.sleep(PERIOD + 1)
    assert "store_failed, and is tried again" in caplog.text
    assert set(replies.read(("graph", CHAT))) == {"u1", "u2"}


@pytest.mark.virtual
async def test_conversations_are_followed_periodically_and_not_at_the_end() -> None:
    """Every ten minutes while it is open."""
    replies, store = await both()
    async with following(replies, store):
        await store.erase(DataSubject("chat", "c"))
        await asyncio.sleep(599.0)
        assert replies.chats
        await asyncio.sleep(2.0)
        assert not replies.chats
    replies, _ = await both()
    async with following(replies, store):
        pass
    assert replies.chats


class AwayPauses(MemoryPauses):
    """A store that is away the first time."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock.time)
        self.away = True

    async def sweep(self) -> Swept:
        """Fail once."""
        if self.away:
            self.away = False
            raise EffectFailed(Fault("store_unavailable", retryable=True))
        return await super().sweep()


@pytest.mark.virtual
async def test_due_pauses_are_swept_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    """A store that is away is swept the next time."""
    clock = ManualClock()
    pauses = AwayPauses(clock)
    await pauses.open(a_pause(expires_at=clock.time()))
    with caplog.at_level(logging.INFO):
        async with sweeping(pauses):
            await asyncio.sleep(PERIOD * 1.5)
    assert [record.getMessage() for record in caplog.records] == [
        "sweep pauses: store_unavailable, and is tried again",
        "pauses: 1 expired, 0 removed",
    ]
