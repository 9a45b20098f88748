"""How a reply ends: notices, stored or not, and the terminal frames."""

import pytest

from contract.errors import Fault
from contract.flows.chat import ChatOptions, ChatRequest
from contract.model import Chunk, ToolCallDelta, Usage
from contract.stores import Turn
from effects.model import Fail, Step
from rules.chat import lock_key
from rules.prompts import DEFAULTS
from tests.flows.playing import Case, Played, play

pytestmark = pytest.mark.virtual

BODY = ChatRequest(message_id="m", content="hi", chat_id="c", user_id="u", user_name="N")
USAGE = Chunk(usage=Usage(3, 4, 7))
EXTENDED = ChatOptions(wire="extended")


def ends(finish: str, *before: Step, options: ChatOptions | None = None) -> Case:
    """Build a case whose one answer ends by `finish`."""
    return Case(BODY, options or ChatOptions(), ((*before, Chunk(finish=finish), USAGE),))


def reply(played: Played) -> Turn | None:
    """Find the stored reply."""
    stored = [turn for turn in played.world.conversations.turns if turn.role == "assistant"]
    return stored[0] if stored else None


@pytest.mark.parametrize("finish", ["content_filter", "length"])
async def test_the_notice_is_appended_once_sent_and_part_of_the_reply(
    stack: str, finish: str
) -> None:
    """The user sees it, SUCCESS holds it, the store keeps it."""
    notice = DEFAULTS[finish]
    played = await play(stack, ends(finish, Chunk(text="so far")))
    assert [text for _, text, _ in played.sends] == ["so far", f"so far{notice}"]
    assert played.events[-2] == {"step": "SUCCESS", "content": f"so far{notice}"}
    stored = reply(played)
    assert stored is not None
    assert stored.content == f"so far{notice}"


@pytest.mark.parametrize(("text", "shown"), [("…", "x…"), ("", "x")])
async def test_notices_can_be_worded_anew_and_left_out(stack: str, text: str, shown: str) -> None:
    """By their name in the options."""
    options = ChatOptions(texts={"length": text})
    played = await play(stack, ends("length", Chunk(text="x"), options=options))
    assert played.events[-2]["content"] == shown


async def test_a_filtered_answer_without_text_is_the_notice_alone(stack: str) -> None:
    """It is the first text, and the only one."""
    played = await play(stack, ends("content_filter"))
    assert [text for _, text, _ in played.sends] == [DEFAULTS["content_filter"]]


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_a_call_cut_in_half_is_not_run(stack: str, finish: str) -> None:
    """The reply ends with the notice; no feedback, no second round."""
    half = Chunk(tool_calls=(ToolCallDelta(0, "c", "dice", '{"si'),))
    case = Case(BODY, answers=((Chunk(text="t"), half, Chunk(finish=finish)),), tools={"dice": "4"})
    played = await play(stack, case)
    assert played.events[-2]["content"] == "t" + DEFAULTS[finish]
    assert played.world.tools.calls == []
    assert played.world.count("model.stream") == 1


async def test_an_empty_answer_is_a_reply(stack: str) -> None:
    """Success without a single SEND."""
    played = await play(stack, ends("stop"))
    assert [event["step"] for event in played.events] == [
        "ACCEPT",
        "START_REPLY",
        "SUCCESS",
        "END",
    ]


async def test_a_whole_reply_is_stored_under_a_fresh_id(stack: str) -> None:
    """With the chat and user of the question, and what it replies to."""
    played = await play(stack, ends("stop", Chunk(text="yes")))
    assert reply(played) == Turn(
        message_id="id-1",
        role="assistant",
        content="yes",
        chat_id="c",
        user_id="u",
        reply_to="m",
    )
    assert await played.world.locks.acquire("x", lock_key("other"), 1) is not None


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


async def test_a_reply_that_cannot_be_stored_fails(stack: str) -> None:
    """After all its text was seen; never SUCCESS first."""
    case = Case(
        BODY,
        EXTENDED,
        ((Chunk(text="a"), Chunk(finish="length")),),
        store_fails={"reply": Fault("store_failed")},
    )
    played = await play(stack, case)
    steps = [event["step"] for event in played.events]
    assert steps == ["ACCEPT", "START_REPLY", "SEND", "SEND", "FAILED", "END"]
    assert played.events[-2] == {"step": "FAILED", "code": "store_failed"}


async def test_a_store_that_breaks_after_accept_fails_the_stream(stack: str) -> None:
    """The prologue is out: the stream ends by FAILED and END."""
    played = await play(
        stack, Case(BODY, EXTENDED, store_fails={"history": Fault("store_unavailable")})
    )
    assert [event["step"] for event in played.events] == ["ACCEPT", "START_REPLY", "FAILED", "END"]
    assert played.world.count("model.stream") == 0


async def test_a_store_that_breaks_before_accept_gives_no_frame(stack: str) -> None:
    """It is the world's fault, with the fault's code."""
    played = await play(stack, Case(BODY, store_fails={"message": Fault("store_unavailable")}))
    assert played.frames == []
    assert played.ended == ("failed", "store_unavailable", None)


async def test_a_tool_that_exceeds_its_deadline_fails_the_stream(stack: str) -> None:
    """A tool port that breaks, unlike a tool that answers with an error, ends the reply."""
    call = Chunk(tool_calls=(ToolCallDelta(0, "c", "stuck", "{}"),))
    case = Case(
        BODY,
        EXTENDED,
        ((Chunk(text="t"), call, Chunk(finish="tool_calls")),),
        tools={"stuck": "never"},
        slow={"stuck": 99.0},
    )
    played = await play(stack, case)
    assert played.events[-2] == {"step": "FAILED", "code": "deadline"}
    assert played.sends == [(0.0, "t", ""), (0.0, "t", "stuck running")]


async def test_the_stream_is_read_past_the_finish_reason(stack: str) -> None:
    """The usage that comes after the last choice is on the tape."""
    played = await play(stack, ends("stop", Chunk(text="x")))
    stream = next(entry for entry in played.tape if entry.op == "stream")
    assert b'"total_tokens":7' in bytes(stream.items[-1])
    assert stream.end == "complete"
