"""Real runs of both stacks: equal as they are, and each seeded fault found in its place."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compare.comparison import Comparer
from compare.findings import kind_of
from compare.input.pairing import Pair, pair_of
from contract.flow import Event, Flow, Request
from contract.flows.chat import CHAT, ChatRequest, Send, Success
from contract.model import Chunk, ToolCall, ToolCallDelta, ToolResult, ToolSpec
from contract.ports import Effects, Tools
from contract.records import Role, RunRecord, decode_run, encode_run
from cutover.selftest.cases import case as drawn
from effects.model import Wait
from effects.tape import Tape, TapeSession
from graph_impl.chat import chat
from graph_impl.templates import FOLDER
from router.serving.run import Run, RunRequest
from router.serving.stack import LocalStack
from tests.support.flow_runs import FOREVER, STACKS, Case, begin

pytestmark = pytest.mark.virtual

Rewrite = Callable[[AsyncIterator[Event]], AsyncIterator[Event]]
CASE = Case(
    ChatRequest(message_id="m-1", content="北京天气怎么样？", user_name="小明"),
    answers=(
        (
            Chunk(text="我查一下。"),
            Chunk(tool_calls=(ToolCallDelta(0, "c1", "weather", '{"city":"北京"}'),)),
            Chunk(finish="tool_calls"),
        ),
        (
            *(
                step
                for piece in ("今天北京晴，", "气温二十一度，", "微风，", "适合出门。")
                for step in (Wait(0.6), Chunk(text=piece))
            ),
            Chunk(finish="stop"),
        ),
    ),
    tools={"weather": "晴，21 度"},
)


async def pair(case: Case, candidate: LocalStack) -> Pair:
    """Serve a case on legacy, shadow it on a candidate, and read both back from their lines."""
    world = case.world()
    exchange = world.exchange(Tape())
    serving = begin(STACKS["legacy"], case, exchange)
    assert await serving.wait_stopped(FOREVER)
    await exchange.close()
    order = RunRequest(CHAT, candidate.name, case.request, "shadow")
    shadow = candidate.new_run(order, TapeSession(exchange, "shadow", "nearest"), strict=False)
    shadow.start()
    assert await shadow.wait_stopped(FOREVER)
    runs = (line(serving, "serving", exchange.tape), line(shadow, "shadow", None))
    chosen = pair_of(runs)
    assert isinstance(chosen, Pair)
    return chosen


def line(run: Run, role: Role, tape: Tape | None) -> RunRecord:
    """Write a run down and read it back."""
    assert run.outcome is not None
    record = RunRecord(
        v=1,
        exchange="x-1",
        flow="chat",
        role=role,
        stack="legacy" if role == "serving" else "graph",
        assigned="legacy",
        served="legacy",
        began=1,
        frames=tuple((frame.at, frame.data.decode()) for frame in run.frames),
        outcome=run.outcome.kind,
        error=run.outcome.error,
        tape=tape.record() if tape else None,
        plays=tuple(play.record() for play in run.session.plays),
    )
    return decode_run(encode_run(record))


async def causes(candidate: Flow) -> list[tuple[str, str]]:
    """List what a candidate flow is found guilty of, causes only."""
    found = Comparer(CHAT).compare(await pair(CASE, LocalStack("graph", {"chat": candidate}, "g2")))
    return [(finding.layer, kind_of(finding)) for finding in found if finding.after is None]


def spoilt(rewrite: Rewrite) -> Flow:
    """Give the graph stack's chat with its events rewritten."""
    graph = chat()

    async def flow(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        async for event in rewrite(graph(request, effects)):
            yield event

    return flow


@pytest.mark.parametrize("seed", range(30))
async def test_both_stacks_are_equal(seed: int) -> None:
    """Drawn requests, with tools, faults and refusals: no finding."""
    assert Comparer(CHAT).compare(await pair(drawn(seed), STACKS["graph"])) == ()


async def test_a_changed_prompt_is_found_in_the_effects(tmp_path: Path) -> None:
    """One word more in the prompt's file."""
    folder = tmp_path / "prompts"
    shutil.copytree(FOLDER, folder)
    for prompt in folder.iterdir():
        prompt.write_text(prompt.read_text("utf-8") + "\n请简短。", "utf-8")
    assert await causes(chat(folder)) == [("effects", "prompt_changed")]


class Elsewhere:
    """Tools that are asked about another city than the model wanted."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def list(self, site: str) -> tuple[ToolSpec, ...]:
        """Tell which tools can be offered."""
        return await self._tools.list(site)

    async def run(self, site: str, call: ToolCall) -> ToolResult:
        """Run a call that was tampered with."""
        return await self._tools.run(site, ToolCall(call.id, call.name, '{"city":"天津"}'))


async def test_a_changed_tool_argument_is_found_in_the_effects() -> None:
    """The stack calls the tool otherwise than the model asked."""
    graph = chat()

    def flow(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        return graph(request, replace(effects, tools=Elsewhere(effects.tools)))

    assert await causes(flow) == [("effects", "tool_arguments")]


async def test_a_dropped_frame_is_found_in_the_frames() -> None:
    """Its text comes with the next one, and still."""

    async def rewrite(events: AsyncIterator[Event]) -> AsyncIterator[Event]:
        async for event in events:
            if not (isinstance(event, Send) and event.content.endswith("气温二十一度，")):
                yield event

    assert await causes(spoilt(rewrite)) == [("frames", "frame_dropped")]


@pytest.mark.parametrize("final", ["{}！", "今天北京雨。", "{:.5}"])
async def test_a_wrong_final_text_is_found_in_the_text(final: str) -> None:
    """Longer, other or shorter than what was streamed."""

    async def rewrite(events: AsyncIterator[Event]) -> AsyncIterator[Event]:
        async for event in events:
            yield Success(final.format(event.content)) if isinstance(event, Success) else event

    assert await causes(spoilt(rewrite)) == [("text", "text_changed")]


async def test_a_frame_after_the_end_is_found_by_the_grammar() -> None:
    """The client may not receive it, but the stack sent it."""

    async def rewrite(events: AsyncIterator[Event]) -> AsyncIterator[Event]:
        async for event in events:
            yield event
        yield Send("还有一句。")

    assert await causes(spoilt(rewrite)) == [("grammar", "grammar_broken")]
