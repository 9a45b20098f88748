"""Recognition: which dialect an answer is in, by what evidence, and with which doubts.

Built-in dialects are recognised by reading with each; for any other stream one is proposed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from contract.flow import FlowSpec
from contract.wire import EVERY, Dialect, FailureFrame, Framing, TextPaths, built_in
from cutover.recognition.answers import Answer, NoStream, refusal_of, sentence
from cutover.recognition.proposal import NO_END, propose
from cutover.recognition.reading import DialectReading, framing_of, read
from router.remote import may_stream

NO_FLOWS: Mapping[str, FlowSpec] = {}

_AT_ONCE_US = 5_000
_FEW_EVENTS = 3
_NAMES_SHOWN = 8
_MOST_SHOWN = 60
_DATA_PROTOCOL = re.compile(rb"(?:[0-9a-g]:[^\n]*\n)+")
"""Lines such as `0:"Hello"`, as the AI SDK sent them before version 5."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """An answer whose dialect is known, or proposed.

    `name` is that of a built-in dialect, "" of one made for this answer. `media_type` is that of
    the answer where the router has to be told that it is a stream, otherwise "".
    """

    answer: Answer
    dialect: Dialect
    name: str
    reading: DialectReading
    evidence: tuple[str, ...]
    doubts: tuple[str, ...]
    media_type: str = ""


def recognise(
    answer: Answer, flows: Mapping[str, FlowSpec] = NO_FLOWS, sent: object = None
) -> Recognised | NoStream:
    """Recognise the dialect of an answer, or say why it is no stream.

    `flows` are built-in flows, whose dialects count where every event is one of theirs; `sent` is
    the body of the request.
    """
    refusal = refusal_of(answer)
    if refusal is not None:
        return refusal
    framing = framing_of(answer)
    if framing is None:
        return NoStream(
            "document",
            "one JSON document",
            'does the body need something like "stream": true, or is the stream at another path?',
            sentence(answer.body),
        )
    found = _built_in(answer, framing, flows) or _proposed(answer, framing, sent)
    if found.reading.failures and not (found.name and found.reading.says_something):
        codes = ", ".join(filter(None, found.reading.failures))
        what = f"a stream that reports a failure{f' ({codes})' if codes else ''}"
        return NoStream("failed", what, "ask something that it can answer")
    return found


def read_as(dialect: Dialect, answer: Answer, spec: FlowSpec | None = None) -> Recognised | None:
    """Return what a dialect finds in an answer; None where that is no stream of it.

    `spec` is a built-in flow, of which each event must be one.
    """
    if refusal_of(answer) is not None or framing_of(answer) != dialect.framing:
        return None
    reading = read(dialect, answer, spec)
    return recognised_by(dialect, "", reading, answer) if reading.fits(dialect, answer) else None


def recognised_by(
    dialect: Dialect, name: str, reading: DialectReading, answer: Answer
) -> Recognised:
    """Return what a dialect finds in an answer, as evidence and doubts."""
    kind = answer.media_type
    told = "" if may_stream(dialect.framing, kind) else kind
    return Recognised(
        answer,
        dialect,
        name,
        reading,
        tuple(_evidence(dialect, reading, answer)),
        tuple(_doubts(dialect, reading, answer, told)),
        told,
    )


def _built_in(answer: Answer, framing: Framing, flows: Mapping[str, FlowSpec]) -> Recognised | None:
    """Return what the built-in dialect that fits, and finds most, recognises."""
    specs = {spec.dialect.name: spec for spec in flows.values()}
    dialects = {name: spec.dialect for name, spec in specs.items()} | built_in()
    readings = {
        name: read(dialect, answer, specs.get(name))
        for name, dialect in dialects.items()
        if dialect.framing == framing
    }
    fitting = [name for name, found in readings.items() if found.fits(dialects[name], answer)]
    if not fitting:  # a failure alone is told by the dialect in which it is one
        fitting = [name for name, found in readings.items() if found.sound() and found.failures]
    if fitting:
        name = max(fitting, key=lambda one: len(readings[one].text))
        return recognised_by(dialects[name], name, readings[name], answer)
    near = [
        name
        for name, found in readings.items()
        if name not in specs and found.sound() and found.says_something
    ]
    if not near:
        return None
    name = max(near, key=lambda one: len(readings[one].text))
    return _without_end(dialects[name], answer)


def _without_end(dialect: Dialect, answer: Answer) -> Recognised:
    """Recognise a stream of a built-in dialect that lacks the dialect's terminal event."""
    lacks, base = dialect.terminal, dialect.name
    failure = tuple(it for it in dialect.failure if isinstance(it, FailureFrame) or it not in lacks)
    own = msgspec.structs.replace(dialect, name="", terminal=(), failure=failure, grammar=None)
    found = recognised_by(own, "", read(own, answer), answer)
    evidence = (f"reads as {base}, without its end ({', '.join(lacks)})", *found.evidence)
    return replace(found, evidence=evidence, doubts=(NO_END, *found.doubts))


def _proposed(answer: Answer, framing: Framing, sent: object) -> Recognised:
    proposal = propose(answer, framing, sent)
    dialect = proposal.dialect
    found = recognised_by(dialect, "", read(dialect, answer), answer)
    return replace(found, doubts=(*proposal.doubts, *found.doubts))


def _evidence(dialect: Dialect, reading: DialectReading, answer: Answer) -> Iterator[str]:
    count = reading.names.total()
    kind = answer.media_type or "no media type"
    unit = "piece" if dialect.framing == "text" else "event"
    yield f"{kind}, {count} {unit}{'s' if count > 1 else ''} in {_seconds(answer.ended)}"
    if dialect.framing != "text":
        names = [f"{name} ×{n}" if n > 1 else name for name, n in reading.names.items()]
        more = [f"and {len(names) - _NAMES_SHOWN} more"] if len(names) > _NAMES_SHOWN else []
        yield f"events: {', '.join(names[:_NAMES_SHOWN] + more)}"
    if reading.text:
        place = _text_place(dialect, reading)
        growth = "cumulative, " if dialect.growth == "cumulative" else ""
        pieces = f"{reading.pieces} pieces" if reading.pieces > 1 else "one piece"
        yield (
            f"text{place}: {growth}{pieces}, {len(reading.text)} characters, the first after "
            f"{_seconds(reading.first_text)}: {_excerpt(reading.text)}"
        )
    if reading.reasoning:
        yield "reasoning, apart from the text"
    if reading.calls_tools:
        yield "calls of tools"
    if reading.terminal:
        yield f"ends with {reading.terminal}"
    elif not dialect.terminal and answer.end == "complete":
        yield "ends with its body"


def _doubts(dialect: Dialect, reading: DialectReading, answer: Answer, told: str) -> Iterator[str]:
    if not reading.text and reading.calls_tools:
        yield "this answer has no text, only calls of tools"
    if reading.failures:
        yield f"it reports a failure: {', '.join(reading.failures)}"
    if answer.end == "lost":
        yield "its connection broke before its end"
    elif answer.end == "unended" and not reading.terminal:
        yield (
            f"it had not ended after {_seconds(answer.ended)}, and the rest was not read: "
            "--seconds allows more"
        )
    first = answer.pieces[0][0]
    count = reading.names.total()
    if dialect.framing == "text" and len(answer.pieces) == 1:
        yield "it came in one piece: this may be no stream"
    elif count >= _FEW_EVENTS and answer.pieces[-1][0] - first < _AT_ONCE_US < first:
        yield (
            f"all of it came at once, {_seconds(first)} after the request: the service, or a proxy "
            "before it, may be buffering"
        )
    if dialect.framing == "text" and _DATA_PROTOCOL.fullmatch(answer.body):
        yield "its lines look like the AI SDK's older data stream protocol: it is compared as text"
    if not dialect.failure:
        yield from _doubts_of_failures(dialect, reading)
    if told:
        yield f"its media type is {told}, which is no type of such streams: media_types names it"


def _doubts_of_failures(dialect: Dialect, reading: DialectReading) -> Iterator[str]:
    breaks = "of an answer that breaks off the router closes the client's connection"
    if dialect.framing == "text":
        yield f"plain text cannot report a failure: {breaks}"
    elif not any(name in reading.names for name in dialect.errors.events):
        yield f"no error event came: {breaks}, until errors and failure say what is sent then"
    else:
        yield f"no frames that end a broken answer are known: {breaks}, until failure has some"


def _text_place(dialect: Dialect, reading: DialectReading) -> str:
    """Name where a dialect finds text: events that came, and paths."""
    if dialect.payload == "text":
        return ""
    places = []
    for name, held in dialect.text.items():
        if name not in {EVERY, *reading.names}:
            continue
        paths = held.path if isinstance(held, TextPaths) else held
        first = paths if isinstance(paths, str) else paths[0]
        places.append(first if name == EVERY else f"{name}: {first}")
    return f" at {'; '.join(places)}" if places else ""


def _seconds(microseconds: int) -> str:
    return f"{microseconds / 1e6:.2f} s"


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= _MOST_SHOWN else line[: _MOST_SHOWN - 1] + "…")
