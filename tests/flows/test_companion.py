"""The companion flow, told by both stacks: messages, tools, memories, pictures, failures."""

from base64 import b64encode
from typing import Any

import httpx
import pytest

from cutover.errors import Pause
from effects import conversations
from effects.memory import Memory, namespace
from harness import root
from harness.config import Settings
from harness.live import LiveSettings
from loadtests.simulator import Answer, FunctionCall
from rules.flows.companion import LARGEST_IMAGE, LARGEST_IMAGE_BODY
from tests.flows.samples import PICTURE
from tests.support.stage import STACKS, Stage, Told

pytestmark = pytest.mark.virtual

CALM = ("emotion", {"primary": "neutral", "intensity": 0.0, "confidence": 0.5})
DONE = ("done", {"status": "completed"})
FORM = '{"title":"Which day?","fields":[{"name":"day","label":"Day","type":"text"}]}'


async def say(
    stage: Stage, name: str, message: str, *, user_id: str | None = None, **options: Any
) -> Told:
    """Send a message to the session and check that both stacks play it exactly."""
    body = {"session_id": "s", "message": message, "user_id": user_id}
    told = await stage.tell("companion", stage.request("companion", body, **options), [name])
    return await stage.checked(told)


async def show(stage: Stage, name: str, action: str = "analyze_for_memory", **options: Any) -> Told:
    """Show a picture to the session and check that both stacks play it exactly."""
    body = {"session_id": "s", "image": PICTURE, "action": action}
    request = stage.request("companion", body, "/chat/image", **options)
    return await stage.checked(await stage.tell("companion", request, [name]))


def joined(told: Told) -> list[Any]:
    """Return the events, with the text between two others joined."""
    out: list[Any] = []
    for name, data in told.events:
        if name != "text":
            out.append((name, data))
        elif out and isinstance(out[-1], str):
            out[-1] += data["content"]
        else:
            out.append(data["content"])
    return out


def asked(stage: Stage, at: int = -1) -> list[dict[str, Any]]:
    """Return the messages of a question to the model, the newest by default."""
    messages: list[dict[str, Any]] = stage.sim.requests[at].body["messages"]
    return messages


async def stored() -> list[tuple[str, str]]:
    """Return what the session's conversation has."""
    turns = await conversations.messages("companion", "s")
    return [(one.role, one.content) for one in turns]


def writes(told: Told) -> list[str]:
    """Return the writes on the tape, in order."""
    return [one.call.name for one in told.exchange.tape.entries if one.call.writes]


@pytest.mark.parametrize("name", STACKS)
async def test_emotion_comes_first_and_text_in_pieces(stage: Stage, name: str) -> None:
    """The frames are the document's: emotion, text as deltas, done."""
    stage.sim.script([Answer(text="真好！", pieces=("真", "好！"))])
    told = await say(stage, name, "我今天非常开心！")
    assert told.frames == [
        b'event: emotion\ndata: {"primary":"joy","intensity":0.9,"confidence":0.67}\n\n',
        'event: text\ndata: {"content":"真"}\n\n'.encode(),
        'event: text\ndata: {"content":"好！"}\n\n'.encode(),
        b'event: done\ndata: {"status":"completed"}\n\n',
    ]
    assert await stored() == [("user", "我今天非常开心！"), ("assistant", "真好！")]
    assert set(told.exchange.runs[-1].run.nodes) >= {"emotion", "memory", "reasoning"}


@pytest.mark.parametrize("name", STACKS)
async def test_other_tools_run_and_are_shown_before_the_question(stage: Stage, name: str) -> None:
    """The first valid form is asked; a second one, and one that cannot be answered, are refused."""
    calls = (
        FunctionCall("ask_human", FORM),
        FunctionCall("ask_human", '{"title":"","fields":[]}'),
        FunctionCall("calculate", '{"expression":"3+4"}'),
        FunctionCall("ask_human", FORM),
    )
    stage.sim.script([Answer(text="Well.", tool_calls=calls)])
    told = await say(stage, name, "Book a table")
    assert isinstance(told.outcome, Pause)
    field = {"name": "day", "label": "Day", "type": "text", "required": False}
    assert joined(told) == [
        CALM,
        "Well.",
        ("tool_result", {"tool": "ask_human", "ok": False, "content": "Error: bad_arguments"}),
        ("tool_result", {"tool": "calculate", "ok": True, "content": "7"}),
        ("tool_result", {"tool": "ask_human", "ok": False, "content": "Error: tool_failed"}),
        (
            "hitl",
            {
                "hitl_id": told.outcome.question,
                "session_id": "s",
                "kind": "question",
                "form": {"title": "Which day?", "fields": [field]},
            },
        ),
        ("done", {"status": "suspended"}),
    ]
    assert await stored() == [("user", "Book a table")]


@pytest.mark.parametrize("name", STACKS)
async def test_tools_that_are_off_are_not_offered(stage: Stage, name: str) -> None:
    """A model that asks the user all the same gets `unknown_tool`."""
    stage.sim.script([Answer(tool_calls=(FunctionCall("ask_human", FORM),)), Answer(text="Sorry.")])
    told = await say(stage, name, "Book a table", enable_tools=False)
    refused = {"tool": "ask_human", "ok": False, "content": "Error: unknown_tool"}
    assert joined(told) == [CALM, ("tool_result", refused), "Sorry.", DONE]
    assert not stage.sim.requests[0].body.get("tools")


@pytest.mark.parametrize("name", STACKS)
async def test_the_last_round_may_call_no_tool(stage: Stage, name: str) -> None:
    """Ten rounds of tools, then an answer with `tool_choice: none`, which ends the reply."""
    again = Answer(text=".", tool_calls=(FunctionCall("calculate", '{"expression":"1+1"}'),))
    stage.sim.script([again] * 11)
    told = await say(stage, name, "1+1")
    assert [one for one, _ in told.events].count("tool_result") == 10
    assert told.events[-1] == DONE
    choices = [one.body["tool_choice"] for one in stage.sim.requests]
    assert choices == ["auto"] * 10 + ["none"]
    offered = [one["function"]["name"] for one in stage.sim.requests[0].body["tools"]]
    assert offered == ["calculate", "current_time", "search_memory", "ask_human"]


@pytest.mark.parametrize("name", STACKS)
async def test_the_prompt_says_mood_intent_and_memories(stage: Stage, name: str) -> None:
    """Memories are those of the user, one a line; without any there is no such section."""
    await say(stage, name, "我很难过", user_id="ann.b")
    assert "\n- 情绪：sadness（强度 0.80）\n- 意图：用户在闲聊：自然地接话。\n" in system(stage)
    assert "这是本次对话的开始。\n\n# 规矩\n" in system(stage)
    for user, text in (("ann.b", "喜欢  {tea}\n和猫"), ("bob", "恨茶")):
        one = Memory("m", text)
        await stage.world.memory.aput(namespace(user), one.id, one.value())
    await say(stage, name, "我喜欢什么？", user_id="ann.b")
    remembered = "此前共有 2 条消息。\n\n# 你记得的事\n- 喜欢 {tea} 和猫\n\n# 规矩\n"
    assert remembered in system(stage)
    assert "恨茶" not in system(stage)


def system(stage: Stage) -> str:
    """Return the system prompt of the newest question to the model."""
    content: str = asked(stage)[0]["content"]
    return content


@pytest.mark.parametrize("name", STACKS)
async def test_the_history_is_a_window_and_what_is_hidden_is_summed_up(
    stage: Stage, name: str
) -> None:
    """The newest turns that fit into the budget are messages, of the others the topics are said."""
    stage.sim.script([Answer(text="甲乙丙丁"), Answer(text="子丑寅卯"), Answer(text="好")])
    for message in ("第一个问题", "第二个问题"):
        await say(stage, name, message)
    await say(stage, name, "第三个问题", history_tokens=10)
    assert [one["content"] for one in asked(stage)[1:]] == ["第二个问题", "子丑寅卯", "第三个问题"]
    assert "此前共有 4 条消息。更早时用户说过：第一个问题。" in system(stage)


@pytest.mark.parametrize("name", STACKS)
async def test_a_picture_that_is_only_read_is_not_learnt_from(stage: Stage, name: str) -> None:
    """The text in it is the reply; the session begins where there was none."""
    stage.sim.script([Answer(text="我的生日\n是五月三日。")])
    told = await show(stage, name, "analyze_only")
    assert joined(told) == ["我的生日\n是五月三日。", DONE]
    assert await stored() == [("user", "[图片]"), ("assistant", "我的生日\n是五月三日。")]
    image = {"type": "image_url", "image_url": {"url": PICTURE}}
    assert asked(stage)[1]["content"] == [{"type": "text", "text": "[图片]"}, image]
    assert stage.sim.requests[0].body["temperature"] == 0.0
    assert stage.model_calls == 1


@pytest.mark.parametrize(
    ("answers", "reply"),
    [
        (["图片里没有找到文字。\n"], "图片里没有找到文字。\n"),
        (["Menu", '{"memories":[]}'], "Menu\n\n没有找到值得记住的内容。"),
    ],
)
@pytest.mark.parametrize("name", STACKS)
async def test_a_picture_without_facts_asks_nothing(
    stage: Stage, name: str, answers: list[str], reply: str
) -> None:
    """Without text there is no second question to the model; unsure facts are not proposed."""
    stage.sim.script([Answer(text=one) for one in answers])
    assert joined(await show(stage, name)) == [reply, DONE]
    assert stage.model_calls == len(answers)
    assert (await stored())[-1] == ("assistant", reply)


@pytest.mark.parametrize("name", STACKS)
async def test_facts_in_a_picture_are_put_to_the_user(stage: Stage, name: str) -> None:
    """Those from 0.3 on, each a field with its confidence; nothing is written yet."""
    facts = '[{"text":"生日是五月","confidence":0.3},{"text":"a","confidence":0.1},"喜欢茶"]'
    stage.sim.script([Answer(text="我"), Answer(text=f'```json\n{{"memories":{facts}}}\n```')])
    told = await show(stage, name)
    [read, (kind, hitl), done] = joined(told)
    assert (read, kind, done) == ("我", "hitl", ("done", {"status": "suspended"}))
    assert (hitl["session_id"], hitl["kind"]) == ("s", "memory_confirm")
    assert hitl["form"]["title"] == "要记住这些内容吗？"
    assert [(one["label"], one["value"]) for one in hitl["form"]["fields"]] == [
        ("记忆 1（置信度 0.30）", "生日是五月"),
        ("记忆 2（置信度 1.00）", "喜欢茶"),
    ]
    assert writes(told) == ["conversations.add"]


@pytest.mark.parametrize("percent", [0.0, 100.0])
async def test_bad_requests_are_refused_before_any_frame(stage: Stage, percent: float) -> None:
    """Over HTTP, with problem+json: 415 for other media, 413 for large bodies, 422 for bad ones."""
    share = {"enable_langgraph": True, "langgraph_percent": percent}
    settings = Settings.model_validate({"flows": {"companion": share}})
    transport = httpx.ASGITransport(root.application(LiveSettings(settings), stage.world))
    good = {"session_id": "s", "image": PICTURE, "action": "analyze_only"}
    large = "data:image/png;base64," + b64encode(b"x" * (LARGEST_IMAGE + 1)).decode()
    async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:

        async def refused(path: str, **request: Any) -> int:
            answer = await client.post(path, **request)
            assert answer.headers["content-type"] == "application/problem+json"
            return answer.status_code

        for image in ("", "x", "data:image/gif;base64,R0lGOD", PICTURE[:-3] + "!", large):
            assert await refused("/chat/image", json=good | {"image": image}) == 422
        assert await refused("/chat/image", json=good | {"action": "analyze"}) == 422
        assert await refused("/chat", json={"session_id": "s", "message": " "}) == 422
        assert await refused("/chat", json={"session_id": "", "message": "x"}) == 422
        huge = b" " * (LARGEST_IMAGE_BODY + 1)
        sent = {"content-type": "application/json"}
        assert await refused("/chat/image", content=huge, headers=sent) == 413
        assert await refused("/chat/image", files={"image": b"x"}) == 415
    assert stage.model_calls == 0
    assert await stored() == []
