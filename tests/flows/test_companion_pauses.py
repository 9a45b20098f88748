"""Questions of the companion flow: asked, answered, and continued by any pair of stacks."""

import asyncio
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from cutover.errors import Completed, Failed, Refused
from effects import builtin_tools, conversations
from effects.memory import Memory, memories, namespace
from effects.tools import Tools, tool
from effects.world import use
from harness import root
from harness.builtin import OPERATIONS
from harness.config import Settings
from harness.live import LiveSettings
from loadtests.simulator import Answer, FunctionCall
from router.driver import Candidate
from rules.flows.companion import RespondRequest
from tests.flows.samples import PICTURE
from tests.support.stage import HOWS, STACKS, Stage, Told, breaking, forgetting, staged

pytestmark = pytest.mark.virtual

PAIRS = [(first, second) for first in STACKS for second in STACKS]
DONE = ("done", {"status": "completed"})
UNKNOWN = "\n\n（有一步操作不知道是否已经完成，没有重做，请自行确认。）"


def form(name: str) -> FunctionCall:
    """Return a call that asks for one required text."""
    wanted = [{"name": name, "label": name, "type": "text", "required": True}]
    return FunctionCall(
        "ask_human", msgspec.json.encode({"title": name, "fields": wanted}).decode()
    )


SUM = FunctionCall("calculate", '{"expression":"3+4"}')
FACTS = '{"memories":[{"text":"爱茶","type":"preference"},{"text":"五月","confidence":0.5}]}'


async def ask(stage: Stage, name: str, session: str = "s") -> Told:
    """Serve a message that pauses, with a tool beside the question."""
    stage.sim.script([Answer(text="Well. ", tool_calls=(form("day"), SUM))])
    body = {"session_id": session, "message": "Book a table", "user_id": "ann"}
    return await stage.tell("companion", stage.request("companion", body), [name])


async def show(stage: Stage, name: str, session: str = "s") -> Told:
    """Serve a picture that pauses, with two facts."""
    stage.sim.script([Answer(text="Menu"), Answer(text=FACTS)])
    body = {
        "session_id": session,
        "image": PICTURE,
        "action": "analyze_for_memory",
        "user_id": "ann",
    }
    return await stage.tell("companion", stage.request("companion", body, "/chat/image"), [name])


async def respond(question: str, action: str = "approve", **data: Any) -> None:
    """Answer a question as `/hitl/respond` does."""
    body = {"hitl_id": question, "action": action, "data": data or None}
    await OPERATIONS["companion.respond"]({}, msgspec.convert(body, RespondRequest))


async def go_on(stage: Stage, question: str, *names: Candidate | str) -> Told:
    """Continue as `/hitl/continue` does."""
    return await stage.resume("companion", {"hitl_id": question}, names)


def joined(told: Told) -> list[Any]:
    """Return the text, joined, and the other events."""
    text = "".join(data["content"] for name, data in told.events if name == "text")
    return [text, *(one for one in told.events if one[0] != "text")]


def results(stage: Stage) -> list[tuple[str, str]]:
    """Return the tool messages of the newest question to the model."""
    messages = stage.sim.requests[-1].body["messages"]
    return [(one["name"], one["content"]) for one in messages if one["role"] == "tool"]


async def remembered(stage: Stage, user: str = "ann") -> list[Memory]:
    """Return the memories of a user."""
    found = await stage.world.memory.asearch(namespace(user), limit=100)
    return sorted(memories(found), key=lambda one: one.id)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("again", STACKS)
@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_two_questions_in_a_row(
    tmp_path: Path, first: str, second: str, again: str, *, restart: bool
) -> None:
    """Any stack goes on, also after a restart; no call is made twice, and nothing told twice."""
    database = f"sqlite+aiosqlite:///{tmp_path}/pauses.db"
    begun = staged(database)
    stage = await begun.__aenter__()
    told = [await ask(stage, first)]
    made = stage.model_calls
    for name, answer in ((second, Answer(tool_calls=(form("hour"),))), (again, Answer(text="OK"))):
        if restart:
            await begun.__aexit__(None, None, None)
            begun = staged(database)
            stage = await begun.__aenter__()
            made = 0
        stage.sim.script([answer])
        question = told[-1].question
        key = "day" if len(told) == 1 else "hour"
        await respond(question, "edit", **{key: "Friday {x}"})
        told.append(await go_on(stage, question, name))
        made += 1
        assert stage.model_calls == made
    reply = '{"action":"edit","data":{"%s":"Friday {x}"}}'
    asked = [reply % "day", "7", reply % "hour"]
    assert results(stage) == list(zip(("ask_human", "calculate", "ask_human"), asked, strict=True))
    turns = await conversations.messages("companion", "s")
    await begun.__aexit__(None, None, None)
    assert [[name for name, _ in one.events] for one in told] == [
        ["emotion", "text", "text", "text", "tool_result", "hitl", "done"],
        ["hitl", "done"],
        ["text", "done"],
    ]
    assert [one.content for one in turns] == ["Book a table", "Well. OK"]
    assert told[-1].calls["tool.calculate"] == 1
    assert told[-1].calls["model.chat"] == 3


@pytest.mark.parametrize(
    ("action", "data", "texts", "said"),
    [
        ("approve", {}, ["爱茶", "五月"], "\n\n已记住 2 条。"),
        ("edit", {"memory_1": " 爱咖啡 ", "memory_2": ""}, ["爱咖啡"], "\n\n已记住 1 条。"),
        ("edit", {"memory_1": "", "memory_2": ""}, [], "\n\n好的，这些内容没有保存。"),
        ("reject", {"memory_1": "爱咖啡"}, [], "\n\n好的，这些内容没有保存。"),
    ],
)
@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_what_is_approved_of_a_picture_is_remembered(
    stage: Stage, first: str, second: str, action: str, data: Any, texts: list[str], said: str
) -> None:
    """Approved and edited facts are written, once, before the reply and the end."""
    question = (await show(stage, first)).question
    await respond(question, action, **data)
    told = await go_on(stage, question, second)
    assert joined(told) == [said, DONE]
    assert [one.text for one in await remembered(stage)] == texts
    assert all(one.session_id == "s" for one in await remembered(stage))
    turns = await conversations.messages("companion", "s")
    assert [one.content for one in turns] == ["[图片]", f"Menu{said}"]
    assert stage.model_calls == 2
    writes = [one.call.name for one in told.exchange.tape.entries if one.call.writes]
    assert writes == ["conversations.add", *["store.put"] * len(texts), "conversations.add"]
    stage.sim.script([Answer(text=".")])
    body = {"session_id": "t", "message": "你好", "user_id": "ann"}
    await stage.tell("companion", stage.request("companion", body), [second])
    system = stage.sim.requests[-1].body["messages"][0]["content"]
    assert all(f"\n- {one}\n" in system for one in texts)


@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_a_rejection_is_told_to_the_model(stage: Stage, first: str, second: str) -> None:
    """Without the data that came with it."""
    question = (await ask(stage, first)).question
    await respond(question, "reject", day="Friday")
    stage.sim.script([Answer(text="Fine.")])
    assert joined(await go_on(stage, question, second)) == ["Fine.", DONE]
    assert results(stage) == [("ask_human", '{"action":"reject"}'), ("calculate", "7")]


@pytest.mark.slow
@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("pictured", [False, True])
@pytest.mark.parametrize(("first", "second"), [("legacy", "graph"), ("graph", "legacy")])
async def test_another_stack_goes_on_after_a_continuation_breaks(
    stage: Stage, first: str, second: str, every: int, *, pictured: bool
) -> None:
    """After every event (by day at the first and the eighth): whole, no call made twice."""
    wanted: list[Any] = []
    tried = [("never", 99), *((how, at) for how in HOWS for at in range(0, 11, every))]
    for how, at in tried:
        asked = await (show if pictured else ask)(stage, second, f"{how} {at}")
        question, before = asked.question, stage.model_calls
        await respond(question, "approve", **({} if pictured else {"day": "Friday"}))
        if not pictured:
            stage.sim.script([Answer(text="abc", pieces=("a", "b", "c"))])
        broken = stage.candidate("companion", first, breaking(at, how))
        told = await go_on(stage, question, broken, second)
        seen = [joined(told), told.calls, stage.model_calls - before, told.outcome]
        wanted = wanted or seen
        assert seen == wanted, (how, at)
    assert wanted[0][-1] == DONE
    assert len(await remembered(stage)) == (2 * len(tried) if pictured else 0)


@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_a_memory_with_an_unknown_outcome_is_said(
    stage: Stage, first: str, second: str
) -> None:
    """It is not written again; the others are, and how many is said before it."""
    question = (await show(stage, first)).question
    await respond(question)
    normal, stage.pauses = stage.pauses, forgetting(stage, "store.put")
    assert isinstance((await go_on(stage, question, first)).outcome, Failed)
    for one in await remembered(stage):
        await stage.world.memory.adelete(namespace("ann"), one.id)  # a repetition would show
    stage.pauses = normal
    told = await go_on(stage, question, second)
    said = f"\n\n已记住 1 条。{UNKNOWN}"
    assert joined(told) == [said, DONE]
    assert [one.text for one in await remembered(stage)] == ["五月"]
    turns = await conversations.messages("companion", "s")
    assert turns[-1].content == f"Menu{said}"


booked: list[str] = []


@tool(description="Book a table.", writes=True)
async def book(day: str) -> str:
    """Note the day."""
    booked.append(day)
    return "booked"


@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_a_tool_with_an_unknown_outcome_ends_the_reply(
    stage: Stage, first: str, second: str
) -> None:
    """The user is told; the model, which would call it once more, is not asked again."""
    booked.clear()
    tools = Tools([*builtin_tools.BUILT_IN, book])
    with use(replace(stage.world, tools=tools)):
        question = (await ask(stage, first)).question
        await respond(question, day="Friday")
        normal, stage.pauses = stage.pauses, forgetting(stage, "tool.book")
        booking = Answer(tool_calls=(FunctionCall("book", '{"day":"Friday"}'), form("hour")))
        stage.sim.script([booking])
        broken = stage.candidate("companion", first, breaking(6, "exception"))
        assert isinstance((await go_on(stage, question, broken)).outcome, Failed)
        assert booked == ["Friday"]
        stage.pauses = normal
        stage.sim.script([booking])
        told = await go_on(stage, question, second)
    unknown = {"tool": "book", "ok": False, "content": "Error: outcome_unknown"}
    assert joined(told) == [UNKNOWN, ("tool_result", unknown), DONE]
    assert booked == ["Friday"]


@pytest.mark.parametrize(
    ("action", "data", "status"),
    [
        ("approve", {}, 422),
        ("approve", {"day": " "}, 422),
        ("edit", {"day": 5}, 422),
        ("edit", {"day": "Friday", "hour": "9"}, 422),
        ("reject", {}, 200),
    ],
)
async def test_answers_are_held_to_the_form(
    stage: Stage, action: str, data: Any, status: int
) -> None:
    """An answer that is refused leaves the question open."""
    question = (await ask(stage, "graph")).question
    if status == 422:
        with pytest.raises(Refused, match="422 'bad_answer'"):
            await respond(question, action, **data)
        assert (await go_on(stage, question, "legacy")).refusal == (409, "unanswered")
        await respond(question, day="Friday")
    else:
        await respond(question, action, **data)


async def test_a_second_answer_is_the_same_or_refused(stage: Stage) -> None:
    """Also after the end; an unknown question gets 404."""
    question = (await ask(stage, "legacy")).question
    for _ in range(2):
        await respond(question, day="Friday")
    with pytest.raises(Refused, match="409 'answered_otherwise'"):
        await respond(question, day="Sunday")
    both = await asyncio.gather(*(go_on(stage, question, one) for one in STACKS))
    assert sorted(one.error is None for one in both) == [False, True]
    assert [one.refusal for one in both if one.error] == [(409, "already_continued")]
    await respond(question, day="Friday")
    with pytest.raises(Refused, match="409 'answered_otherwise'"):
        await respond(question, "reject")
    with pytest.raises(Refused, match="404 'unknown_question'"):
        await respond("nothing")


@pytest.mark.parametrize("percent", [0.0, 100.0])
async def test_over_http_a_new_turn_expires_the_question(stage: Stage, percent: float) -> None:
    """204 for an answer, the stream for going on, 410 once the session has gone on by itself."""
    share = {"enable_langgraph": True, "langgraph_percent": percent}
    settings = Settings.model_validate({"flows": {"companion": share}})
    transport = httpx.ASGITransport(root.application(LiveSettings(settings), stage.world))
    picture = {"session_id": "s", "image": PICTURE, "action": "analyze_for_memory"}
    large = "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n" + bytes(1 << 20)).decode()
    async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:

        async def asked(image: str) -> str:
            stage.sim.script([Answer(text="Menu"), Answer(text=FACTS)])
            stream = (await client.post("/chat/image", json=picture | {"image": image})).text
            frame = next(one for one in stream.split("\n\n") if one.startswith("event: hitl"))
            hitl_id: str = msgspec.json.decode(frame.partition("data: ")[2])["hitl_id"]
            return hitl_id

        first, second = await asked(PICTURE), await asked(large)
        answer = {"action": "approve", "hitl_id": first}
        late = await client.post("/hitl/respond", json=answer)
        assert (late.status_code, late.json()["code"]) == (410, "expired")
        late = await client.post("/hitl/continue", json={"hitl_id": first})
        assert late.status_code == 410
        answered = await client.post("/hitl/respond", json=answer | {"hitl_id": second})
        assert answered.status_code == 204
        rest = await client.post("/hitl/continue", json={"hitl_id": second})
        assert rest.text.endswith('event: done\ndata: {"status":"completed"}\n\n')
    assert [one.text for one in await remembered(stage, "session:s")] == ["爱茶", "五月"]
    await asyncio.sleep(1)


async def test_what_is_told_after_an_answer_is_on_the_tape(stage: Stage) -> None:
    """A continued exchange is played to both stacks as any other."""
    question = (await ask(stage, "graph")).question
    await respond(question, day="Friday")
    stage.sim.script([Answer(text="Friday it is.")])
    told = await go_on(stage, question, "legacy")
    for name in STACKS:
        played = await stage.play(told, name)
        assert isinstance(played.outcome, Completed)
        assert played.sent.texts == told.exchange.sent.texts
        assert not any(one.how == "nearest" for one in played.run.plays)
