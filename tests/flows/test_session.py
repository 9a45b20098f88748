"""The session flow, told by both stacks: events, conversations, failures, refusals, operations."""

import itertools
from typing import Any

import msgspec
import pytest

from cutover.errors import Refused
from effects import conversations
from effects.world import current
from harness.builtin import OPERATIONS
from loadtests.simulator import Answer, FunctionCall
from tests.support.stage import STACKS, Stage, Told

pytestmark = pytest.mark.virtual

SYSTEM = {"role": "system", "content": "你是一个有用的助手。"}
FIRST, SECOND, THIRD = "我叫张三", "我叫什么？", "今天天气怎么样？"
ANSWERS = ("你好张三！", "你叫张三。", "我看不到天气。")


async def say(stage: Stage, name: str, message: str, session: str = "s", **more: Any) -> Told:
    """Say something in a session."""
    options = more.pop("options", {})
    body = {"message": message, "session_id": session, **more}
    return await stage.tell("session", stage.request("session", body, **options), [name])


def sent(stage: Stage) -> list[list[dict[str, Any]]]:
    """Return the messages of every question to the model."""
    return [one.body["messages"] for one in stage.sim.requests]


async def record(session: str = "s") -> list[tuple[str, str]]:
    """Return what is stored of a session."""
    return [(one.role, one.content) for one in await conversations.messages("session", session)]


async def thread(session: str = "s") -> dict[str, Any] | None:
    """Return the state that the graph's saver keeps of a session."""
    found = await current().threads.aget_tuple({"configurable": {"thread_id": session}})
    return None if found is None else dict(found.checkpoint["channel_values"])


@pytest.mark.parametrize("name", STACKS)
async def test_a_new_session_is_told_as_in_the_document(stage: Stage, name: str) -> None:
    """`session_created`, `thinking`, `text`, `done`, with the id under which the reply is kept."""
    stage.sim.script([Answer(text=ANSWERS[0], pieces=("你好", "张三！"))])
    told = await stage.tell("session", stage.request("session", {"message": FIRST}), [name])
    session = told.events[0][1]["data"]["session_id"]
    question, reply = await conversations.messages("session", session)
    assert [data for _, data in told.events] == [
        {"type": "session_created", "data": {"session_id": session}},
        {"type": "thinking", "data": {"status": "processing"}},
        {"type": "text", "data": {"content": "你好"}},
        {"type": "text", "data": {"content": "张三！"}},
        {
            "type": "done",
            "data": {
                "final_message": {"id": reply.id, "role": "assistant", "content": ANSWERS[0]},
                "usage": told.events[-1][1]["data"]["usage"],
            },
        },
    ]
    assert (question.content, reply.content) == (FIRST, ANSWERS[0])
    await stage.checked(told)


@pytest.mark.parametrize("name", STACKS)
async def test_three_turns_ask_as_in_the_document(stage: Stage, name: str) -> None:
    """The system prompt is sent every time and stored never; what was said stands between."""
    stage.sim.script([Answer(text=one) for one in ANSWERS])
    told = [await say(stage, name, one) for one in (FIRST, SECOND, THIRD)]
    said = [
        {"role": role, "content": content}
        for pair in zip((FIRST, SECOND, THIRD), ANSWERS, strict=True)
        for role, content in zip(("user", "assistant"), pair, strict=True)
    ]
    assert sent(stage) == [[SYSTEM, *said[:count]] for count in (1, 3, 5)]
    assert await record() == [(one["role"], one["content"]) for one in said]
    created = ["session_created" in str(one.events) for one in told]
    assert created == [True, False, False]
    for one in told:
        await stage.checked(one)


TURNS = ("一", "二", "三", "四", "五", "六")


@pytest.mark.slow
async def test_a_conversation_changes_stacks_at_any_turn(stage: Stage) -> None:
    """Whichever stacks answer its turns, none of these is lost or doubled, in record or thread."""
    expected = [entry for turn in TURNS for entry in (("user", turn), ("assistant", f"第{turn}"))]
    for order in itertools.product(STACKS, repeat=len(TURNS)):
        if order.count("graph") not in {2, 3}:  # 35 orders: enough, and half the time
            continue
        session = "-".join(order)
        before = len(stage.sim.requests)
        stage.sim.script([Answer(text=f"第{one}") for one in TURNS])
        for name, turn in zip(order, TURNS, strict=True):
            await say(stage, name, turn, session)
        assert await record(session) == expected
        asked = sent(stage)[before:]
        assert [[m["content"] for m in one[1:]] for one in asked] == [
            [content for _, content in expected[: 2 * turn + 1]] for turn in range(len(TURNS))
        ]
        kept = await thread(session)
        assert kept is not None
        last = len(order) - order[::-1].index("graph")
        assert [one.content for one in kept["messages"]] == [one[1] for one in expected[: 2 * last]]


TOOLS = (
    Answer(text="Let me see. ", tool_calls=(FunctionCall("calculate", '{"expression":"1+1"}'),)),
    Answer(tool_calls=(FunctionCall("calculate", '{"expression'), FunctionCall("nothing", "{}"))),
    Answer(text="It is 2.", reasoning="Two."),
)


@pytest.mark.parametrize("name", STACKS)
async def test_rounds_and_reasoning_leave_no_events(stage: Stage, name: str) -> None:
    """The texts of all rounds are one answer, and the usage is the sum over the rounds."""
    stage.sim.script(TOOLS)
    told = await say(stage, name, "1+1?")
    assert {data["type"] for _, data in told.events[2:-1]} == {"text"}
    done = told.events[-1][1]["data"]
    assert done["final_message"]["content"] == "Let me see. It is 2."
    tools = [one["content"] for one in sent(stage)[2] if one["role"] == "tool"]
    assert tools == ["2", "Error: bad_arguments", "Error: unknown_tool"]
    alone = []
    for count in (1, 2, 3):
        stage.sim.script(TOOLS[-1:])
        alone.append((await say(stage, name, "1+1?", f"alone-{count}")).events[-1][1]["data"])
    assert done["usage"]["total_tokens"] > alone[0]["usage"]["total_tokens"]
    assert done["usage"]["total_tokens"] == sum(
        done["usage"][one] for one in ("prompt_tokens", "completion_tokens")
    )
    assert await record() == [("user", "1+1?"), ("assistant", "Let me see. It is 2.")]
    kept = await thread()
    if name == "graph":
        assert kept is not None
        assert [(one.type, one.content) for one in kept["messages"]] == [
            ("human", "1+1?"),
            ("ai", "Let me see. It is 2."),
        ]
        assert kept["rounds"] == kept["recalled_memories"] == []
    await stage.checked(told)


@pytest.mark.parametrize("name", STACKS)
async def test_rounds_are_limited(stage: Stage, name: str) -> None:
    """After ten rounds no tool may be called, and what is said then is the answer."""
    again = Answer(tool_calls=(FunctionCall("calculate", '{"expression":"1+1"}'),))
    stage.sim.script([*itertools.repeat(again, 10), Answer(text="2")])
    told = await say(stage, name, "1+1?")
    assert told.events[-1][1]["data"]["final_message"]["content"] == "2"
    choices = [one.body["tool_choice"] for one in stage.sim.requests]
    assert choices == ["auto"] * 10 + ["none"]
    await stage.checked(told)


def _chunk(text: str, usage: dict[str, int], finish: str | None = None) -> str:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [choice], "usage": usage}
    return f"data: {msgspec.json.encode(chunk).decode()}\n\n"


@pytest.mark.parametrize("name", STACKS)
async def test_usage_on_each_chunk_counts_once(stage: Stage, name: str) -> None:
    """Some servers send the tokens so far with each chunk, and leave the total out."""
    so_far = [{"prompt_tokens": 5, "completion_tokens": count} for count in (1, 2)]
    raw = _chunk("a", so_far[0]) + _chunk("b", so_far[1], "stop") + "data: [DONE]\n\n"
    stage.sim.script([Answer(raw=raw)])
    told = await say(stage, name, "Hi")
    usage = told.events[-1][1]["data"]["usage"]
    assert usage == {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    await stage.checked(told)


ODD = ("{{ 7*7 }} {x} {% if %}", "a\r\nb\tc 　", "<b>&amp;\u200b", "👩‍👩‍👧 e\u0301", '"\\\u2028')


@pytest.mark.parametrize("text", ODD)
async def test_odd_text_is_asked_and_told_alike(stage: Stage, text: str) -> None:
    """What is said is never read as a template, and goes through both stacks unchanged."""
    stage.sim.script([Answer(text=text, pieces=tuple(text)), Answer(text="ok")])
    options = {"system_prompt": text, "texts": {"memories": f"\n{text}\n"}}
    told = await say(stage, "legacy", text, options=options)
    then = await say(stage, "graph", text, options=options)
    assert told.events[-1][1]["data"]["final_message"]["content"] == text
    assert sent(stage)[-1] == [
        {"role": "system", "content": text},
        *({"role": role, "content": text} for role in ("user", "assistant", "user")),
    ]
    await stage.checked(told)
    await stage.checked(then)


@pytest.mark.parametrize("name", STACKS)
async def test_only_as_much_is_shown_as_the_budget_holds(stage: Stage, name: str) -> None:
    """The oldest turns go first; the message itself always stays."""
    stage.sim.script([Answer(text="二" * 4), Answer(text="四"), Answer(text="六")])
    for message in ("一" * 4, "三", "五" * 40):
        await say(stage, name, message, options={"history_tokens": 6})
    assert [one["content"] for one in sent(stage)[-1][1:]] == ["二" * 4, "三", "四", "五" * 40]


@pytest.mark.parametrize("name", STACKS)
async def test_an_unknown_session_is_refused_where_that_is_asked(stage: Stage, name: str) -> None:
    """`unknown_session = "refuse"`: 404, nothing stored; without an id a session still begins."""
    refuse = {"unknown_session": "refuse"}
    told = await say(stage, name, "Hi", options=refuse)
    assert told.refusal == (404, "unknown_session")
    assert await record() == []
    await stage.checked(told)
    begun = await stage.tell(
        "session", stage.request("session", {"message": "Hi"}, **refuse), [name]
    )
    session = begun.events[0][1]["data"]["session_id"]
    assert (await say(stage, name, "More", session, options=refuse)).error is None


@pytest.mark.parametrize("name", STACKS)
async def test_a_model_that_is_missing_stores_nothing(stage: Stage, name: str) -> None:
    """The request fails before any event, and leaves no turn behind."""
    current().models.swap(())
    told = await say(stage, name, "Hi")
    assert told.frames == []
    assert getattr(told.error, "code", None) == "unknown_model"
    assert await record() == []


async def test_shadows_write_nothing_to_the_thread(stage: Stage) -> None:
    """A graph that plays has a saver of its own."""
    told = await say(stage, "legacy", "Hi")
    await stage.checked(told)
    assert await thread() is None


async def test_no_answer_depends_on_the_saver(stage: Stage) -> None:
    """A saver that fails loses the thread, and a thread that differs does not count."""
    await say(stage, "graph", "Hi")
    saver: Any = current().threads  # as if its file were damaged
    await saver.conn.execute("DROP TABLE writes")
    await saver.conn.execute("DROP TABLE checkpoints")
    told = await say(stage, "graph", "Still there?")
    assert told.events[-1][1]["type"] == "done"
    assert len(sent(stage)[-1]) == 4


async def test_a_session_is_read_and_deleted(stage: Stage) -> None:
    """Both refuse a session that is not stored; a deleted one leaves neither turns nor thread."""
    stage.sim.script([Answer(text="Hello")])
    told = await say(stage, "graph", "Hi", user_id="u", options={"extract_from": 2})
    reply = told.events[-1][1]["data"]["final_message"]["id"]
    read, remove = OPERATIONS["session.messages"], OPERATIONS["session.delete"]
    found = msgspec.to_builtins(await read({"session_id": "s"}, None))
    assert found["session_id"] == "s"
    assert [one["content"] for one in found["messages"]] == ["Hi", "Hello"]
    assert found["messages"][1] == {"id": reply, "role": "assistant", "content": "Hello"}
    assert await remove({"session_id": "s"}, None) is None
    assert await record() == []
    assert await thread() is None
    assert await current().memory.asearch(("readings",)) == []
    for perform in (read, remove):
        with pytest.raises(Refused, match="unknown_session"):
            await perform({"session_id": "s"}, None)
