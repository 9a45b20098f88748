"""Faults put into one stack on purpose, and the one cause each must be found as."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from compare.findings import Layer
from contract import operations as ops
from contract.flows.chat import Accept, ChatEvent, End, Failed, Send, Success, ToolFeedback
from contract.model import ToolCall
from contract.records import ErrorRecord
from cutover.selftest.exchanges import WEATHER, Asked, Events, Script, tool

TOOLS = (tool(0), tool(1, '{"city":"上海"}'))
SOUND = Script(tools=TOOLS)
"""Two tools, then six pieces of text: ACCEPT, START_REPLY, 4 × feedback, 6 × SEND, SUCCESS, END."""


@dataclass(frozen=True)
class Fault:
    """A spoilt script, and the layer and kind of its one cause."""

    name: str
    script: Script
    layer: Layer
    kind: str


def drop(*indices: int) -> Callable[[Events], Events]:
    """Leave events out."""
    return lambda events: [event for k, event in enumerate(events) if k not in indices]


def add(index: int, event: ChatEvent) -> Callable[[Events], Events]:
    """Put one event in."""
    return lambda events: [*events[:index], event, *events[index:]]


def put(index: int, event: ChatEvent) -> Callable[[Events], Events]:
    """Put one event in the place of another."""
    return lambda events: [*events[:index], event, *events[index + 1 :]]


def swap(a: int, b: int) -> Callable[[Events], Events]:
    """Let two events change places."""
    return lambda e: [e[b] if k == a else e[a] if k == b else event for k, event in enumerate(e)]


def tools_swapped(asked: list[Asked]) -> list[Asked]:
    """Call the tools in the opposite order."""
    tools = iter([call for call in asked if call.operation is ops.TOOLS_RUN][::-1])
    return [next(tools) if call.operation is ops.TOOLS_RUN else call for call in asked]


def reply_first(asked: list[Asked]) -> list[Asked]:
    """Store the reply before the lock is taken: writes in another order."""
    return [asked[-2], *asked[:-2], asked[-1]]


def without(operation: ops.Operation) -> Callable[[list[Asked]], list[Asked]]:
    """Leave out every call of an operation."""
    return lambda asked: [call for call in asked if call.operation is not operation]


def twice(operation: ops.Operation) -> Callable[[list[Asked]], list[Asked]]:
    """Make the calls of an operation once more at the end."""
    return lambda asked: [*asked, *(call for call in asked if call.operation is operation)]


def elsewhere(asked: list[Asked]) -> list[Asked]:
    """Name another site for the ids."""
    return [replace(c, site="answer") if c.operation is ops.IDS_NEW else c for c in asked]


def cut_short(events: Events) -> Events:
    """End as a crash does: no text after the third piece, and an honest failure."""
    return [*events[:9], Failed(), End()]


FAULTS = (
    Fault("prompt", SOUND.but(system="你是一个冷淡的助手。"), "effects", "prompt_changed"),
    Fault("user", SOUND.but(user="北京天气怎么样？"), "effects", "prompt_changed"),
    Fault("system and user", SOUND.but(system="冷", user="?"), "effects", "prompt_changed"),
    Fault("temperature", SOUND.but(temperature=0.2), "effects", "parameter_changed"),
    Fault(
        "tool argument",
        SOUND.but(tools=(tool(0, '{"city":"天津"}'), TOOLS[1])),
        "effects",
        "tool_arguments",
    ),
    Fault(
        "tool id",
        SOUND.but(tools=(ToolCall("other", TOOLS[0].name, TOOLS[0].arguments), TOOLS[1])),
        "effects",
        "tool_arguments",
    ),
    Fault("tool order", SOUND.but(upset=tools_swapped), "effects", "tool_order"),
    Fault("tool dropped", SOUND.but(tools=TOOLS[:1]), "effects", "tool_dropped"),
    Fault("tool added", SOUND.but(tools=(*TOOLS, tool(2))), "effects", "tool_added"),
    Fault("write order", SOUND.but(upset=reply_first), "effects", "write_order"),
    Fault("write changed", SOUND.but(stored="别的"), "effects", "write_changed"),
    Fault("no reply id", SOUND.but(upset=without(ops.IDS_NEW)), "effects", "call_skipped"),
    Fault("clock read twice", SOUND.but(upset=twice(ops.CLOCK_NOW)), "effects", "call_extra"),
    Fault("site", SOUND.but(upset=elsewhere), "effects", "site_changed"),
    Fault("first text frame dropped", SOUND.but(spoil=drop(6)), "frames", "frame_dropped"),
    Fault("text frame dropped", SOUND.but(spoil=drop(7)), "frames", "frame_dropped"),
    Fault("two text frames dropped", SOUND.but(spoil=drop(7, 8)), "frames", "frame_dropped"),
    Fault("last text frame dropped", SOUND.but(spoil=drop(11)), "frames", "frame_dropped"),
    Fault("feedback dropped", SOUND.but(spoil=drop(3)), "frames", "frame_dropped"),
    Fault("START_REPLY dropped", SOUND.but(spoil=drop(1)), "frames", "frame_dropped"),
    Fault("text frame twice", SOUND.but(spoil=add(7, Send(WEATHER[0]))), "frames", "frame_added"),
    Fault(
        "feedback status",
        SOUND.but(spoil=put(4, Send("", tool_call_feedback=ToolFeedback("get_weather", "error")))),
        "frames",
        "frame_changed",
    ),
    Fault("feedback moved", SOUND.but(spoil=swap(3, 4)), "frames", "frame_moved"),
    Fault("wrong final text", SOUND.but(final="今天北京雨。"), "text", "text_changed"),
    Fault("longer final text", SOUND.but(final=f"{SOUND.text}！"), "text", "text_changed"),
    Fault(
        "wrong text, stored too",
        SOUND.but(pieces=("今天北京雨，", *WEATHER[1:])),
        "text",
        "text_changed",
    ),
    Fault(
        "text before its time",
        SOUND.but(spoil=put(5, Send("今", tool_call_feedback=ToolFeedback("get_weather", "done")))),
        "text",
        "text_late",
    ),
    Fault(
        "text taken back",
        SOUND.but(spoil=put(4, Send("今", tool_call_feedback=ToolFeedback("get_weather", "done")))),
        "grammar",
        "grammar_broken",
    ),
    Fault("frame after END", SOUND.but(spoil=add(99, Send("x"))), "grammar", "grammar_broken"),
    Fault(
        "frame after END, as the driver ends it",
        SOUND.but(
            spoil=add(99, Send(SOUND.text)), outcome="truncated", error=ErrorRecord("truncated")
        ),
        "grammar",
        "grammar_broken",
    ),
    Fault(
        "frame after END, refused as it came",
        SOUND.but(outcome="failed", error=ErrorRecord("grammar", "SEND")),
        "grammar",
        "grammar_broken",
    ),
    Fault("END twice", SOUND.but(spoil=add(99, End())), "grammar", "grammar_broken"),
    Fault("ACCEPT twice", SOUND.but(spoil=add(1, Accept())), "grammar", "grammar_broken"),
    Fault(
        "SUCCESS twice",
        SOUND.but(spoil=add(13, Success(SOUND.text))),
        "grammar",
        "grammar_broken",
    ),
    Fault(
        "END dropped",
        SOUND.but(spoil=drop(13), outcome="truncated", error=ErrorRecord("truncated")),
        "outcome",
        "outcome_changed",
    ),
    Fault(
        "crash",
        SOUND.but(
            spoil=cut_short,
            upset=without(ops.TURN_PUT),
            outcome="failed",
            error=ErrorRecord("crash", "KeyError"),
        ),
        "outcome",
        "outcome_changed",
    ),
)
