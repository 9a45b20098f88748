"""What a companion sends, when something fails too, and what it does side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec
import pytest

from contract.errors import Fault
from contract.flows.companion import CompanionOptions, Emotion
from contract.human import HumanAnswer
from contract.model import Chunk
from contract.stores import MemoryEntry, Recall
from effects.memory import InMemoryMemory
from effects.model import Fail
from tests.support.companion_turns import STOP, Visit, calling, image, turn
from tests.support.flow_runs import STACKS, play

pytestmark = pytest.mark.virtual

BROKEN = (Chunk(text="Well"), Fail(Fault("model_rate_limited")))
RECALL_MS = 50


def wire(frames: list[bytes]) -> list[str]:
    """Return names and data of frames."""
    return [
        frame.decode().removeprefix("event: ").replace("\ndata: ", " ").strip() for frame in frames
    ]


def text(content: str) -> str:
    """Return a text event as `wire` shows it."""
    return f"text {msgspec.json.encode({'content': content}).decode()}"


async def test_a_picture_without_text_is_described_in_our_words(stack: str) -> None:
    """The model's word for it is not shown, and nothing is searched."""
    played = await play(stack, Visit(image(), read=(Chunk(text="NO_"), Chunk(text="TEXT."))))
    assert wire(played.frames) == [text("图片里没有找到文字。"), 'done {"status":"completed"}']
    assert played.world.count("model.stream") == 1


@pytest.mark.parametrize("last", ["。", ".", "NO", "\n\nNO_TEXT"])
async def test_the_last_piece_of_a_picture_is_sent_like_the_others(stack: str, last: str) -> None:
    """Even one that would, at the beginning, have been the beginning of there being no text."""
    read = (Chunk(text="发票"), Chunk(text=last), Chunk(finish="stop"))
    played = await play(stack, Visit(image("analyze_only"), read=read))
    assert wire(played.frames) == [text("发票"), text(last), 'done {"status":"completed"}']
    assert played.world.conversations.turns[-1].content == f"发票{last}"


async def test_a_picture_with_nothing_to_remember_asks_nothing(stack: str) -> None:
    """The user is told so."""
    played = await play(stack, Visit(image(), found=(Chunk(text='{"memories":[]}'),)))
    ends = [text("\n\n没有找到值得记住的内容。"), 'done {"status":"completed"}']
    assert wire(played.frames)[-2:] == ends
    assert played.world.count("human.open") == 0


@pytest.mark.parametrize("visit", [Visit(turn(), answers=(BROKEN,)), Visit(image(), read=BROKEN)])
async def test_a_model_that_fails_is_reported_and_half_a_reply_not_stored(
    stack: str, visit: Visit
) -> None:
    """What the client has stays; then the code, and an honest end."""
    played = await play(stack, visit)
    assert wire(played.frames)[-3:] == [
        text("Well"),
        'error {"code":"model_rate_limited"}',
        'done {"status":"failed"}',
    ]
    assert played.world.count("ids.new") == 1


async def test_answers_that_come_at_once_need_no_second_request(stack: str) -> None:
    """The stream goes on by itself."""
    asks = calling(("ask_human", '{"title":"?","fields":[{"name":"a","label":"A"}]}'))
    visit = Visit(turn(), answers=(asks, STOP), human=(HumanAnswer("edit", {"a": "x"}),))
    played = await play(stack, visit)
    names = [it.split(" ")[0] for it in wire(played.frames)]
    assert names == ["emotion", "hitl", "tool_result", "text", "text", "done"]


async def test_the_prompt_has_emotion_intent_and_what_came_before(stack: str) -> None:
    """At the configured place's time; tools and the question tool are offered."""
    options = CompanionOptions(timezone="Asia/Shanghai")
    played = await play(stack, Visit(turn("今天很开心！为什么？"), options, tools={"dice": "4"}))
    (call,) = played.asked
    system = str(call.messages[0].content)
    for part in ("joy（强度 0.90）", "用户在提问", "这是本次对话的开始", "（无）", "08:00:00"):
        assert part in system
    assert [tool.name for tool in call.tools] == ["dice", "ask_human"]


async def test_the_graph_recalls_while_the_emotion_is_sent() -> None:
    """Before its reader has asked for more than the first frame."""
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


def now() -> int:
    """Return the movable clock's time, milliseconds."""
    return round(asyncio.get_running_loop().time() * 1_000)


@dataclass
class Spans:
    """Notes when each node begins and ends, milliseconds since it was made."""

    began: int = field(default_factory=now)
    noted: list[tuple[str, str, int]] = field(default_factory=list)

    @contextmanager
    def node(self, name: str) -> Iterator[None]:
        """Note a node's begin and end."""
        self.noted.append(("begin", name, now() - self.began))
        try:
            yield
        finally:
            self.noted.append(("end", name, now() - self.began))

    def changed(self, node: str, update: object) -> None:
        """Note no change."""


class SlowMemory(InMemoryMemory):
    """A memory that takes its time."""

    async def recall(self, site: str, wanted: Recall) -> tuple[MemoryEntry, ...]:
        """Recall, later."""
        await asyncio.sleep(RECALL_MS / 1_000)
        return await super().recall(site, wanted)


async def test_the_emotion_is_sent_while_memories_are_recalled(stack: str) -> None:
    """In the graph the nodes overlap; on either stack the emotion is out before any memory is."""
    visit = Visit(turn("今天很开心！"))
    world = visit.world()
    exchange = world.exchange(live=world.live(memory=SlowMemory()))
    spans = Spans()
    effects = replace(world.run(exchange).effects(), trace=spans)
    flow = STACKS[stack].flows["companion"]
    async with aclosing(cast("Any", flow(visit.request, effects))) as events:
        frames = [(event.__struct_config__.tag, now() - spans.began) async for event in events]
    await exchange.close()
    overlap = [("begin", "memory", 0), ("end", "emotion", 0)]
    assert [it for it in spans.noted if it[1] != "admission"] == [
        ("begin", "emotion", 0),
        *(overlap if stack == "graph" else overlap[::-1]),
        ("end", "memory", RECALL_MS),
        ("begin", "reasoning", RECALL_MS),
        ("end", "reasoning", RECALL_MS),
    ]
    assert frames == [("emotion", 0), *((name, RECALL_MS) for name in ("text", "text", "done"))]
