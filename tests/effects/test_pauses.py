"""Pauses: what is stored, who may continue it, and what is known after a kill."""

import asyncio
import base64
from typing import Any

import msgspec
import pytest
from sqlalchemy import select

from cutover import Exchange, Paused
from cutover.records import PauseRecord, WriteRecord
from effects import pauses
from effects.database import PauseRow
from effects.pauses import Pauses
from effects.world import EffectSettings, World, open_world
from rules.forms import HumanAnswer
from tests.effects.conftest import MovableClock, taped

FORM = {"title": "确认", "fields": [{"name": "a", "value": 1}]}
YES = HumanAnswer("approve", {"a": 1}, "ann")
NO = HumanAnswer("reject", {}, "bob")
TAPE = bytes(range(256)) * 8_192
"""Two megabytes that are no text."""


def pause(pause_id: str = "q", session: str = "s", **changes: Any) -> PauseRecord:
    """Return an open pause that expires in a hundred seconds."""
    fields: dict[str, Any] = {
        "flow": "ops",
        "path": "/ops/react",
        "stack": "legacy",
        "request": b'{"input":"x"}',
        "tape": TAPE,
        "question": FORM,
        "frames": ["event: step\n\n"],
        "expires_at": 1_700_000_100.0,
    }
    return PauseRecord(id=pause_id, session=session, **(fields | changes))


@pytest.fixture
async def store(world: World) -> Pauses:
    """A store with one open pause, q of session s."""
    opened = Pauses(world.database, world.clock)
    await opened.store(pause())
    return opened


async def claim(store: Pauses, pause_id: str = "q") -> PauseRecord:
    """Return a pause that is claimed for thirty seconds."""
    claimed = await store.claim(pause_id, 30.0)
    assert isinstance(claimed, PauseRecord)
    return claimed


async def test_a_claimed_pause_comes_back_whole(store: Pauses, clock: MovableClock) -> None:
    """Tape, request, form and frames as they were stored, with the answer and a lease."""
    assert await store.answer("q", YES) == "stored"
    claimed = await claim(store)
    assert claimed == pause(
        answer=YES, state="claimed", owner=claimed.owner, claimed_until=clock.now + 30.0
    )
    assert claimed.owner


async def test_an_answer_is_stored_once(store: Pauses) -> None:
    """The same decision again is no error, also of another person and after the end."""
    assert await store.answer("unknown", YES) == "unknown"
    assert await store.answer("q", YES) == "stored"
    assert await store.answer("q", msgspec.structs.replace(YES, by="eve")) == "same"
    assert await store.answer("q", NO) == "different"
    claimed = await claim(store)
    assert claimed.answer == YES
    assert await store.answer("q", NO) == "different"
    assert await store.finish("q", claimed.owner)
    assert await store.answer("q", YES) == "same"
    assert await store.answer("q", NO) == "different"


async def test_of_many_answers_at_once_one_is_stored(store: Pauses) -> None:
    """Ten decisions that differ: one is stored, nine are told."""
    answers = [HumanAnswer("edit", {"a": number}) for number in range(10)]
    replies = await asyncio.gather(*(store.answer("q", one) for one in answers))
    assert sorted(replies) == ["different"] * 9 + ["stored"]
    question = await store.question("q")
    assert question is not None
    assert question.answer == answers[replies.index("stored")]


async def test_of_many_claims_at_once_one_wins(store: Pauses) -> None:
    """Ten continue at once: one claims, nine are told that it is claimed."""
    await store.answer("q", YES)
    replies = await asyncio.gather(*(store.claim("q", 30.0) for _ in range(10)))
    assert sum(isinstance(one, PauseRecord) for one in replies) == 1
    assert replies.count("claimed") == 9


async def test_a_claim_needs_an_answer_and_says_what_is_missing(
    store: Pauses, clock: MovableClock
) -> None:
    """Every reason not to claim."""
    assert await store.claim("other", 30.0) == "unknown"
    assert await store.claim("q", 30.0) == "unanswered"
    await store.answer("q", YES)
    claimed = await claim(store)
    assert await store.claim("q", 30.0) == "claimed"
    await store.finish("q", claimed.owner)
    assert await store.claim("q", 30.0) == "done"
    await store.store(pause("late"))
    await store.answer("late", YES)
    clock.now += 100
    assert await store.claim("late", 30.0) == "expired"


async def test_time_expires_what_is_not_claimed(store: Pauses, clock: MovableClock) -> None:
    """An answer that comes too late is refused; a claim in its lease goes on."""
    await store.store(pause("claimed"))
    await store.answer("claimed", YES)
    clock.now += 99
    claimed = await claim(store, "claimed")
    clock.now += 1
    assert await store.answer("q", YES) == "expired"
    question = await store.question("q")
    assert question is not None
    assert (question.state, question.question) == ("expired", FORM)
    assert await store.renew("claimed", claimed.owner, 30.0)
    clock.now += 29
    assert await store.finish("claimed", claimed.owner)


async def test_a_lease_that_is_over_is_anothers(store: Pauses, clock: MovableClock) -> None:
    """After a kill the next claim wins, the first owner can do nothing; a release frees it."""
    await store.answer("q", YES)
    first = await claim(store)
    assert await store.begin_write("q", first.owner, "k1", "orders.create", b"[1]")
    clock.now += 31
    second = await claim(store)
    assert second.owner != first.owner
    assert not await store.renew("q", first.owner, 30.0)
    assert not await store.begin_write("q", first.owner, "k2", "orders.create", b"[2]")
    assert not await store.release("q", first.owner)
    assert not await store.finish("q", first.owner)
    assert await store.release("q", second.owner)
    third = await claim(store)
    assert await store.finish("q", third.owner)


async def test_the_journal_knows_what_was_begun_and_what_came_of_it(
    store: Pauses, clock: MovableClock
) -> None:
    """What was begun without a result has an unknown outcome, and is never begun again."""
    await store.answer("q", YES)
    first = await claim(store)
    assert await store.begin_write("q", first.owner, "k1", "orders.create", b"[1]")
    await store.end_write("q", "k1", b'"done"')
    assert await store.begin_write("q", first.owner, "k2", "orders.create", b"[2]")
    clock.now += 31
    second = await claim(store)
    assert await store.journal("q") == [
        WriteRecord("k1", "orders.create", b"[1]", b'"done"'),
        WriteRecord("k2", "orders.create", b"[2]", None),
    ]
    assert not await store.begin_write("q", second.owner, "k2", "orders.create", b"[2]")
    assert await store.begin_write("q", second.owner, "k3", "orders.create", b"[3]")
    assert await store.finish("q", second.owner)
    assert await store.journal("q") == []


async def test_a_write_is_begun_by_one(store: Pauses) -> None:
    """Two begin the same write at once: one performs it."""
    await store.answer("q", YES)
    claimed = await claim(store)
    begun = (store.begin_write("q", claimed.owner, "k", "orders.create", b"[]") for _ in range(5))
    assert sorted(await asyncio.gather(*begun)) == [False] * 4 + [True]


async def test_a_new_turn_expires_the_sessions_pauses(store: Pauses) -> None:
    """Not those of other sessions and flows, nor one that is being continued."""
    for other in (pause("other", "t"), pause("flow", flow="companion"), pause("claimed")):
        await store.store(other)
        await store.answer(other.id, YES)
    await claim(store, "claimed")
    assert await store.expire_session("ops", "s") == 1
    assert await store.answer("q", YES) == "expired"
    assert await store.claim("q", 30.0) == "expired"
    await claim(store, "other")
    await claim(store, "flow")


async def test_a_session_shows_its_open_question(store: Pauses, clock: MovableClock) -> None:
    """The newest that waits; none once it is done or expired."""
    found = await store.open_of("ops", "s")
    assert found is not None
    assert (found.id, found.state, found.question) == ("q", "open", FORM)
    await store.store(pause("newer", expires_at=clock.now + 200))
    found = await store.open_of("ops", "s")
    assert found is not None
    assert found.id == "newer"
    assert await store.open_of("ops", "t") is None
    clock.now += 200
    assert await store.open_of("ops", "s") is None


async def test_a_pause_that_is_over_holds_no_contents(store: Pauses, world: World) -> None:
    """Tape, request, form and frames go when a pause is done or its session goes on."""
    await store.store(pause("done", "t"))
    await store.answer("done", YES)
    claimed = await claim(store, "done")
    await store.finish("done", claimed.owner)
    await store.expire_session("ops", "s")
    contents = select(PauseRow.request, PauseRow.tape, PauseRow.question, PauseRow.frames)
    async with world.database.engine.connect() as connection:
        rows = (await connection.execute(contents)).all()
    assert [tuple(row) for row in rows] == [(b"", b"", b"", b"")] * 2


async def test_a_sweep_deletes_what_is_long_over(store: Pauses, clock: MovableClock) -> None:
    """A day after the expiry; until then late callers learn what became of a pause."""
    clock.now += 100 + pauses.KEEP_SECONDS - 1
    assert await store.sweep() == 0
    assert await store.answer("q", YES) == "expired"
    clock.now += 1
    assert await store.sweep() == 1
    assert await store.answer("q", YES) == "unknown"


async def test_storing_a_pause_again_changes_nothing(store: Pauses) -> None:
    """A retry after a lost connection finds the pause as it is by now."""
    await store.answer("q", YES)
    await store.store(pause())
    await claim(store)


async def test_a_run_pauses_until_its_question_is_answered(store: Pauses) -> None:
    """`human.answer` leaves no entry while there is no answer, and reads it once there is."""
    async with Exchange() as exchange:
        with taped(exchange), pytest.raises(Paused, match="'q'"):
            await pauses.answer("q")
        assert exchange.entries == []
    await store.answer("q", YES)
    async with Exchange() as exchange:
        with taped(exchange):
            assert await pauses.answer("q") == YES
        with taped(exchange, "play"):
            assert await pauses.answer("q") == YES


async def test_contents_are_unreadable_without_the_key(
    database_url: str, clock: MovableClock
) -> None:
    """With a key nothing that a user said or a tape holds stands in the table as it was."""
    pytest.importorskip("cryptography")
    if database_url == "sqlite+aiosqlite://":
        pytest.skip("a database in memory cannot be opened twice")
    key = base64.b64encode(b"k" * 32).decode()
    async with open_world(EffectSettings(database=database_url, pause_key=key), clock) as world:
        store = Pauses(world.database, clock)
        await store.store(pause())
        await store.answer("q", YES)
    columns = (PauseRow.request, PauseRow.tape, PauseRow.question, PauseRow.frames, PauseRow.answer)
    async with open_world(EffectSettings(database=database_url), clock) as world:
        async with world.database.engine.connect() as connection:
            (row,) = (await connection.execute(select(*columns))).all()
        stored = b"".join(part for part in row if part is not None)
    for secret in (TAPE[:64], b'{"input"', "确认".encode(), b"event: step", b"approve"):
        assert secret not in stored
    async with open_world(EffectSettings(database=database_url, pause_key=key), clock) as world:
        claimed = await Pauses(world.database, clock).claim("q", 30.0)
    assert isinstance(claimed, PauseRecord)
    assert (claimed.tape, claimed.question, claimed.answer) == (TAPE, FORM, YES)
