"""Streams of two dialects in the events that both have, so that they can be compared.

These are text, reasoning and tool calls where both dialects declare them, failures without their
codes, the end, and events to which both dialects give one name in `[event] names`. Everything else
is one format's own, and left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from compare.streams.events import FAULT, NAME, REASONING, TEXT
from compare.streams.normal import TOOL_CALL, Normaliser, NormalStream
from contract.errors import CutoverError
from contract.grammar import Grammar, many, one
from contract.records import RunRecord
from contract.wire import (
    Dialect,
    ErrorPaths,
    EventDecoder,
    EventNames,
    RecordedWire,
    TextPaths,
)

_ERROR, _END = "error", "end"
_TRACKS: Final = {"reasoning": REASONING, "text": TEXT}
_REPLACED: Final = {track: f"{track}_replaced" for track in _TRACKS}
"""Names of events whose cumulative text is not what was shown, with more behind it."""

_WIRE = Dialect(
    framing="ndjson",
    event=EventNames(path=NAME, default=""),
    text={"text": TEXT, _REPLACED["text"]: TextPaths(path=TEXT, growth="cumulative")},
    reasoning={
        "reasoning": REASONING,
        _REPLACED["reasoning"]: TextPaths(path=REASONING, growth="cumulative"),
    },
    terminal=(_END,),
    errors=ErrorPaths(events=(_ERROR,)),
)

_encode = msgspec.json.Encoder(order="sorted").encode


class DialectNotConfigured(CutoverError):
    """A run was captured in a dialect that its flow does not have any more."""

    def __init__(self, name: str) -> None:
        super().__init__(f"captured in the dialect {name!r}, which the flow does not have")


def common_parts(one: Dialect, other: Dialect) -> tuple[str, ...]:
    """Name what streams of both dialects can say, beside failures and their end."""
    parts = {
        "text": one.locates_text and other.locates_text,
        "reasoning": one.reasoning and other.reasoning,
        TOOL_CALL: one.tools and other.tools,
    }
    return tuple(name for name, common in parts.items() if common)


class CommonForm:
    """Streams of one dialect in the events that another dialect has, too."""

    def __init__(self, dialect: Dialect, other: Dialect) -> None:
        self._dialect = dialect
        self._normaliser = Normaliser(dialect)
        self._decoder = EventDecoder(dialect)
        common = common_parts(dialect, other)
        self._tracks = {track: key for track, key in _TRACKS.items() if track in common}
        self._calls = TOOL_CALL in common
        self._named_alike = {*dialect.event.names.values()} & {*other.event.names.values()}
        self._named_alike -= {*dialect.terminal, *dialect.errors.events}

    def captured(self, run: RunRecord) -> NormalStream:
        """Bring the stream of a captured run into the common form."""
        own = self._normaliser.captured(run)
        events: list[tuple[int, dict[str, Any]]] = []
        shown = dict.fromkeys(_TRACKS, "")
        for at, text in own.frames:
            events += [(at, event) for event in self._events(msgspec.json.decode(text), shown)]
            if events and events[-1][1][NAME] == _ERROR:
                break  # what ends a failed stream is each format's own
        if not self._dialect.terminal and run.outcome == "completed":
            events.append((run.frames[-1][0] if run.frames else 0, {NAME: _END}))
        frames = tuple((at, _encode(event).decode()) for at, event in events)
        names = frozenset(str(event[NAME]) for _, event in events)
        return NormalStream(frames, names, own.outcome, own.error, own.sent)

    def _events(self, event: dict[str, Any], shown: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Yield what an event says that both dialects can; `shown` are the texts so far."""
        name = str(event[NAME])
        if FAULT in event:
            yield event
            return
        for track, key in self._tracks.items():
            if key in event:
                growth = self._decoder.text_paths(track, name)[1]
                yield from _text(track, event[key], shown, cumulative=growth == "cumulative")
        if name == TOOL_CALL:
            if self._calls:
                arguments = event.get("arguments") or {}
                yield {NAME: TOOL_CALL, "name": event.get("name", ""), "arguments": arguments}
        elif name in self._decoder.failures:
            yield {NAME: _ERROR}
        elif name in self._decoder.terminal:
            yield {NAME: _END}
        elif name in self._named_alike:
            yield {key: value for key, value in event.items() if key not in {TEXT, REASONING}}


def _text(
    track: str, piece: str, shown: dict[str, str], *, cumulative: bool
) -> Iterator[dict[str, Any]]:
    """Yield what a piece adds to a text, or the whole where that takes back what was shown."""
    before = shown[track]
    if not cumulative:
        shown[track] += piece
    elif piece.startswith(before):
        shown[track], piece = piece, piece[len(before) :]
    else:
        shown[track] = piece
        yield {NAME: _REPLACED[track], _TRACKS[track]: piece}
        return
    if piece:
        yield {NAME: track, _TRACKS[track]: piece}


class CommonDialect:
    """The two dialects of a flow whose services differ in format, ready for use."""

    def __init__(self, name: str, dialect: Dialect, graph: Dialect) -> None:
        self.name = name
        self._forms = {"": CommonForm(dialect, graph), graph.name: CommonForm(graph, dialect)}

    def captured(self, run: RunRecord) -> NormalStream:
        """Bring the stream of a captured run into the common form.

        Raises `DialectNotConfigured`.
        """
        if run.dialect not in self._forms:
            raise DialectNotConfigured(run.dialect)
        return self._forms[run.dialect].captured(run)

    def wire(self, names: frozenset[str]) -> RecordedWire:
        """Return the wire of streams in the common form, these names being met in them."""
        return RecordedWire(_WIRE, Grammar((many(*names - {_END}), one(_END))))
