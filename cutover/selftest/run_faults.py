"""Faults in runs: a recorded run spoilt beside a sound one, and the one cause of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from msgspec.structs import replace as replaced

from compare.findings import Layer
from contract import operations as ops
from contract.flows.chat import Accept, ChatEvent, End, Failed, Send, Success, ToolFeedback
from contract.model import ModelCall, ToolCall, UserMessage
from contract.records import ErrorRecord
from contract.stores import MemoryEntry, Remember, Remembered
from cutover.selftest.exchanges import WEATHER, Events, Script, ScriptedCall, tool

T = TypeVar("T")
FaultPlace = Literal["run", "code"]
FaultTable = Mapping[tuple[Layer, str], Mapping[str, T]]
"""What is spoilt, by the layer and kind of its cause and by name."""
Upset = Callable[[list[ScriptedCall]], list[ScriptedCall]]

TOOLS = (tool(0), tool(1, '{"city":"上海"}'))
SOUND = Script(tools=TOOLS)
"""Two tools, then six pieces of text: ACCEPT, START_REPLY, 4 × feedback, 6 × SEND, SUCCESS, END."""


@dataclass(frozen=True)
class RunFault:
    """A spoilt script beside a sound one, and the layer and kind of the one cause."""

    name: str
    script: Script
    sound: Script
    layer: Layer
    kind: str
    place: FaultPlace = "run"


def drop(*indices: int) -> Callable[[Events], Events]:
    """Leave out the events of some indices."""
    return lambda events: [event for k, event in enumerate(events) if k not in indices]


def add(index: int, event: ChatEvent) -> Callable[[Events], Events]:
    """Insert an event."""
    return lambda events: [*events[:index], event, *events[index:]]


def put(index: int, event: ChatEvent) -> Callable[[Events], Events]:
    """Replace an event."""
    return lambda events: [*events[:index], event, *events[index + 1 :]]


def swap(a: int, b: int) -> Callable[[Events], Events]:
    """Exchange two events."""
    return lambda e: [e[b] if k == a else e[a] if k == b else event for k, event in enumerate(e)]


def tools_swapped(asked: list[ScriptedCall]) -> list[ScriptedCall]:
    """Call the tools in the opposite order."""
    tools = iter([call for call in asked if call.operation is ops.TOOLS_RUN][::-1])
    return [next(tools) if call.operation is ops.TOOLS_RUN else call for call in asked]


def reply_first(asked: list[ScriptedCall]) -> list[ScriptedCall]:
    """Store the reply before the lock is taken: writes in another order."""
    return [asked[-2], *asked[:-2], asked[-1]]


def without(operation: ops.Operation) -> Upset:
    """Leave out every call of an operation."""
    return lambda asked: [call for call in asked if call.operation is not operation]


def twice(operation: ops.Operation) -> Upset:
    """Make the calls of an operation once more at the end."""
    return lambda asked: [*asked, *(call for call in asked if call.operation is operation)]


def unasked(asked: list[ScriptedCall]) -> list[ScriptedCall]:
    """Leave the user's message out of every question to the model."""
    return [
        replace(call, arguments=replaced(call.arguments, messages=tuple(kept)))
        if isinstance(call.arguments, ModelCall)
        and (kept := [it for it in call.arguments.messages if not isinstance(it, UserMessage)])
        else call
        for call in asked
    ]


def elsewhere(asked: list[ScriptedCall]) -> list[ScriptedCall]:
    """Ask for ids at another site."""
    return [replace(c, site="answer") if c.operation is ops.IDS_NEW else c for c in asked]


def cut_short(events: Events) -> Events:
    """End as a crash does: no text after the third piece, and an honest failure."""
    return [*events[:9], Failed(), End()]


def _run_faults(table: FaultTable[Script | tuple[Script, Script]]) -> tuple[RunFault, ...]:
    """Return the faults of a table; a script alone stands beside `SOUND`."""
    return tuple(
        RunFault(name, *(scripts if isinstance(scripts, tuple) else (scripts, SOUND)), layer, kind)
        for (layer, kind), named in table.items()
        for name, scripts in named.items()
    )


FAULTS = _run_faults(
    {
        ("effects", "prompt_changed"): {
            "prompt": SOUND.but(system="你是一个冷淡的助手。"),
            "user": SOUND.but(user="北京天气怎么样？"),
            "message lost": SOUND.but(upset=unasked),
        },
        ("effects", "parameter_changed"): {"temperature": SOUND.but(temperature=0.2)},
        ("effects", "tool_arguments"): {
            "tool argument": SOUND.but(tools=(tool(0, '{"city":"天津"}'), TOOLS[1])),
            "tool id": SOUND.but(
                tools=(ToolCall("other", TOOLS[0].name, TOOLS[0].arguments), TOOLS[1])
            ),
        },
        ("effects", "tool_order"): {"tool order": SOUND.but(upset=tools_swapped)},
        ("effects", "tool_dropped"): {"tool dropped": SOUND.but(tools=TOOLS[:1])},
        ("effects", "tool_added"): {"tool added": SOUND.but(tools=(*TOOLS, tool(2)))},
        ("effects", "write_order"): {"write order": SOUND.but(upset=reply_first)},
        ("effects", "write_changed"): {"write changed": SOUND.but(stored="别的")},
        ("effects", "call_skipped"): {"no reply id": SOUND.but(upset=without(ops.IDS_NEW))},
        ("effects", "call_extra"): {"clock read twice": SOUND.but(upset=twice(ops.CLOCK_NOW))},
        ("effects", "site_changed"): {"site": SOUND.but(upset=elsewhere)},
        ("frames", "frame_dropped"): {
            "first text frame dropped": SOUND.but(spoil=drop(6)),
            "text frame dropped": SOUND.but(spoil=drop(7)),
            "two text frames dropped": SOUND.but(spoil=drop(7, 8)),
            "last text frame dropped": SOUND.but(spoil=drop(11)),
            "feedback dropped": SOUND.but(spoil=drop(3)),
            "START_REPLY dropped": SOUND.but(spoil=drop(1)),
        },
        ("frames", "frame_added"): {"text frame twice": SOUND.but(spoil=add(7, Send(WEATHER[0])))},
        ("frames", "frame_changed"): {
            "feedback status": SOUND.but(
                spoil=put(4, Send("", tool_call_feedback=ToolFeedback("get_weather", "error")))
            ),
        },
        ("frames", "frame_moved"): {"feedback moved": SOUND.but(spoil=swap(3, 4))},
        ("text", "text_changed"): {
            "wrong final text": SOUND.but(final="今天北京雨。"),
            "longer final text": SOUND.but(final=f"{SOUND.text}！"),
            "wrong text, stored too": SOUND.but(pieces=("今天北京雨，", *WEATHER[1:])),
        },
        ("text", "text_late"): {
            "text before its time": SOUND.but(
                spoil=put(5, Send("今", tool_call_feedback=ToolFeedback("get_weather", "done")))
            ),
        },
        ("grammar", "grammar_broken"): {
            "text taken back": SOUND.but(
                spoil=put(4, Send("今", tool_call_feedback=ToolFeedback("get_weather", "done")))
            ),
            "frame after END": SOUND.but(spoil=add(99, Send("x"))),
            "frame after END, as the driver ends it": SOUND.but(
                spoil=add(99, Send(SOUND.text)), outcome="truncated", error=ErrorRecord("truncated")
            ),
            "frame after END, refused as it came": SOUND.but(
                outcome="failed", error=ErrorRecord("grammar", "SEND")
            ),
            "END twice": SOUND.but(spoil=add(99, End())),
            "ACCEPT twice": SOUND.but(spoil=add(1, Accept())),
            "SUCCESS twice": SOUND.but(spoil=add(13, Success(SOUND.text))),
        },
        ("outcome", "outcome_changed"): {
            "END dropped": SOUND.but(
                spoil=drop(13), outcome="truncated", error=ErrorRecord("truncated")
            ),
            "crash": SOUND.but(
                spoil=cut_short,
                upset=without(ops.TURN_PUT),
                outcome="failed",
                error=ErrorRecord("crash", "KeyError"),
            ),
        },
    }
)


FACT = MemoryEntry(memory_id="f-1", user_id="u-1", text="住在北京")


def _remember(*facts: MemoryEntry, times: int = 1) -> Upset:
    """Write to memory before the reply is stored."""
    call = ScriptedCall(ops.MEMORY_WRITE, "learn", Remember(facts), (Remembered(len(facts)),))
    return lambda asked: [*asked[:-3], *[call] * times, *asked[-3:]]


def _asking(**changes: object) -> Upset:
    """Change the model call of every round."""
    return lambda asked: [
        replace(it, arguments=replaced(it.arguments, **changes))
        if isinstance(it.arguments, ModelCall)
        else it
        for it in asked
    ]


def _reasoned(*thoughts: str) -> Callable[[Events], Events]:
    """Send reasoning with the pieces of text, cumulative as they are; the last one stays."""

    def spoil(events: Events) -> Events:
        count, spoilt = 0, list(events)
        for k, event in enumerate(events):
            if isinstance(event, Send) and event.content:
                count += 1
                spoilt[k] = replaced(event, reason_content="".join(thoughts[:count]))
        return spoilt

    return spoil


def _late_error(events: Events) -> Events:
    """Send the whole text, then fail."""
    return [Failed() if isinstance(event, Success) else event for event in events]


def _half_a_character(events: Events) -> Events:
    """Cut a piece of text in the middle of a character's bytes."""
    cut = WEATHER[0].encode()[:-1].decode("utf-8", "replace")
    return [*events[:6], Send(cut), *events[7:]]


def _refused(status: int, detail: str) -> Script:
    """Refuse before the first event."""
    error = ErrorRecord("message_locked", status=status, detail=detail)
    return SOUND.but(spoil=lambda _: [], upset=lambda _: [], outcome="refused", error=error)


_BUSY = "this message is being answered already"
FAILING = SOUND.but(spoil=_late_error, outcome="failed", error=ErrorRecord("model_error"))
TRUNCATED = SOUND.but(spoil=drop(13), outcome="truncated", error=ErrorRecord("truncated"))
THINKING = SOUND.but(spoil=_reasoned("要查天气。", "查到了。"))
LEARNING = SOUND.but(upset=_remember(FACT))


BEYOND = _run_faults(
    {
        ("effects", "prompt_changed"): {
            "white space in a prompt": SOUND.but(system=SOUND.system.replace("。\n", "。 \n")),
            "line end in a prompt": SOUND.but(system=SOUND.system.replace("\n", "\r\n")),
        },
        ("effects", "parameter_changed"): {
            "wrong model": SOUND.but(upset=_asking(model_id="gpt-4.1-mini")),
            "token limit": SOUND.but(upset=_asking(max_tokens=16)),
        },
        ("effects", "call_extra"): {
            "memory written twice": (LEARNING.but(upset=_remember(FACT, times=2)), LEARNING),
        },
        ("effects", "call_skipped"): {"memory not written": (SOUND, LEARNING)},
        ("effects", "write_changed"): {
            "something else remembered": (
                LEARNING.but(upset=_remember(replaced(FACT, text="住在上海"))),
                LEARNING,
            ),
            "another user's memory": (
                LEARNING.but(upset=_remember(replaced(FACT, user_id="u-2"))),
                LEARNING,
            ),
        },
        ("grammar", "grammar_broken"): {
            "half a character": SOUND.but(spoil=_half_a_character),
            "END missing on both sides": (TRUNCATED, TRUNCATED),
            "cut short on both sides, elsewhere in each": (
                TRUNCATED.but(spoil=drop(12, 13)),
                TRUNCATED,
            ),
        },
        ("outcome", "outcome_changed"): {"late error": FAILING.but(error=ErrorRecord("reported"))},
        ("outcome", "code_changed"): {
            "other code of one failure": (FAILING.but(error=ErrorRecord("deadline")), FAILING),
        },
        ("outcome", "refusal_changed"): {
            "another status": (_refused(423, _BUSY), _refused(409, _BUSY)),
            "a reworded refusal": (_refused(409, "try again later"), _refused(409, _BUSY)),
        },
        ("frames", "frame_changed"): {
            "feedback of another tool": SOUND.but(
                spoil=put(2, Send("", tool_call_feedback=ToolFeedback("get_time", "running")))
            ),
        },
        ("frames", "event_line_changed"): {
            "event lines added": SOUND.but(framed="event: step\n{}".format),
        },
        ("text", "reasoning_changed"): {
            "reasoning lost": (SOUND, THINKING),
            "reasoning cut short": (SOUND.but(spoil=_reasoned("要查天气。")), THINKING),
        },
    }
)

RUN_FAULTS = (*FAULTS, *BEYOND)
