"""How a reply ends: notices, stored or not, and the terminal frames."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from contract.errors import Fault
from contract.flows.chat import ChatOptions, ChatRequest
from contract.model import Chunk, ToolCallDelta, Usage
from contract.stores import Turn
from effects.local import START
from effects.model import Fail, Step
from rules.chat import TEXTS, lock_key
from tests.support.flow_runs import Case, Played, play

pytestmark = pytest.mark.virtual

BODY = ChatRequest(message_id="m", content="hi", chat_id="c", user_id="u", user_name="N")
USAGE = Chunk(usage=Usage(3, 4, 7))
EXTENDED = ChatOptions(wire="extended")
FILTERED, CUT = TEXTS["content_filter"], TEXTS["length"]
HALF = Chunk(tool_calls=(ToolCallDelta(0, "c", "dice", '{"si'),))
STUCK = Chunk(tool_calls=(ToolCallDelta(0, "c", "stuck", "{}"),))


def reply(played: Played) -> Turn | None:
    """Find the stored reply."""
    stored = [turn for turn in played.world.conversations.turns if turn.role == "assistant"]
    return stored[0] if stored else None


@pytest.mark.parametrize(
    ("finish", "before", "texts", "sends"),
    [
        ("content_filter", (Chunk(text="so far"),), {}, ["so far", f"so far{FILTERED}"]),
        ("length", (Chunk(text="so far"),), {}, ["so far", f"so far{CUT}"]),
        # Notices can be worded anew by their name in the options, and left out.
        ("length", (Chunk(text="x"),), {"length": "…"}, ["x", "x…"]),
        ("length", (Chunk(text="x"),), {"length": ""}, ["x"]),
        # Without text the notice is the first text, and the only one.
        ("content_filter", (), {}, [FILTERED]),
        # A call that was cut in half is not run: no feedback, no second round.
        ("content_filter", (Chunk(text="t"), HALF), {}, ["t", f"t{FILTERED}"]),
        ("length", (Chunk(text="t"), HALF), {}, ["t", f"t{CUT}"]),
        # An empty answer is a reply without a single SEND.
        ("stop", (), {}, []),
    ],
)
async def test_a_reply_ends(
    stack: str, finish: str, before: tuple[Step, ...], texts: dict[str, str], sends: list[str]
) -> None:
    """The user sees its notice once, SUCCESS holds it, the store has it."""
    case = Case(
        BODY,
        ChatOptions(texts=texts),
        ((*before, Chunk(finish=finish), USAGE),),
        tools={"dice": "4"},
    )
    played = await play(stack, case)
    whole = sends[-1] if sends else ""
    assert played.sends == [(0.0, text, "") for text in sends]
    assert played.events[-2:] == [{"step": "SUCCESS", "content": whole}, {"step": "END"}]
    steps = [event["step"] for event in played.events]
    assert steps == ["ACCEPT", "START_REPLY", *["SEND"] * len(sends), "SUCCESS", "END"]
    stored = reply(played)
    assert stored is not None
    assert stored.content == whole
    assert played.world.tools.calls == []
    assert played.world.count("model.stream") == 1


async def test_a_whole_reply_is_stored_under_a_fresh_id(stack: str) -> None:
    """With the chat and user of the question, and what it replies to; the stream is read past it.

    The usage that comes after the finish reason is on the tape.
    """
    played = await play(stack, Case(BODY, answers=((Chunk(text="yes", finish="stop"), USAGE),)))
    question, _ = played.world.conversations.turns
    assert question == Turn(
        message_id="m",
        role="user",
        content="hi",
        chat_id="c",
        user_id="u",
        user_name="N",
        at=int(START.timestamp()),
    )
    assert reply(played) == Turn(
        message_id="id-1",
        role="assistant",
        content="yes",
        chat_id="c",
        user_id="u",
        reply_to="m",
        at=int(START.timestamp()),
    )
    assert lock_key("m") == "msg_lock:m"  # the name is shared by a fleet
    assert await played.world.locks.acquire("x", lock_key("m"), 1)
    stream = next(entry for entry in played.tape if entry.op == "stream")
    assert b'"total_tokens":7' in bytes(stream.items[-1])
    assert stream.end == "complete"


@pytest.mark.parametrize("at", [0, 1])
async def test_a_broken_reply_is_not_stored(stack: str, at: int) -> None:
    """The question is; the lock is free again; FAILED has its code on the extended wire alone."""
    steps: tuple[Step, ...] = (*(Chunk(text="half"),)[:at], Fail(Fault("model_rate_limited")))
    for options, failed in (
        (ChatOptions(), {"step": "FAILED"}),
        (EXTENDED, {"step": "FAILED", "code": "model_rate_limited"}),
    ):
        played = await play(stack, Case(BODY, options, (steps,)))
        assert played.events[-2:] == [failed, {"step": "END"}]
        assert [turn.role for turn in played.world.conversations.turns] == ["user"]
        assert await played.world.locks.acquire("again", lock_key("m"), 1)
        assert played.ended == ("failed", "model_rate_limited", None)


@dataclass(frozen=True)
class Broken:
    """A case, the code its stream fails with, the frames before FAILED, the calls of the model."""

    case: Case
    code: str
    before: tuple[str, ...]
    calls: int


BROKEN = {
    # After all its text was seen; never SUCCESS first.
    "the reply cannot be stored": Broken(
        Case(
            BODY,
            EXTENDED,
            ((Chunk(text="a"), Chunk(finish="length")),),
            store_fails={"reply": Fault("store_failed")},
        ),
        "store_failed",
        ("ACCEPT", "START_REPLY", "SEND", "SEND"),
        1,
    ),
    "the store breaks after ACCEPT": Broken(
        Case(BODY, EXTENDED, store_fails={"history": Fault("store_unavailable")}),
        "store_unavailable",
        ("ACCEPT", "START_REPLY"),
        0,
    ),
    # A tool port that breaks, unlike a tool that answers with an error, ends the reply.
    "a tool exceeds its deadline": Broken(
        Case(
            BODY,
            EXTENDED,
            ((Chunk(text="t"), STUCK, Chunk(finish="tool_calls")),),
            tools={"stuck": "never"},
            slow={"stuck": 99.0},
        ),
        "deadline",
        ("ACCEPT", "START_REPLY", "SEND", "SEND"),
        1,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_fault_ends_the_stream(stack: str, name: str) -> None:
    """By FAILED with its code, and END."""
    broken = BROKEN[name]
    played = await play(stack, broken.case)
    steps = [event["step"] for event in played.events]
    assert steps == [*broken.before, "FAILED", "END"]
    assert played.events[-2] == {"step": "FAILED", "code": broken.code}
    assert played.world.count("model.stream") == broken.calls
    if broken.code == "deadline":
        assert played.sends == [(0.0, "t", ""), (0.0, "t", "stuck running")]


async def test_a_store_that_breaks_before_accept_gives_no_frame(stack: str) -> None:
    """It is the world's fault, with the fault's code."""
    played = await play(stack, Case(BODY, store_fails={"message": Fault("store_unavailable")}))
    assert played.frames == []
    assert played.ended == ("failed", "store_unavailable", None)
