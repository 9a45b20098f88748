"""What the companion turns down, what it says when something fails, what it does side by side."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from contract.errors import Fault
from contract.flows.companion import CompanionOptions, Emotion
from contract.flows.session import lock_key
from contract.human import HumanAnswer
from contract.model import Chunk
from effects.model import Fail
from tests.flows.companion.visits import PNG, STOP, Visit, calling, image, turn
from tests.flows.playing import STACKS, play, same_on_both

pytestmark = pytest.mark.virtual

REFUSALS = {
    "session_busy": (Visit(turn(), taken=lock_key("s")), 409),
    "image_not_base64": (Visit(image(url=PNG[:-1])), 422),
    "max_tokens_too_large": (Visit(turn(), CompanionOptions(max_tokens=65_536)), 422),
}


@pytest.mark.parametrize("code", REFUSALS)
async def test_a_refusal_has_its_status_and_code_and_no_frame(stack: str, code: str) -> None:
    """The model is not asked, nothing is kept, and our lock is free again."""
    visit, status = REFUSALS[code]
    played = await play(stack, visit)
    assert played.frames == []
    outcome, refused_code, refusal = played.ended
    assert (outcome, refused_code) == ("refused", code)
    assert isinstance(refusal, tuple)
    assert refusal[:2] == (status, code)
    assert played.world.count("model.stream") == 0
    assert played.world.conversations.turns == ()
    free = await played.world.locks.acquire("again", lock_key("s"), 1)
    assert free == (code != "session_busy")


@pytest.mark.parametrize("code", REFUSALS)
async def test_both_stacks_refuse_alike(code: str) -> None:
    """On the tape as for real."""
    await same_on_both(REFUSALS[code][0], "legacy", "graph")
    await same_on_both(REFUSALS[code][0], "graph", "legacy")


def wire(frames: list[bytes]) -> list[str]:
    """Give names and data of frames."""
    return [
        frame.decode().removeprefix("event: ").replace("\ndata: ", " ").strip() for frame in frames
    ]


async def test_a_picture_without_text_is_said_in_our_words(stack: str) -> None:
    """The model's word for it is not shown, and nothing is searched."""
    played = await play(stack, Visit(image(), read=(Chunk(text="NO_"), Chunk(text="TEXT."))))
    assert wire(played.frames) == [
        'text {"content":"图片里没有找到文字。"}',
        'done {"status":"completed"}',
    ]
    assert played.world.count("model.stream") == 1


@pytest.mark.parametrize("last", ["。", ".", "NO", "\n\nNO_TEXT"])
async def test_the_last_piece_of_a_picture_is_said_like_the_others(stack: str, last: str) -> None:
    """Even one that would, at the beginning, have been the beginning of there being no text."""
    read = (Chunk(text="发票"), Chunk(text=last), Chunk(finish="stop"))
    played = await play(stack, Visit(image("analyze_only"), read=read))
    said = [msgspec.json.encode({"content": text}).decode() for text in ("发票", last)]
    assert wire(played.frames) == [*(f"text {it}" for it in said), 'done {"status":"completed"}']
    assert played.world.conversations.turns[-1].content == f"发票{last}"


async def test_a_picture_with_nothing_to_remember_asks_nothing(stack: str) -> None:
    """The user is told so."""
    played = await play(stack, Visit(image(), found=(Chunk(text='{"memories":[]}'),)))
    assert wire(played.frames)[-2:] == [
        'text {"content":"\\n\\n没有找到值得记住的内容。"}',
        'done {"status":"completed"}',
    ]
    assert played.world.count("human.open") == 0


async def test_a_model_that_fails_is_said_and_the_half_reply_not_kept(stack: str) -> None:
    """What the client has stays; then the code, and an honest end."""
    broken = (Chunk(text="Well"), Fail(Fault("model_rate_limited")))
    for visit in (Visit(turn(), answers=(broken,)), Visit(image(), read=broken)):
        played = await play(stack, visit)
        assert wire(played.frames)[-3:] == [
            'text {"content":"Well"}',
            'error {"code":"model_rate_limited"}',
            'done {"status":"failed"}',
        ]
        assert played.world.count("ids.new") == 1


async def test_answers_that_come_at_once_need_no_second_request(stack: str) -> None:
    """The stream goes on by itself."""
    asks = calling(("ask_human", '{"title":"?","fields":[{"name":"a","label":"A"}]}'))
    visit = Visit(turn(), answers=(asks, STOP), human=(HumanAnswer("edit", {"a": "x"}),))
    played = await play(stack, visit)
    assert [it.split(" ")[0] for it in wire(played.frames)] == [
        "emotion",
        "hitl",
        "tool_result",
        "text",
        "text",
        "done",
    ]


async def test_the_model_is_told_mood_intent_and_what_came_before(stack: str) -> None:
    """In its prompt, at the configured place's time; tools and the question tool are offered."""
    options = CompanionOptions(timezone="Asia/Shanghai")
    played = await play(stack, Visit(turn("今天很开心！为什么？"), options, tools={"dice": "4"}))
    (call,) = played.asked
    system = str(call.messages[0].content)
    for told in ("joy（强度 0.90）", "用户在提问", "这是本次对话的开始", "（无）", "08:00:00"):
        assert told in system
    assert [tool.name for tool in call.tools] == ["dice", "ask_human"]


async def test_the_graph_recalls_while_the_mood_is_sent() -> None:
    """Before anybody has asked for more than the first frame."""
    visit = Visit(turn())
    world = visit.world()
    exchange = world.exchange()
    flow = STACKS["graph"].flows["companion"]
    stream = cast("Any", flow(visit.request, world.run(exchange).effects()))
    assert isinstance(await anext(stream), Emotion)
    for _ in range(10):
        await asyncio.sleep(0)
    recalled = world.count("memory.recall")
    await stream.aclose()
    await exchange.close()
    assert recalled == 1


@pytest.mark.parametrize("events", range(6))
async def test_a_closed_flow_leaves_no_task(stack: str, events: int) -> None:
    """Wherever it stood, the pumps of the exchange apart."""
    calls = calling(("slow", "{}"), ("dice", "{}"), text="x")
    visit = Visit(turn(), answers=(calls, STOP), tools={"slow": "1", "dice": "2"}, slow={"slow": 5})
    world = visit.world()
    exchange = world.exchange()
    flow = STACKS[stack].flows["companion"]
    stream = cast("Any", flow(visit.request, world.run(exchange).effects()))
    for _ in range(events):
        await anext(stream)
    await stream.aclose()
    left = {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}
    await exchange.close()
    assert {name for name in left if not name.startswith("pump")} == set()
