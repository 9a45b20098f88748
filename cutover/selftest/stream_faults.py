"""Faults in code: the graph stack sends something else than it should. Indices: see `scene`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from contract.errors import CutoverError, Refused
from contract.flows.chat import Accept, End, Failed, Send, Success, ToolFeedback
from cutover.selftest.faults import CodeFault
from cutover.selftest.meddling import rewritten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from contract.flow import Event
    from cutover.selftest.meddling import Meddle

START_REPLY, REASONING, RUNNING, RUNNING_TOO, DONE, DONE_TOO = 1, 2, 5, 6, 7, 8
FIRST_PIECE, A_PIECE, LAST_PIECE, SUCCESS, END = 9, 11, 13, 14, 15


class Planted(CutoverError):
    """The crash the self-test plants."""


def _at(index: int, change: Callable[[list[Event], Event], Iterable[Event]]) -> Meddle:
    """Let something else stand for the event of an index."""
    return rewritten(
        lambda before, event: change(before, event) if len(before) == index else (event,)
    )


def _lost(index: int) -> Meddle:
    return _at(index, lambda *_: ())


def _doubled(index: int) -> Meddle:
    return _at(index, lambda _, event: (event, event))


def _swapped(index: int) -> Meddle:
    """Send the event of an index behind its successor."""

    def swap(before: list[Event], event: Event) -> Iterable[Event]:
        if len(before) == index:
            return ()
        return (event, before[index]) if len(before) == index + 1 else (event,)

    return rewritten(swap)


def _sends(change: Callable[[Send], Event]) -> Meddle:
    """Change every SEND."""
    return rewritten(lambda _, event: (change(event) if isinstance(event, Send) else event,))


def _texts(change: Callable[[str], str]) -> Meddle:
    """Change every text, SUCCESS too."""

    def changed(_: list[Event], event: Event) -> Iterable[Event]:
        if isinstance(event, Send | Success):
            return (replace(event, content=change(event.content)),)
        return (event,)

    return rewritten(changed)


def _final(change: Callable[[str], str]) -> Meddle:
    """Change the finished text."""

    def finish(_: list[Event], event: Event) -> Iterable[Event]:
        return (Success(change(event.content)),) if isinstance(event, Success) else (event,)

    return rewritten(finish)


def _piece_only(before: list[Event], event: Event) -> Iterable[Event]:
    """Send what is new instead of all there is."""
    last = before[-1] if before else event
    if isinstance(event, Send) and isinstance(last, Send):
        return (replace(event, content=event.content.removeprefix(last.content)),)
    return (event,)


def _shorter(_: list[Event], event: Event) -> Iterable[Event]:
    return (replace(event, content=event.content[:8]),) if isinstance(event, Send) else (event,)


def _half_a_character(_: list[Event], event: Event) -> Iterable[Event]:
    """Cut the text's bytes, not its characters."""
    if not isinstance(event, Send):
        return (event,)
    return (replace(event, content=event.content.encode()[:-1].decode("utf-8", "replace")),)


def _failing_tool(_: list[Event], event: Event) -> Iterable[Event]:
    if not isinstance(event, Send):
        return (event,)
    return (replace(event, tool_call_feedback=ToolFeedback("weather", "error")),)


def _crash(*_: object) -> Iterable[Event]:
    raise Planted


def _refuse(*_: object) -> Iterable[Event]:
    raise Refused(409, "message_locked")


STREAM_FAULTS = (
    CodeFault("last chunk lost", _lost(LAST_PIECE), "frames", "frame_dropped"),
    CodeFault("chunk lost in the middle", _lost(A_PIECE), "frames", "frame_dropped"),
    CodeFault("last chunk twice", _doubled(LAST_PIECE), "frames", "frame_added"),
    CodeFault("chunk twice in the middle", _doubled(A_PIECE), "frames", "frame_added"),
    CodeFault("START_REPLY lost", _lost(START_REPLY), "frames", "frame_dropped"),
    CodeFault("tool feedback lost", _lost(DONE), "frames", "frame_dropped"),
    CodeFault("last tool feedback lost", _lost(DONE_TOO), "frames", "frame_dropped"),
    CodeFault("tool feedback twice", _doubled(DONE), "frames", "frame_added"),
    CodeFault("tool feedback swapped", _swapped(RUNNING), "frames", "frame_moved"),
    CodeFault("tool said to have failed", _at(DONE, _failing_tool), "frames", "frame_changed"),
    CodeFault("END missing", _lost(END), "outcome", "outcome_changed"),
    CodeFault("END twice", _doubled(END), "grammar", "grammar_broken"),
    CodeFault("ACCEPT twice", _doubled(0), "grammar", "grammar_broken"),
    CodeFault("SUCCESS twice", _doubled(SUCCESS), "grammar", "grammar_broken"),
    CodeFault("ACCEPT missing", _lost(0), "frames", "frame_dropped"),
    CodeFault("START_REPLY before ACCEPT", _swapped(0), "grammar", "grammar_broken"),
    CodeFault(
        "frame after END", _at(END, lambda *_: (End(), Send("还有"))), "grammar", "grammar_broken"
    ),
    CodeFault(
        "END before SUCCESS", _at(SUCCESS, lambda _, e: (End(), e)), "grammar", "grammar_broken"
    ),
    CodeFault("text shrinks", _at(A_PIECE, _shorter), "grammar", "grammar_broken"),
    CodeFault("pieces instead of the whole", rewritten(_piece_only), "grammar", "grammar_broken"),
    CodeFault("half a character", _at(A_PIECE, _half_a_character), "grammar", "grammar_broken"),
    CodeFault("wrong finish text", _final(lambda _: "再见。"), "text", "text_changed"),
    CodeFault("finish text cut short", _final(lambda text: text[:-1]), "text", "text_changed"),
    CodeFault("finish text empty", _final(lambda _: ""), "text", "text_changed"),
    CodeFault(
        "other punctuation", _texts(lambda text: text.replace("，", ",")), "text", "text_changed"
    ),
    CodeFault("white space stripped", _texts(lambda t: f"{t} "), "text", "text_changed"),
    CodeFault(
        "reasoning emptied",
        _sends(lambda send: replace(send, reason_content="")),
        "text",
        "reasoning_changed",
    ),
    CodeFault(
        "reasoning lost",
        _sends(lambda send: replace(send, reason_content=UNSET)),
        "text",
        "reasoning_changed",
    ),
    CodeFault(
        "reasoning cut short",
        _sends(lambda send: replace(send, reason_content=str(send.reason_content)[:5])),
        "text",
        "reasoning_changed",
    ),
    CodeFault(
        "late error",
        _at(SUCCESS, lambda *_: (Failed("model_error"),)),
        "outcome",
        "outcome_changed",
    ),
    CodeFault("crash at once", _at(0, _crash), "outcome", "outcome_changed"),
    CodeFault("crash in the middle", _at(A_PIECE, _crash), "outcome", "outcome_changed"),
    CodeFault("crash at the end", _at(END, _crash), "outcome", "outcome_changed"),
    CodeFault("refusal", _at(0, _refuse), "outcome", "outcome_changed"),
    CodeFault(
        "ACCEPT for START_REPLY", _at(1, lambda *_: (Accept(),)), "grammar", "grammar_broken"
    ),
)
