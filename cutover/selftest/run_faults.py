"""Faults in runs: a recorded run spoilt beside a sound one, beyond those in `seeded`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from contract import operations as ops
from contract.flows.chat import Failed, Send, Success, ToolFeedback
from contract.model import ModelCall
from contract.records import ErrorRecord
from contract.stores import MemoryEntry, Remember, Remembered
from cutover.selftest.exchanges import WEATHER, Asked
from cutover.selftest.faults import RunFault
from cutover.selftest.seeded import FAULTS, SOUND, drop, put

if TYPE_CHECKING:
    from collections.abc import Callable

    from cutover.selftest.exchanges import Events

    Upset = Callable[[list[Asked]], list[Asked]]

FACT = MemoryEntry(memory_id="f-1", user_id="u-1", text="住在北京")


def _remember(*facts: MemoryEntry, times: int = 1) -> Upset:
    """Write to memory before the reply is stored."""
    call = Asked(ops.MEMORY_WRITE, "learn", Remember(facts), (Remembered(len(facts)),))
    return lambda asked: [*asked[:-3], *[call] * times, *asked[-3:]]


def _asking(change: Callable[[ModelCall], ModelCall]) -> Upset:
    """Ask the model something else, in every round."""

    def upset(asked: list[Asked]) -> list[Asked]:
        return [
            Asked(it.operation, it.site, change(it.arguments), it.items)
            if isinstance(it.arguments, ModelCall)
            else it
            for it in asked
        ]

    return upset


def _reasoned(*thoughts: str) -> Callable[[Events], Events]:
    """Send reasoning with the pieces of text, cumulative as they are; the last one stays."""

    def spoil(events: Events) -> Events:
        count, spoilt = 0, list(events)
        for k, event in enumerate(events):
            if isinstance(event, Send) and event.content:
                count += 1
                spoilt[k] = replace(event, reason_content="".join(thoughts[:count]))
        return spoilt

    return spoil


def _late_error(events: Events) -> Events:
    """Say all of it, and fail."""
    return [Failed() if isinstance(event, Success) else event for event in events]


def _half_a_character(events: Events) -> Events:
    """Cut a piece of text in the middle of a character's bytes."""
    cut = WEATHER[0].encode()[:-1].decode("utf-8", "replace")
    return [*events[:6], Send(cut), *events[7:]]


TRUNCATED = SOUND.but(spoil=drop(13), outcome="truncated", error=ErrorRecord("truncated"))
THINKING = SOUND.but(spoil=_reasoned("要查天气。", "查到了。"))
LEARNING = SOUND.but(upset=_remember(FACT))


BEYOND = (
    RunFault(
        "white space in a prompt",
        SOUND.but(system=SOUND.system.replace("。\n", "。 \n")),
        "effects",
        "prompt_changed",
        SOUND,
    ),
    RunFault(
        "line end in a prompt",
        SOUND.but(system=SOUND.system.replace("\n", "\r\n")),
        "effects",
        "prompt_changed",
        SOUND,
    ),
    RunFault(
        "wrong model",
        SOUND.but(upset=_asking(lambda call: replace(call, model_id="gpt-4.1-mini"))),
        "effects",
        "parameter_changed",
        SOUND,
    ),
    RunFault(
        "token limit",
        SOUND.but(upset=_asking(lambda call: replace(call, max_tokens=16))),
        "effects",
        "parameter_changed",
        SOUND,
    ),
    RunFault(
        "memory written twice",
        LEARNING.but(upset=_remember(FACT, times=2)),
        "effects",
        "call_extra",
        LEARNING,
    ),
    RunFault("memory not written", SOUND, "effects", "call_skipped", LEARNING),
    RunFault(
        "something else remembered",
        LEARNING.but(upset=_remember(replace(FACT, text="住在上海"))),
        "effects",
        "write_changed",
        LEARNING,
    ),
    RunFault(
        "another user's memory",
        LEARNING.but(upset=_remember(replace(FACT, user_id="u-2"))),
        "effects",
        "write_changed",
        LEARNING,
    ),
    RunFault("reasoning lost", SOUND, "text", "reasoning_changed", THINKING),
    RunFault(
        "reasoning cut short",
        SOUND.but(spoil=_reasoned("要查天气。")),
        "text",
        "reasoning_changed",
        THINKING,
    ),
    RunFault(
        "half a character",
        SOUND.but(spoil=_half_a_character),
        "grammar",
        "grammar_broken",
        SOUND,
    ),
    RunFault("END missing on both sides", TRUNCATED, "grammar", "grammar_broken", TRUNCATED),
    RunFault(
        "cut short on both sides, elsewhere in each",
        SOUND.but(spoil=drop(12, 13), outcome="truncated", error=ErrorRecord("truncated")),
        "grammar",
        "grammar_broken",
        TRUNCATED,
    ),
    RunFault(
        "late error",
        SOUND.but(spoil=_late_error, outcome="failed", error=ErrorRecord("reported")),
        "outcome",
        "outcome_changed",
        SOUND,
    ),
    RunFault(
        "other code of one failure",
        SOUND.but(spoil=_late_error, outcome="failed", error=ErrorRecord("deadline")),
        "outcome",
        "code_changed",
        SOUND.but(spoil=_late_error, outcome="failed", error=ErrorRecord("model_error")),
    ),
    RunFault(
        "feedback of another tool",
        SOUND.but(spoil=put(2, Send("", tool_call_feedback=ToolFeedback("get_time", "running")))),
        "frames",
        "frame_changed",
        SOUND,
    ),
)

RUN_FAULTS = (
    *(RunFault(fault.name, fault.script, fault.layer, fault.kind, SOUND) for fault in FAULTS),
    *BEYOND,
)
