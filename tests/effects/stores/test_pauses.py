"""Pauses: one suite for every store, sealed and not; they outlive routers and are shared."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contract.errors import EffectFailed
from contract.human import Form, FormField, HumanAnswer, OpenQuestion
from effects.local import ManualClock
from effects.stores import MemoryPauses, Pause, PauseStore, SqlPauses
from effects.stores.pauses.aes import AesEncryption
from effects.stores.pauses.transitions import REMAINDER
from tests.support.postgres import PLACES, empty_place

HOUR = 3_600.0
DAY = 86_400.0

KEY = bytes(range(32))

YES = HumanAnswer("approve", {"city": "北京", "count": 2, "tags": ("a", "b")}, "ann")
NO = HumanAnswer("reject")


@pytest.fixture
def clock() -> ManualClock:
    """Give a clock that is moved by hand."""
    return ManualClock()


@pytest.fixture(params=["memory", *PLACES, "sealed"])
async def pauses(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[PauseStore]:
    """Give an empty store of each kind, on the clock that is moved by hand."""
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            yield MemoryPauses(clock.time)
            return
        place = await stack.enter_async_context(empty_place(request, tmp_path))
        encryption = None if request.param == "sqlite" else AesEncryption([KEY])
        opened = SqlPauses.open_store(place, clock.time, encryption)
        yield await stack.enter_async_context(opened)


def paused(clock: ManualClock, hitl_id: str = "h1", session_id: str | None = "s1") -> Pause:
    """Make a pause that expires in an hour."""
    form = Form("确认", (FormField("city", "城市", "text", required=True, value="北京"),))
    return Pause(
        hitl_id=hitl_id,
        exchange=f"exchange of {hitl_id}",
        flow="companion",
        stack="legacy",
        session_id=session_id,
        user_id="ann",
        question=OpenQuestion(form, "confirm", session_id),
        tape=b"\x00tape\xff",
        answer_site="confirm",
        answer_key="human.answer",
        created_at=clock.time(),
        expires_at=clock.time() + HOUR,
    )


async def answered(pauses: PauseStore, clock: ManualClock) -> None:
    """Open a pause and answer it."""
    assert await pauses.open(paused(clock))
    assert await pauses.respond("h1", YES) == "accepted"


async def state(pauses: PauseStore, hitl_id: str = "h1") -> str | None:
    """Tell how a pause stands."""
    pause = await pauses.get(hitl_id)
    return None if pause is None else pause.state


async def test_a_pause_comes_back_whole(pauses: PauseStore, clock: ManualClock) -> None:
    """Question, tape and all; an unknown id is nothing."""
    assert await pauses.open(paused(clock))
    assert await pauses.get("h1") == paused(clock)
    assert await pauses.get("h2") is None


async def test_an_answer_is_taken_once(pauses: PauseStore, clock: ManualClock) -> None:
    """Repeated it is the same, by any person; another one is a conflict."""
    await pauses.open(paused(clock))
    assert await pauses.respond("h1", YES) == "accepted"
    assert await pauses.respond("h1", YES) == "same"
    assert await pauses.respond("h1", msgspec.structs.replace(YES, by="bob")) == "same"
    turned = HumanAnswer("approve", dict(reversed(YES.data.items())))
    assert await pauses.respond("h1", turned) == "same"
    assert await pauses.respond("h1", NO) == "conflict"
    found = await pauses.get("h1")
    assert found is not None
    assert (found.state, found.answer) == ("answered", YES)
    assert await pauses.respond("h2", YES) == "unknown"


async def test_of_many_who_continue_one_does(pauses: PauseStore, clock: ManualClock) -> None:
    """Also when they claim together, and also twice by one name."""
    await answered(pauses, clock)
    replies = await asyncio.gather(*(pauses.claim("h1", f"x{n}", 60.0) for n in range(20)))
    assert sorted(replies) == ["claimed"] + ["taken"] * 19
    winner = f"x{replies.index('claimed')}"
    assert await pauses.claim("h1", winner, 60.0) == "taken"


async def test_what_waits_is_added_up_by_flow(pauses: PauseStore, clock: ManualClock) -> None:
    """Open, answered and claimed pauses, as stored; none that is over, and no remainder."""
    assert await pauses.totals() == {}
    bare = {"question": None, "expires_at": clock.time() + 2 * HOUR}
    changes: list[dict[str, Any]] = [
        {"hitl_id": "h1"},
        {"hitl_id": "h2", "tape": b"x" * 10_000} | bare,
        {"hitl_id": "other", "flow": "ops"} | bare,
        {"hitl_id": f"{REMAINDER}r"} | bare,
    ]
    for change in changes:
        assert await pauses.open(msgspec.structs.replace(paused(clock), **change))
    totals = await pauses.totals()
    assert {flow: one.pauses for flow, one in totals.items()} == {"companion": 2, "ops": 1}
    assert 10_000 < totals["companion"].size < 10_800
    assert 13 <= totals["ops"].size < 60
    assert await pauses.respond("h1", YES) == "accepted"
    assert (await pauses.totals())["companion"].size > totals["companion"].size + 50
    assert await pauses.claim("h1", "a", 2 * HOUR) == "claimed"
    clock.advance(1.5 * HOUR)  # its lease outlasts its time
    assert (await pauses.totals())["companion"].pauses == 2
    assert await pauses.finish("h1", "a")
    assert await pauses.expire("other") == "expired"
    assert {flow: one.pauses for flow, one in (await pauses.totals()).items()} == {"companion": 1}
    clock.advance(HOUR)  # nothing has been swept
    assert await pauses.totals() == {}


async def test_a_lease_ends(pauses: PauseStore, clock: ManualClock) -> None:
    """Not a moment before; then another may continue, and the late owner has lost."""
    await answered(pauses, clock)
    await pauses.claim("h1", "x1", 60.0)
    clock.advance(59.0)
    assert await pauses.claim("h1", "x2", 60.0) == "taken"
    clock.advance(1.0)
    assert await state(pauses) == "answered"
    assert await pauses.claim("h1", "x2", 60.0) == "claimed"
    assert not await pauses.renew("h1", "x1", 60.0)
    assert not await pauses.release("h1", "x1")
    assert not await pauses.finish("h1", "x1")
    assert await pauses.finish("h1", "x2")


async def test_a_lease_is_renewed(pauses: PauseStore, clock: ManualClock) -> None:
    """Also a late one, unless another owner has claimed; it outlives the pause's own time."""
    await answered(pauses, clock)
    await pauses.claim("h1", "x1", 600.0)
    for _ in range(10):
        clock.advance(599.0)
        assert await pauses.renew("h1", "x1", 600.0)
    assert await state(pauses) == "claimed"
    clock.advance(601.0)
    assert await state(pauses) == "expired"
    assert not await pauses.renew("h1", "x1", 60.0)


async def test_who_has_claimed_a_pause_removes_it(pauses: PauseStore, clock: ManualClock) -> None:
    """Nothing of it stays; another owner removes nothing."""
    await answered(pauses, clock)
    assert await pauses.claim("h1", "router 1", 30.0) == "claimed"
    await pauses.remove("h1", "router 2")
    assert await pauses.get("h1") is not None
    await pauses.remove("h1", "router 1")
    assert await pauses.get("h1") is None


async def test_a_remainder_is_stored_claimed_and_free_once_its_lease_is_over(
    pauses: PauseStore, clock: ManualClock
) -> None:
    """It waits for no human: a new turn of its session does not expire it."""
    remainder = msgspec.structs.replace(
        paused(clock, f"{REMAINDER}x"),
        question=None,
        state="claimed",
        owner="router 1",
        leased_until=clock.time() + 30.0,
    )
    assert await pauses.open(remainder)
    assert await pauses.expire_session("companion", "s1") == 0
    assert await pauses.claim(f"{REMAINDER}x", "router 2", 30.0) == "taken"
    clock.advance(31.0)
    assert [one.state for one in await pauses.waiting()] == ["answered"]
    assert await pauses.claim(f"{REMAINDER}x", "router 2", 30.0) == "claimed"
    found = await pauses.get(f"{REMAINDER}x")
    assert found is not None
    assert (found.tape, found.question) == (remainder.tape, None)


async def test_a_finished_pause_keeps_nothing(pauses: PauseStore, clock: ManualClock) -> None:
    """Tape, question and answer are gone; late callers are told; after a day so is that."""
    await answered(pauses, clock)
    await pauses.claim("h1", "x1", 60.0)
    assert await pauses.finish("h1", "x1")
    assert not await pauses.finish("h1", "x1")
    assert await pauses.claim("h1", "x2", 60.0) == "finished"
    found = await pauses.get("h1")
    assert found is not None
    assert (found.state, found.tape, found.question, found.answer) == ("finished", b"", None, None)
    clock.advance(HOUR + DAY - 1.0)
    assert await pauses.sweep() == (0, 0)
    clock.advance(1.0)
    assert await pauses.sweep() == (0, 1)
    assert await pauses.claim("h1", "x2", 60.0) == "unknown"


async def test_what_a_new_turn_has_passed_by_can_be_finished_but_not_given_back(
    pauses: PauseStore, clock: ManualClock
) -> None:
    """Its owner may be at its end, or may not have got the session."""
    for hitl_id in ("h1", "h2"):
        await pauses.open(paused(clock, hitl_id))
        await pauses.respond(hitl_id, YES)
        await pauses.claim(hitl_id, "x1", 60.0)
    assert await pauses.expire_session("companion", "s1") == 2
    assert await pauses.expire_session("companion", "s1") == 0
    found = [await pauses.get(f"h{n}") for n in (1, 2)]
    # By these its owner tells how long he may go on, and that the session has.
    told = [it and (it.state, it.leased_until - it.expires_at) for it in found]
    assert told == [("claimed", 60.0), ("claimed", 60.0)]
    assert await pauses.renew("h1", "x1", 60.0)
    assert await pauses.finish("h1", "x1")
    assert await pauses.release("h2", "x1")
    assert await pauses.claim("h2", "x2", 60.0) == "expired"


@pytest.mark.parametrize("hostile", ["a\0b", "\ud800"], ids=["nul", "surrogate"])
async def test_text_no_store_can_keep_is_a_fault(
    pauses: PauseStore, clock: ManualClock, hostile: str
) -> None:
    """In ids and owners; in a question and an answer a NUL can be kept, half a character not."""
    await pauses.open(paused(clock))
    for call in (
        pauses.open(paused(clock, hostile)),
        pauses.get(hostile),
        pauses.respond(hostile, YES),
        pauses.claim("h1", hostile, 60.0),
        pauses.pending(hostile),
        pauses.respond("h1", HumanAnswer("edit", {"city": "\udfff"})),
    ):
        with pytest.raises(EffectFailed) as failed:
            await call
        assert failed.value.fault.code == "store_failed"
    assert await pauses.get("h1") == paused(clock)


FIRST_VERSION = """CREATE TABLE graph_checkpoints (
    hitl_id TEXT PRIMARY KEY, exchange TEXT NOT NULL, flow TEXT NOT NULL, stack TEXT NOT NULL,
    created_at REAL NOT NULL, expires_at REAL NOT NULL, session_id TEXT, question BLOB NOT NULL,
    tape BLOB NOT NULL, answer_site TEXT NOT NULL, answer_key TEXT NOT NULL, state TEXT NOT NULL,
    answer BLOB NOT NULL, digest TEXT NOT NULL, owner TEXT NOT NULL, leased_until REAL NOT NULL
)"""


async def test_a_pause_survives_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    """Opened again, it can be answered and claimed; what is over has left the file."""
    path = tmp_path / "pauses.db"
    async with SqlPauses.open_store(path, clock.time) as pauses:
        await pauses.open(paused(clock))
    async with SqlPauses.open_store(path, clock.time) as pauses:
        assert await pauses.respond("h1", YES) == "accepted"
        assert await pauses.claim("h1", "x1", 60.0) == "claimed"
        found = await pauses.get("h1")
        assert found is not None
        assert found.tape == paused(clock).tape
        await pauses.finish("h1", "x1")
    assert found.tape not in path.read_bytes()
    connection = sqlite3.connect(path)
    row = connection.execute("SELECT count(*), max(length(tape)) FROM graph_checkpoints").fetchone()
    connection.close()
    assert row == (1, 0)


async def test_of_two_routers_one_continues(place: str, clock: ManualClock) -> None:
    """They go through the same pauses together: each goes on with those the other has not got."""
    ids = [f"h{number}" for number in range(20)]
    async with (
        SqlPauses.open_store(place, clock.time) as left,
        SqlPauses.open_store(place, clock.time) as right,
    ):
        for hitl_id in ids:
            await left.open(paused(clock, hitl_id))
            await left.respond(hitl_id, YES)
        claims = [
            asyncio.gather(left.claim(one, "x1", 60.0), right.claim(one, "x2", 60.0)) for one in ids
        ]
        replies = [sorted(await both) for both in claims]
    assert replies == [["claimed", "taken"]] * len(ids)


async def test_where_nothing_waits_nobody_waits_for_who_writes(
    tmp_path: Path, clock: ManualClock
) -> None:
    """Every turn of a session ends what waits in it, before its first frame."""
    path = tmp_path / "pauses.db"
    async with SqlPauses.open_store(path, clock.time) as pauses:
        with closing(sqlite3.connect(path, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            assert await pauses.expire_session("companion", "s") == 0


@pytest.mark.parametrize("encryption", [None, AesEncryption([KEY])], ids=["plain", "sealed"])
async def test_the_size_of_a_row_is_what_stands_in_the_table(
    tmp_path: Path, clock: ManualClock, encryption: AesEncryption | None
) -> None:
    """Texts in UTF-8, encrypted columns as written; also with another tape, and without a user."""
    path = tmp_path / "pauses.db"
    larger = msgspec.structs.replace(
        paused(clock, "h2", None), user_id=None, tape=b"x" * 10_000, continued=True
    )
    async with SqlPauses.open_store(path, clock.time, encryption) as pauses:
        for pause in (paused(clock), larger):
            assert await pauses.open(pause)
            with closing(sqlite3.connect(path)) as connection:
                (row,) = connection.execute(
                    "SELECT * FROM graph_checkpoints WHERE hitl_id = ?", (pause.hitl_id,)
                )
            texts = sum(len(it.encode()) for it in row if isinstance(it, str))
            blobs = sum(len(it) for it in row if isinstance(it, bytes))
            times = sum(8 for it in row if isinstance(it, float))
            assert pauses.row_bytes(pause) == texts + blobs + times + 1


async def test_a_file_of_the_first_version_is_brought_up_to_date(
    tmp_path: Path, clock: ManualClock
) -> None:
    """A pause that waited while the code was changed is answered, continued and given back."""
    path = tmp_path / "pauses.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(FIRST_VERSION)
        connection.execute("CREATE TABLE schema_versions (store TEXT PRIMARY KEY, version INTEGER)")
        connection.execute("INSERT INTO schema_versions VALUES ('pauses', 1)")
        connection.execute(
            "INSERT INTO graph_checkpoints VALUES ('h1', 'e1', 'companion', 'legacy', 0.0, ?, 's1',"
            " 'null', ?, 'confirm', 'key', 'open', 'null', '', '', 0.0)",
            (clock.time() + HOUR, b"old tape"),
        )
    async with SqlPauses.open_store(path, clock.time) as pauses:
        found = await pauses.get("h1")
        assert found is not None
        assert (found.tape, found.user_id, found.continued) == (b"old tape", None, False)
        assert await pauses.respond("h1", YES) == "accepted"
        assert await pauses.claim("h1", "x1", 60.0) == "claimed"
        assert await pauses.release("h1", "x1", b"done")
        found = await pauses.get("h1")
        assert found is not None
        assert found.tape == b"done"
