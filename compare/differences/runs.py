"""One run in the form in which runs are compared: events, texts by channel, calls, moments."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from compare.differences.values import readable
from cutover.chat_form import encode
from cutover.errors import Completed, Outcome, Pause
from cutover.flow import Flow, Frame
from cutover.records import DAMAGED, RecordDamaged, RunRecord, TapeRecord
from cutover.tape import HUMAN_ANSWER
from cutover.wire import End, Piece, ServiceFraming, WholeBody

_STREAMED_CALL: Final = re.compile(r"call (\d+) (name|arguments)")
STREAMED_CALL: Final = "call"
"""The name under which a tool call that a stream tells of is compared."""
_HALF: Final = "a frame is no whole event"


@dataclass(frozen=True, slots=True)
class Event:
    """An event that is not pure text, and how long each channel was when it came, `at` a moment."""

    name: str
    rest: bytes
    lengths: dict[str, int]
    at: int


@dataclass(frozen=True, slots=True)
class RunCall:
    """A call of a run: `entry` is its place on the tape, None where no entry answered it.

    `result` is what the entry that answered it came back with.
    """

    name: str
    canonical: str
    at: int
    writes: bool = False
    entry: int | None = None
    result: bytes = b""

    @property
    def model(self) -> bool:
        """Whether a model was asked."""
        return self.name.startswith("model.")


@dataclass(slots=True)
class Reading:
    """A run as it is compared. Moments are in microseconds of its exchange.

    `stamps` has for each channel how long its text was from which moment on. `streamed` are the
    tool calls that the stream tells of, whole. `names` are those of all frames. `unstored` names
    calls that are not on the tape. It is `paced` where its texts came as its world answered.
    `damage` says in a sentence what could not be read, "" for nothing: then the rest is not to be
    trusted.
    """

    outcome: Outcome
    events: list[Event] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    stamps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    streamed: list[Event] = field(default_factory=list)
    annotations: dict[str, Any] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    pieces: int = 0
    calls: list[RunCall] = field(default_factory=list)
    unstored: set[str] = field(default_factory=set)
    ended: int = 0
    paced: bool = True
    damage: str = ""


def read_run(line: RunRecord, tape: TapeRecord, flow: Flow) -> Reading:
    """Return a run of an exchange with this tape; never raises for what stands in the line."""
    reading = Reading(line.outcome, ended=max((frame.at for frame in line.frames), default=0))
    services = isinstance(flow.framer(), ServiceFraming)
    reading.paced = line.policy in ({"live"} if services else {"live", "play"})
    lengths: dict[str, int] = {}
    pieces: dict[str, list[str]] = {}
    try:
        for at, frame in _frames(line, flow, reading):
            reading.names.append(frame.name)
            reading.pieces += bool(frame.texts)
            for channel, text in frame.texts:
                pieces.setdefault(channel, []).append(text)
                lengths[channel] = lengths.get(channel, 0) + len(text)
                reading.stamps.setdefault(channel, []).append((lengths[channel], at))
            if frame.rest:
                reading.events.append(Event(frame.name, frame.rest, dict(lengths), at))
    except DAMAGED as error:
        reading.damage = f"the stream of {line.stack} cannot be read: {error}"
    reading.texts = {channel: "".join(texts) for channel, texts in pieces.items()}
    if not reading.damage and line.outcome == Completed() and not _whole(reading, flow):
        reading.damage = f"the stream of {line.stack}, which completed, is not whole"
    _take_streamed_calls(reading)
    _read_calls(line, tape, reading)
    return reading


def _whole(reading: Reading, flow: Flow) -> bool:
    """Whether a stream has an end, as far as its flow says which events are one."""
    grammar = getattr(flow, "grammar", None)
    names = reading.names
    return bool(names if grammar is None else grammar.terminal.intersection(names))


def ends(line: RunRecord, flow: Flow) -> bool:
    """Whether the last frame of a line is an end, seen without the others."""
    if getattr(flow, "grammar", None) is None:
        return any(one.content for one in line.frames)
    last = msgspec.structs.replace(line, frames=line.frames[-1:], plays=())
    return not read_run(last, TapeRecord(), flow).damage


def _frames(line: RunRecord, flow: Flow, reading: Reading) -> Iterator[tuple[int, Frame]]:
    """Yield a line's frames with their stamps."""
    framer = flow.framer()
    if not isinstance(framer, ServiceFraming):
        frames = [*flow.stored_frames(one.data for one in line.frames)]
        if len(frames) != len(line.frames):
            raise RecordDamaged(_HALF)
        yield from ((one.at, frame) for one, frame in zip(line.frames, frames, strict=True))
        return
    body, said = b"".join(one.data for one in line.frames), False
    pieces = [(one.at, Piece(one.data)) for one in line.frames if one.data]
    for at, event in (*pieces, (reading.ended, End())):
        for frame in framer.read(event):
            said = said or bool(frame.rest or frame.texts)
            yield at, frame
    if body.strip() and not said:  # an answer that is no stream
        for frame in framer.read(WholeBody(body)):
            yield reading.ended, frame
    reading.annotations = framer.reader.annotations


def _take_streamed_calls(reading: Reading) -> None:
    """Make events of the tool calls among the texts: their arguments are JSON, not prose."""
    calls: dict[str, dict[str, str]] = {}
    began: dict[str, int] = {}
    for channel in list(reading.texts):
        if found := _STREAMED_CALL.fullmatch(channel):
            calls.setdefault(found[1], {})[found[2]] = reading.texts.pop(channel)
            began.setdefault(found[1], reading.stamps.pop(channel)[0][1])
    for number, call in calls.items():
        told = {"name": call.get("name", ""), "arguments": readable(call.get("arguments", ""))}
        reading.streamed.append(Event(STREAMED_CALL, encode(told), {}, began[number]))


def _read_calls(line: RunRecord, tape: TapeRecord, reading: Reading) -> None:
    newest = 0
    for play in line.plays:
        if play.entry is None:
            if play.how == "nearest" and play.canonical is not None:  # the tape has none like it
                reading.calls.append(RunCall(play.name, play.canonical, newest))
            elif not (play.name == HUMAN_ANSWER and isinstance(line.outcome, Pause)):
                reading.unstored.add(play.name)
            continue
        entry = tape.entries[play.entry] if 0 <= play.entry < len(tape.entries) else None
        if entry is None or entry.name != play.name:
            reading.damage = f"a call of {line.stack} points to none of its name on the tape"
            continue
        newest = max(newest, entry.at)
        asked = entry.canonical if play.canonical is None else play.canonical
        result = b"".join(item.data for item in entry.items)
        reading.calls.append(RunCall(play.name, asked, entry.at, entry.writes, play.entry, result))
