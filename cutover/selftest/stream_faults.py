"""Faults in code: the graph stack sends something else than it should."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from msgspec import UNSET
from msgspec.structs import replace

from compare.findings import Layer
from contract.errors import CutoverError, Refused
from contract.flow import Event, Flow, Request
from contract.flows.chat import (
    Accept,
    ChatOptions,
    ChatRequest,
    End,
    Failed,
    ModelOverrides,
    Send,
    Success,
    ToolFeedback,
)
from contract.model import Chunk, ModelInfo, ToolCallDelta
from contract.ports import Effects
from contract.stores import Turn
from cutover.selftest.cases import Case
from cutover.selftest.run_faults import FaultPlace, FaultTable
from effects.model import Wait

FlowWrapper = Callable[[Flow], Flow]

PIECES = ("今天北京晴，", "气温二十一度，", "微风。", "你下午没有安排，", "适合出门散步。")

SCENE = Case(
    ChatRequest(
        message_id="m-1",
        content="北京天气怎么样？我下午有空吗？",
        user_name="小明",
        chat_id="c-1",
        user_id="u-1",
        model_config=ModelOverrides(temperature=0.7, max_tokens=512),
    ),
    ChatOptions(wire="extended"),
    answers=(
        (
            Chunk(reasoning="要查天气，"),
            Wait(0.6),
            Chunk(reasoning="也要查日程。"),
            Chunk(text="我查一下。"),
            Chunk(tool_calls=(ToolCallDelta(0, "c1", "weather", '{"city":"北京"}'),)),
            Chunk(tool_calls=(ToolCallDelta(1, "c2", "calendar", '{"day":"今天"}'),)),
            Chunk(finish="tool_calls"),
        ),
        (
            Chunk(reasoning="可以回答了。"),
            *(step for piece in PIECES for step in (Wait(0.6), Chunk(text=piece))),
            Chunk(finish="stop"),
        ),
    ),
    turns=(
        Turn(message_id="h-1", role="user", content="你好", chat_id="c-1", user_name="小明"),
        Turn(message_id="h-2", role="assistant", content="你好，小明！", chat_id="c-1"),
    ),
    tools={"weather": "晴，21 度", "calendar": "下午没有安排"},
    models=(ModelInfo(model_id="gpt-4.1", model="m-1"),),
)
"""A chat with a past, two tools, reasoning and a long answer, in which code faults are tried."""

START_REPLY, RUNNING, DONE, DONE_TOO = 1, 5, 7, 8
A_PIECE, LAST_PIECE, SUCCESS, END = 11, 13, 14, 15
"""Indices of the scene's events."""


@dataclass(frozen=True)
class CodeFault:
    """A wrapper that spoils a flow, and the layer and kind of the one cause."""

    name: str
    wrap: FlowWrapper
    layer: Layer
    kind: str
    place: FaultPlace = "code"


def code_faults(table: FaultTable[FlowWrapper]) -> tuple[CodeFault, ...]:
    """Return the faults of a table."""
    return tuple(
        CodeFault(name, wrap, layer, kind)
        for (layer, kind), wrappers in table.items()
        for name, wrap in wrappers.items()
    )


class Planted(CutoverError):
    """The crash the self-test plants."""


Rewrite = Callable[[list[Event], Any], Iterable[Event]]
"""Returns what replaces an event; gets the events the stack has produced before it."""


Transform = Callable[[AsyncIterator[Event]], AsyncGenerator[Event, None]]
"""Yields other events than a stack's."""


def closing(events: AsyncIterator[Event]) -> aclosing[AsyncGenerator[Event, None]]:
    """Return a block at whose end a flow's events are closed, wherever their reader stopped."""
    return aclosing(cast("AsyncGenerator[Event, None]", events))


def transformed(transform: Transform) -> FlowWrapper:
    """Return a wrapper that puts a transform behind a flow."""

    def wrap(flow: Flow) -> Flow:
        async def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
            async with (
                closing(flow(request, effects)) as events,
                closing(transform(events)) as sent,
            ):
                async for event in sent:
                    yield event

        return wrapped

    return wrap


def rewritten(rewrite: Rewrite) -> FlowWrapper:
    """Return a wrapper that replaces the events of a flow."""

    async def transform(events: AsyncIterator[Event]) -> AsyncGenerator[Event, None]:
        before: list[Event] = []
        async for event in events:
            for other in rewrite(before, event):
                yield other
            before.append(event)

    return transformed(transform)


def _at(index: int, rewrite: Rewrite) -> FlowWrapper:
    """Replace the event of an index."""
    return rewritten(
        lambda before, event: rewrite(before, event) if len(before) == index else (event,)
    )


def _changed(index: int, change: Callable[[Any], Event]) -> FlowWrapper:
    """Change the event of an index."""
    return _at(index, lambda _, event: (change(event),))


def _lost(index: int) -> FlowWrapper:
    return _at(index, lambda *_: ())


def _doubled(index: int) -> FlowWrapper:
    return _at(index, lambda _, event: (event, event))


def _swapped(index: int) -> FlowWrapper:
    """Send the event of an index behind its successor."""

    def swap(before: list[Event], event: Event) -> Iterable[Event]:
        if len(before) == index:
            return ()
        return (event, before[index]) if len(before) == index + 1 else (event,)

    return rewritten(swap)


def _each(kind: type[Event], change: Callable[[Any], Event]) -> FlowWrapper:
    """Change every event of a kind."""
    return rewritten(lambda _, event: (change(event) if isinstance(event, kind) else event,))


def _texts(change: Callable[[str], str]) -> FlowWrapper:
    """Change every text, SUCCESS too."""

    def changed(event: Send | Success) -> Event:
        return replace(event, content=change(event.content))

    sends, success = _each(Send, changed), _each(Success, changed)
    return lambda flow: sends(success(flow))


def _piece_only(before: list[Event], event: Event) -> Iterable[Event]:
    """Send only the new text instead of all of it."""
    last = before[-1] if before else event
    if isinstance(event, Send) and isinstance(last, Send):
        return (replace(event, content=event.content.removeprefix(last.content)),)
    return (event,)


def _half_a_character(event: Send) -> Event:
    """Cut the text's bytes, not its characters."""
    return replace(event, content=event.content.encode()[:-1].decode("utf-8", "replace"))


def _failing_tool(event: Send) -> Event:
    return replace(event, tool_call_feedback=ToolFeedback("weather", "error"))


def _crash(*_: object) -> Iterable[Event]:
    raise Planted


def _refuse(*_: object) -> Iterable[Event]:
    raise Refused(409, "message_locked")


STREAM_FAULTS = code_faults(
    {
        ("frames", "frame_dropped"): {
            "last chunk lost": _lost(LAST_PIECE),
            "chunk lost in the middle": _lost(A_PIECE),
            "START_REPLY lost": _lost(START_REPLY),
            "tool feedback lost": _lost(DONE),
            "last tool feedback lost": _lost(DONE_TOO),
            "ACCEPT missing": _lost(0),
        },
        ("frames", "frame_added"): {
            "last chunk twice": _doubled(LAST_PIECE),
            "chunk twice in the middle": _doubled(A_PIECE),
            "tool feedback twice": _doubled(DONE),
        },
        ("frames", "frame_moved"): {"tool feedback swapped": _swapped(RUNNING)},
        ("frames", "frame_changed"): {"tool said to have failed": _changed(DONE, _failing_tool)},
        ("outcome", "outcome_changed"): {
            "END missing": _lost(END),
            "late error": _changed(SUCCESS, lambda _: Failed("model_error")),
            "crash at once": _at(0, _crash),
            "crash in the middle": _at(A_PIECE, _crash),
            "crash at the end": _at(END, _crash),
            "refusal": _at(0, _refuse),
        },
        ("grammar", "grammar_broken"): {
            "END twice": _doubled(END),
            "ACCEPT twice": _doubled(0),
            "SUCCESS twice": _doubled(SUCCESS),
            "START_REPLY before ACCEPT": _swapped(0),
            "frame after END": _at(END, lambda *_: (End(), Send("还有"))),
            "END before SUCCESS": _at(SUCCESS, lambda _, e: (End(), e)),
            "text shrinks": _changed(A_PIECE, lambda it: replace(it, content=it.content[:8])),
            "pieces instead of the whole": rewritten(_piece_only),
            "half a character": _changed(A_PIECE, _half_a_character),
            "ACCEPT for START_REPLY": _changed(START_REPLY, lambda _: Accept()),
        },
        ("text", "text_changed"): {
            "wrong finish text": _each(Success, lambda _: Success("再见。")),
            "finish text cut short": _each(Success, lambda it: Success(it.content[:-1])),
            "finish text empty": _each(Success, lambda _: Success("")),
            "other punctuation": _texts(lambda text: text.replace("，", ",")),
            "white space stripped": _texts(lambda t: f"{t} "),
        },
        ("text", "reasoning_changed"): {
            "reasoning emptied": _each(Send, lambda it: replace(it, reason_content="")),
            "reasoning lost": _each(Send, lambda it: replace(it, reason_content=UNSET)),
            "reasoning cut short": _each(
                Send, lambda it: replace(it, reason_content=str(it.reason_content)[:5])
            ),
        },
    }
)
