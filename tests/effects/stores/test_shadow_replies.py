"""A shadow's own conversations: its own replies in place of the served ones."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from contract import operations as ops
from contract.model import NoArguments
from contract.records import OwnHistory
from contract.stores import (
    ChatKey,
    FindTurn,
    FoundTurn,
    FoundTurns,
    PutTurn,
    ReadHistory,
    StoredTurn,
    Turn,
)
from effects.stores import MemoryConversations
from effects.stores.shadow_replies import ReplyLimits, ShadowConversation, ShadowReplies
from tests.support.records import a_reply

EVERYTHING = 1_000
CHAT = ChatKey("", "c")


def said(number: int, chat: str = "c") -> Turn:
    """Make a user's turn."""
    return Turn(message_id=f"u{number}", role="user", content=f"{number}?", chat_id=chat)


def put(side: ShadowConversation, turn: Turn) -> None:
    """Store a turn there, and here."""
    assert side.result(ops.TURN_PUT, PutTurn(turn), StoredTurn(ok=True)) == StoredTurn(ok=True)


def history(
    side: ShadowConversation, served: Sequence[Turn], limit: int = EVERYTHING, chat: str = "c"
) -> list[str]:
    """Tell what a side is told where these turns were served."""
    told = side.result(ops.TURN_HISTORY, ReadHistory(chat, "now", limit), FoundTurns(tuple(served)))
    return [turn.content for turn in told.turns]


turns = st.tuples(
    st.sampled_from(["a", "b", "c"]),  # the session
    st.sampled_from(["legacy", "graph"]),  # who is in the shadow
    st.sampled_from(["", "x", "y"]),  # what was served
    st.sampled_from(["", "x", "z"]),  # what the shadow answered
)


@given(st.lists(turns, max_size=30), st.integers(0, 8))
async def test_it_is_what_a_plain_store_of_its_own_would_be(
    steps: list[tuple[str, str, str, str]], limit: int
) -> None:
    """Any interleaving of sessions, stacks and answers: what was said, with its own replies."""
    served, replies = MemoryConversations(), ShadowReplies()
    plain: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for number, (chat, stack, theirs, mine) in enumerate(steps):
        question, before = (
            said(number, chat),
            await served.history("s", chat, before="", limit=limit),
        )
        side = replies.of(stack)
        for one in ("legacy", "graph"):
            plain.setdefault((one, chat), [])
        expected = [
            part
            for asked, answered, own in plain[stack, chat]
            for part in (asked, own or answered)
            if part
        ]
        told = history(side, before, limit, chat)
        assert told == expected[-limit:] if limit else not told
        await served.put("s", question)
        put(side, question)
        if theirs:
            await served.put("s", a_reply(number, theirs, chat))
        if mine:
            put(side, a_reply(number, mine, chat))
        for one in ("legacy", "graph"):
            own = mine if one == stack else ""
            plain[one, chat].append((question.content, theirs, own))


def test_the_record_says_whose_replies_were_told() -> None:
    """Its own, those among them that say something else, and the served ones, each once."""
    replies = ShadowReplies()
    before = replies.of("graph")
    put(before, a_reply(2, "red"))
    put(before, a_reply(3, "blue"))
    side = replies.of("graph")
    served = [part for n in range(1, 4) for part in (said(n), a_reply(n, "red"))]
    for _ in range(2):
        assert history(side, served) == ["1?", "red", "2?", "red", "3?", "blue"]
    assert side.read == OwnHistory(own=2, other=1, served=1)
    assert replies.of("graph").read == OwnHistory()


def test_a_reply_nobody_was_served_stands_behind_its_message() -> None:
    """Where the served stack failed, a conversation of one's own goes on."""
    replies = ShadowReplies()
    put(replies.of("graph"), a_reply(1, "mine"))
    side = replies.of("graph")
    assert history(side, [said(1), said(2)]) == ["1?", "mine", "2?"]
    assert history(side, [said(1), said(2)], limit=1) == ["2?"]
    assert side.read == OwnHistory(own=1, other=1)


def test_a_reply_that_is_looked_up_is_its_own() -> None:
    """By its id; what users wrote, and an unknown id, stays as it is."""
    replies = ShadowReplies()
    side = replies.of("graph")
    put(side, a_reply(1, "mine"))
    for turn, found in ((a_reply(1, "red"), "mine"), (said(1), "1?"), (a_reply(2, "red"), "red")):
        told = side.result(ops.TURN_FIND, FindTurn(turn.message_id), FoundTurn(turn))
        assert told.turn.content == found
    assert side.result(ops.TURN_FIND, FindTurn("x"), FoundTurn()) == FoundTurn()


def test_a_reply_to_nothing_stands_for_its_own_id() -> None:
    """As some services keep them."""
    replies = ShadowReplies()
    loose = Turn(message_id="r", role="assistant", content="mine", chat_id="c")
    put(replies.of("graph"), loose)
    served = Turn(message_id="r", role="assistant", content="theirs", chat_id="c")
    assert history(replies.of("graph"), [served]) == ["mine"]


def test_other_calls_are_as_they_are() -> None:
    """What a tool, a memory or a clock says is on the tape."""
    side = ShadowReplies().of("graph")
    answer = StoredTurn(ok=False)
    assert side.result(ops.CLOCK_NOW, NoArguments(), answer) is answer


def test_what_belongs_to_no_chat_is_not_kept() -> None:
    """Nor what users say: the served store has that."""
    replies = ShadowReplies()
    put(replies.of("graph"), Turn(message_id="r", role="assistant", content="mine"))
    put(replies.of("graph"), said(1))
    assert not replies.chats
    assert replies.size == 0


def test_what_is_kept_at_most_is_as_documented() -> None:
    """A thousand conversations, a hundred replies of each, 16 MiB."""
    assert ReplyLimits() == ReplyLimits(sessions=1_000, replies=100, size=16 * 1_048_576)


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 3_000), st.booleans()),
        max_size=60,
    )
)
def test_what_is_kept_is_bounded(
    puts: list[tuple[int, int, int, bool]],
) -> None:
    """Conversations, replies of each, bytes: whatever is written, in whatever order."""
    most = ReplyLimits(sessions=3, replies=2, size=5_000)
    replies = ShadowReplies(most)
    for chat, number, length, forgotten in puts:
        side = replies.of("graph")
        put(side, a_reply(number, "x" * length, f"c{chat}"))
        if forgotten:
            replies.forget(ChatKey("", f"c{chat}"))
        kept = [replies.read(("graph", one)) for one in replies.chats]
        assert len(kept) <= most.sessions
        assert all(0 < len(one) <= most.replies for one in kept)
        there = sum(512 + len(turn.content) for one in kept for turn in one.values())
        assert replies.size == there <= most.size


def test_those_go_first_that_nobody_reads() -> None:
    """And of one conversation the oldest replies; they are told as they were served."""
    replies = ShadowReplies(ReplyLimits(sessions=2, replies=2))
    for chat in ("a", "b"):
        put(replies.of("graph"), a_reply(1, "mine", chat))
    history(replies.of("graph"), [], chat="a")
    put(replies.of("graph"), a_reply(1, "mine", "c"))
    assert {chat for _, chat in replies.chats} == {"a", "c"}
    for number in (2, 3):
        put(replies.of("graph"), a_reply(number, "mine", "c"))
    side = replies.of("graph")
    served = [a_reply(number, "theirs", "c") for number in (1, 2, 3)]
    assert history(side, served, chat="c") == ["theirs", "mine", "mine"]
    assert side.read.served == 1


def test_what_is_too_large_is_not_kept() -> None:
    """A reply beyond all there may be takes nothing with it but what was there."""
    replies = ShadowReplies(ReplyLimits(size=1_000))
    put(replies.of("graph"), a_reply(1, "x" * 2_000))
    assert not replies.chats
    assert replies.size == 0


def test_forgotten_it_is_gone_for_all_who_are_under_way() -> None:
    """Of every stack; who begins later may keep what they say."""
    replies = ShadowReplies()
    early = replies.of("graph")
    for stack in ("legacy", "graph"):
        put(replies.of(stack), a_reply(1, "mine"))
        put(replies.of(stack), a_reply(1, "mine", "other"))
    replies.forget(CHAT)
    assert {chat for _, chat in replies.chats} == {"other"}
    put(early, a_reply(2, "mine"))
    assert {chat for _, chat in replies.chats} == {"other"}
    put(replies.of("graph"), a_reply(2, "mine"))
    assert {chat for _, chat in replies.chats} == {"other", "c"}


def test_only_replies_to_messages_that_are_known_are_retained() -> None:
    """What the store has forgotten goes here, too."""
    replies = ShadowReplies()
    for number in (1, 2):
        put(replies.of("graph"), a_reply(number, "mine"))
        put(replies.of("legacy"), a_reply(number, "mine"))
    replies.retain(CHAT, {"u2"})
    for stack in ("graph", "legacy"):
        assert set(replies.read((stack, CHAT))) == {"u2"}
    replies.retain(CHAT, ())
    assert not replies.chats
    assert replies.size == 0


def test_a_chat_is_its_flows_own() -> None:
    """Another flow's conversation of the same id has replies of its own."""
    replies = ShadowReplies()
    put(replies.of("graph", "chat"), a_reply(1, "mine"))
    put(replies.of("graph", "session"), a_reply(1, "other"))
    assert history(replies.of("graph", "chat"), [said(1)]) == ["1?", "mine"]
    replies.forget(ChatKey("chat", "c"))
    assert replies.chats == (ChatKey("session", "c"),)
    assert history(replies.of("graph", "session"), [said(1)]) == ["1?", "other"]
