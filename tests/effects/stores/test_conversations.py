"""Stores of conversations: one suite for all of them, and for a service of your own.

docs/memory-service.md shows how a service is put to it: `-k service`, with its address and token in
`CONVERSATION_SERVICE_URL` and `CONVERSATION_SERVICE_TOKEN`.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from contract.errors import EffectFailed
from contract.ports import Conversations
from contract.stores import TURN_DATA_BYTES, DataSubject, Turn
from effects.stores import (
    ConversationStore,
    HttpConversations,
    MemoryConversations,
    SqlConversations,
)
from effects.stores.http import conversation_service
from tests.support.asgi import served
from tests.support.postgres import PLACES, empty_place

CLOCKS_DIFFER = 60
"""Seconds by which the clock of a service may be wrong."""
AT = 1_790_000_000
DATA = {"ok": True, "rows": [{"name": "a\\\\u0000 苏州", "gb": 1.5, "free": None}]}


def asked(message_id: str, content: str = "你好", chat_id: str | None = "c1") -> Turn:
    """Make a user's turn."""
    return Turn(
        message_id=message_id, role="user", content=content, chat_id=chat_id, user_id="u1", at=AT
    )


def replied(
    message_id: str, reply_to: str, content: str = "嗯", data: dict[str, Any] | None = None
) -> Turn:
    """Make a reply."""
    return Turn(
        message_id=message_id,
        role="assistant",
        content=content,
        chat_id="c1",
        reply_to=reply_to,
        data=data,
        at=AT,
    )


class OwnIds:
    """A store that holds turns of others, too: every id begins with one that is unique.

    Nothing has to be removed before a test, or after it.
    """

    def __init__(self, store: ConversationStore, prefix: str = "") -> None:
        self._store = store
        self._prefix = prefix or f"{uuid.uuid4().hex[:12]}-"

    def of(self, flow: str) -> OwnIds:
        """Return the conversations of a flow."""
        return OwnIds(self._store.of(flow), self._prefix)  # type: ignore[arg-type] # has `of`, too

    async def find(self, site: str, message_id: str) -> Turn | None:
        """Find a turn."""
        return self._shown(await self._store.find(site, self._prefix + message_id))

    async def put(self, site: str, turn: Turn) -> bool:
        """Store a turn."""
        return await self._store.put(site, self._named(turn))

    async def history(
        self, site: str, chat_id: str, *, before: str, limit: int
    ) -> tuple[Turn, ...]:
        """Read turns."""
        named = self._prefix + before if before else ""
        chat = self._prefix + chat_id
        found = await self._store.history(site, chat, before=named, limit=limit)
        return tuple(turn for one in found if (turn := self._shown(one)))

    def _named(self, turn: Turn) -> Turn:
        """Put the prefix before every id of a turn."""
        return self._with_ids(turn, lambda one: self._prefix + one)

    def _shown(self, turn: Turn | None) -> Turn | None:
        """Take the prefix off again."""
        return turn and self._with_ids(turn, lambda one: one.removeprefix(self._prefix))

    def _with_ids(self, turn: Turn, change: Callable[[str], str]) -> Turn:
        ids = {name: getattr(turn, name) for name in ("message_id", "chat_id", "reply_to")}
        return replace(turn, **{name: one and change(one) for name, one in ids.items()})


ERASABLE = ("memory", *PLACES)
SERVICE_URL = "CONVERSATION_SERVICE_URL"
SERVICE_TOKEN = "CONVERSATION_SERVICE_TOKEN"


async def opened_service(stack: AsyncExitStack) -> ConversationStore:
    """Open the service that the environment names, otherwise the reference, with a token."""
    url, token = os.environ.get(SERVICE_URL, ""), os.environ.get(SERVICE_TOKEN, "")
    if not url:
        token = "a-token"
        app = conversation_service(MemoryConversations(), token)
        url = await stack.enter_async_context(served(app))
    return OwnIds(await stack.enter_async_context(HttpConversations.open(url, token=token)))


ON_SOCKETS = [pytest.param(name, marks=pytest.mark.sockets) for name in ("http", "service")]


@pytest.fixture(params=[*ERASABLE, *ON_SOCKETS])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ConversationStore]:
    """Give an empty store of each kind."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        match request.param:
            case "memory":
                yield MemoryConversations()
            case "http":
                url = await enter(served(conversation_service(MemoryConversations())))
                yield await enter(HttpConversations.open(url))
            case "service":
                yield await opened_service(stack)
            case _:
                place = await enter(empty_place(request, tmp_path))
                yield await enter(SqlConversations.open(place))


async def ids(store: Conversations, before: str, limit: int = 20, chat: str = "c1") -> list[str]:
    """Tell the ids of a history."""
    turns = await store.history("history", chat, before=before, limit=limit)
    return [turn.message_id for turn in turns]


async def test_an_unknown_id_is_nothing(store: ConversationStore) -> None:
    """Neither an error nor an empty turn."""
    assert await store.find("message", "m1") is None


async def test_what_is_stored_is_found_whole(store: ConversationStore) -> None:
    """Every field comes back as it was, and absent ones as absent."""
    full = Turn(
        message_id="m1",
        role="assistant",
        content='👩‍👩‍👧 "quoted"\n\\ 再见\u2028é',
        chat_id="c1",
        user_id="u1",
        user_name="小明",
        reply_to="m0",
        data=DATA,
        at=AT,
    )
    bare = Turn(message_id="m2", role="user", content="x", at=AT)
    assert await store.put("reply", full)
    assert await store.put("message", bare)
    assert await store.find("message", "m1") == full
    assert await store.find("message", "m2") == bare
    assert await store.history("history", "c1", before="", limit=1) == (full,)


async def test_a_turn_gets_its_time_from_the_store(store: ConversationStore) -> None:
    """When it is first stored; the same turn stored again, then or with a time, changes nothing."""
    turn = replace(asked("m1"), at=None)
    began = int(time.time())
    assert await store.put("message", turn)
    found = await store.find("message", "m1")
    assert found is not None
    assert found.at is not None
    assert began - CLOCKS_DIFFER <= found.at <= time.time() + CLOCKS_DIFFER
    for again in (turn, asked("m1")):
        assert await store.put("message", again)
    assert await store.find("message", "m1") == found == replace(turn, at=found.at)


@pytest.mark.parametrize("odd", ["a/b", "..", ".", "a%2Fb", "a b?c#d&e=f", "消息:1", "'; --", "+"])
async def test_an_id_may_look_like_anything(store: ConversationStore, odd: str) -> None:
    """Ids are data: no path, query, encoding or statement is made of them."""
    turn = asked(odd, chat_id=f"chat {odd}")
    assert await store.put("message", turn)
    assert await store.find("message", odd) == turn
    assert await ids(store, "later", chat=f"chat {odd}") == [odd]


async def test_storing_an_equal_turn_again_is_fine(store: ConversationStore) -> None:
    """A client that repeats itself is answered alike, and the turn is there once."""
    assert await store.put("message", asked("m1"))
    assert await store.put("message", asked("m1"))
    assert await ids(store, "m2") == ["m1"]


@pytest.mark.parametrize(
    "other",
    [
        asked("m1", content="другое"),
        asked("m1", chat_id="c2"),
        asked("m1", chat_id=None),
        Turn(message_id="m1", role="assistant", content="你好", chat_id="c1", user_id="u1"),
        Turn(message_id="m1", role="user", content="你好", chat_id="c1", user_id="u2"),
        replace(asked("m1"), data={}),
    ],
    ids=["content", "chat", "no chat", "role", "user", "data"],
)
async def test_a_taken_id_is_refused(store: ConversationStore, other: Turn) -> None:
    """The first one stays."""
    assert await store.put("message", asked("m1"))
    assert not await store.put("message", other)
    assert await store.find("message", "m1") == asked("m1")


async def test_data_is_the_same_in_any_order_of_its_keys(store: ConversationStore) -> None:
    """One value that differs makes another turn, absent data too; what is stored stays."""
    assert await store.put("reply", replied("r1", "m1", data=DATA))
    assert await store.put("reply", replied("r1", "m1", data=dict(reversed(DATA.items()))))
    for other in (DATA | {"ok": False}, DATA | {"ok": 1}, None):
        assert not await store.put("reply", replied("r1", "m1", data=other))
    assert await store.find("message", "r1") == replied("r1", "m1", data=DATA)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"a": "x" * (TURN_DATA_BYTES - 8)}, ""),
        ({"a": "x" * (TURN_DATA_BYTES - 7)}, "data_too_large"),
        ({"a": "x\0"}, "text"),
        ({"a": ["\ud800"]}, "data_not_json"),
        ({"a": math.nan}, "data_not_json"),
        ({"a": (1, 2)}, "data_not_json"),
        ({1: "a"}, "data_not_json"),
    ],
    ids=["largest", "too large", "nul", "surrogate", "no number", "tuple", "key"],
)
async def test_data_is_plain_json_within_a_bound(
    store: ConversationStore, data: dict[str, Any], reason: str
) -> None:
    """What no store returns as it was, or what a history could not carry, is a fault."""
    turn = replied("r1", "m1", data=data)
    if not reason:
        assert await store.put("reply", turn)
        assert await store.find("message", "r1") == turn
        return
    with pytest.raises(EffectFailed) as failed:
        await store.put("reply", turn)
    assert (failed.value.fault.code, failed.value.fault.data["reason"]) == ("store_failed", reason)
    assert await store.find("message", "r1") is None


async def test_of_two_that_want_an_id_one_gets_it(store: ConversationStore) -> None:
    """Also when they ask together."""
    rivals = [asked("m1", content=str(number)) for number in range(8)]
    answers = await asyncio.gather(*(store.put("message", turn) for turn in rivals))
    kept = await store.find("message", "m1")
    assert sum(answers) == 1
    assert kept == rivals[answers.index(True)]


async def test_history_is_what_came_before_oldest_first(store: ConversationStore) -> None:
    """The message itself, what came after it and other chats are no part of it."""
    for turn in (asked("m1"), replied("r1", "m1"), asked("x", chat_id="c2"), asked("m2")):
        assert await store.put("message", turn)
    assert await store.put("reply", replied("r2", "m2"))
    assert await ids(store, "m1") == []
    assert await ids(store, "m2") == ["m1", "r1"]
    assert await ids(store, "not stored") == ["m1", "r1", "m2", "r2"]
    assert await ids(store, "m2", chat="unknown") == []


async def test_history_keeps_the_most_recent(store: ConversationStore) -> None:
    """`limit` cuts at the old end; none or fewer than none is nothing."""
    for number in range(5):
        assert await store.put("message", asked(f"m{number}"))
    assert await ids(store, "m4", limit=2) == ["m2", "m3"]
    assert await ids(store, "m4", limit=0) == []
    assert await ids(store, "m4", limit=-1) == []


async def test_of_several_replies_the_newest_is_kept(store: ConversationStore) -> None:
    """A reply made again replaces the one before it, and does not use up the limit."""
    for turn in (asked("m1"), replied("r1", "m1"), replied("r1b", "m1"), replied("r1c", "m1")):
        assert await store.put("message", turn)
    assert await store.put("message", asked("m2"))
    assert await store.put("reply", replied("r1d", "m1"))
    assert await ids(store, "m2") == ["m1", "r1c"]
    assert await ids(store, "m2", limit=2) == ["m1", "r1c"]
    assert await ids(store, "m3") == ["m1", "m2", "r1d"]


async def test_a_user_answering_a_message_is_no_reply_made_again(store: ConversationStore) -> None:
    """Only the assistant's replies replace each other."""
    for number in range(2):
        turn = Turn(message_id=f"q{number}", role="user", content="?", chat_id="c1", reply_to="m1")
        assert await store.put("message", turn)
    assert await ids(store, "later") == ["q0", "q1"]


@pytest.mark.parametrize("hostile", ["a\0b", "\ud800", "语\udfff"], ids=["nul", "high", "low"])
async def test_text_no_store_can_keep_is_a_fault(store: ConversationStore, hostile: str) -> None:
    """It never reaches the store, in no field, and the fault does not repeat it."""
    calls = (
        store.put("message", asked(hostile)),
        store.put("message", asked("m1", content=hostile)),
        store.put("message", asked("m1", chat_id=hostile)),
        store.find("message", hostile),
        store.history("history", hostile, before="m1", limit=5),
        store.history("history", "c1", before=hostile, limit=5),
    )
    for call in calls:
        with pytest.raises(EffectFailed) as failed:
            await call
        assert failed.value.fault.code == "store_failed"
        assert not failed.value.fault.retryable
    assert await store.find("message", "m1") is None


async def test_many_at_once_are_all_stored(store: ConversationStore) -> None:
    """A hundred exchanges write together and none is lost."""
    wanted = {f"m{number}" for number in range(100)}
    answers = await asyncio.gather(*(store.put("message", asked(one)) for one in wanted))
    assert all(answers)
    assert set(await ids(store, "later", limit=1_000)) == wanted


async def test_ids_are_a_flows_own(store: ConversationStore) -> None:
    """The same ids in another flow are another message in another chat."""
    chat, session = store.of("chat"), store.of("session")
    for flow, content in ((chat, "hers"), (session, "his")):
        assert await flow.put("message", asked("m1", content))
        assert await flow.put("reply", replied(f"r {content}", "m1"))
    for flow, content in ((chat, "hers"), (session, "his")):
        assert await flow.find("message", "m1") == asked("m1", content)
        assert await ids(flow, "m2") == ["m1", f"r {content}"]
        assert await ids(flow, f"r {content}") == ["m1"]
    assert await chat.find("message", "r his") is None
    assert await store.of("companion").find("message", "m1") is None
    assert await ids(store, "m2") == []


async def test_turns_without_a_flow_are_seen_by_every_flow(store: ConversationStore) -> None:
    """As they were stored before flows had name spaces; their ids stay taken."""
    assert await store.put("message", asked("m1"))
    assert await store.put("reply", replied("r1", "m1"))
    chat, session = store.of("chat"), store.of("session")
    assert await chat.put("message", asked("m1"))
    assert not await chat.put("message", asked("m1", "other"))
    assert await chat.put("reply", replied("r1b", "m1"))
    assert await session.put("message", asked("m2"))
    assert await chat.find("message", "r1") == replied("r1", "m1")
    assert await ids(chat, "later") == ["m1", "r1b"]
    assert await ids(session, "later") == ["m1", "r1", "m2"]
    assert await ids(session, "m2") == ["m1", "r1"]


@pytest.mark.parametrize("store", ERASABLE, indirect=True)
@pytest.mark.parametrize(
    ("subject", "turns", "stays"),
    [
        (DataSubject("chat", "c1", "chat"), 3, ["m1", "r1"]),
        (DataSubject("chat", "c1"), 5, []),
        (DataSubject("message", "m1", "chat"), 2, ["m1", "r1"]),
        (DataSubject("message", "m1"), 4, []),
        (DataSubject("user", "u1"), 5, []),
        (DataSubject("user", "u2"), 0, ["m1", "r1"]),
        (DataSubject("chat", "c2", "chat"), 0, ["m1", "r1"]),
    ],
)
async def test_a_flow_is_erased_alone(
    store: MemoryConversations | SqlConversations,
    subject: DataSubject,
    turns: int,
    stays: list[str],
) -> None:
    """Where it is named; a reply goes with the message of its own flow."""
    for name in ("chat", "session"):
        assert await store.of(name).put("message", asked("m1"))
        assert await store.of(name).put("reply", replied("r1", "m1"))
    assert await store.put("message", asked("old"))
    erased = await store.erase(subject)
    assert erased.turns == turns
    assert {one.chat_id for one in erased.chats} == ({"c1"} if turns else set())
    assert [one for one in ("m1", "r1") if await store.of("session").find("", one)] == stays
