"""Copies of the graph stack with one thing changed, and exchanges served beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from contract.flow import Event, Flow
from contract.flows.chat import End, Send, Success
from contract.model import ToolCall, ToolResult, ToolSpec
from contract.ports import Effects, Tools
from contract.records import RunRecord
from cutover.flows import SPECS
from cutover.selftest.cases import case
from effects.testing import VirtualLoop
from graph_impl import FLOWS as GRAPH
from graph_impl.chat import chat
from graph_impl.templates import FOLDER
from router.capture.writer import CaptureWriter
from router.config.schema import CaptureSettings
from tests.support.faulty_stacks import mapped
from tests.support.flow_runs import Case
from tests.support.router_world import House, Rules

PLAIN = 12
"""A seed whose case calls tools and ends well on both stacks."""


def changed_prompt(folder: Path) -> Flow:
    """Reword one rule of the system prompt."""
    text = (FOLDER / "chat_system.md").read_text("utf-8")
    (folder / "chat_system.md").write_text(text.replace("short, precise", "long, vague"), "utf-8")
    return chat(folder)


class OtherArguments:
    """Tools of which the first is called with an unexpected argument."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._planted = False

    async def list(self, site: str) -> tuple[ToolSpec, ...]:
        """Return which tools can be offered."""
        return await self._tools.list(site)

    async def run(self, site: str, call: ToolCall) -> ToolResult:
        """Run a call, the first with other arguments."""
        if not self._planted:
            self._planted = True
            call = ToolCall(call.id, call.name, '{"planted": true}')
        return await self._tools.run(site, call)


def changed_argument(_: Path) -> Flow:
    """Call the first tool with other arguments."""
    flow = chat()
    return lambda request, effects: flow(
        request, replace(effects, tools=OtherArguments(effects.tools))
    )


def dropped_frame(_: Path) -> Flow:
    """Lose the frame that says that the first tool is done."""

    async def dropping(request: Any, effects: Effects) -> AsyncIterator[Event]:
        lost = False
        async for event in chat()(request, effects):
            news = event.tool_call_feedback if isinstance(event, Send) else msgspec.UNSET
            done = not isinstance(news, msgspec.UnsetType) and news.status == "done"
            if done and not lost:
                lost = True
                continue
            yield event

    return dropping


def wrong_final_text(_: Path) -> Flow:
    """End with another text than the one that was streamed."""

    def wrong(event: Event) -> Event:
        return Success(event.content + " (planted)") if isinstance(event, Success) else event

    return mapped(chat(), wrong)


def frame_after_end(_: Path) -> Flow:
    """Go on after the end."""

    async def more(request: Any, effects: Effects) -> AsyncIterator[Event]:
        async for event in chat()(request, effects):
            yield event
            if isinstance(event, End):
                yield Send("still here")

    return more


Plant = Callable[[Path], Flow]


def served(cases: Iterable[Case], graph: Flow | None = None) -> list[list[RunRecord]]:
    """Serve cases on legacy, graph in the shadow; returns the lines of each exchange."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return [batch for one in cases for batch in runner.run(_serve(one, graph))]


async def _serve(one: Case, graph: Flow | None) -> list[list[RunRecord]]:
    async with House(one, Rules(shadow=100.0), graph=graph or GRAPH["chat"]) as house:
        await house.ask()
    return house.captured.batches


def captured(batches: list[list[RunRecord]], folder: Path) -> Path:
    """Write exchanges down as the router does."""
    asyncio.run(_write(batches, folder))
    return folder


async def _write(batches: list[list[RunRecord]], folder: Path) -> None:
    writer = CaptureWriter(CaptureSettings(path=str(folder)), SPECS, salt="planted")
    for batch in batches:
        writer.put(batch)
    await writer.aclose(30.0)


def with_tools() -> Case:
    """Return a case in which a tool is called and the answer ends well."""
    return next(one for one in map(case, range(PLAIN, 1_000)) if _fits(one))


def _fits(one: Case) -> bool:
    (batch,) = served([one])
    serving = batch[0]
    labels = [f"{play.port}.{play.op}" for play in serving.plays]
    done = any('"done"' in text for _, text in serving.frames)
    return serving.outcome == "completed" and "tools.run" in labels and done
