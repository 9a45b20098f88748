"""A stream read by a dialect: bytes, cut anywhere, become frames that can be compared and cut."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from typing import Any, Final

from cutover.chat_form import NotJson, decode, decode_or, encode
from cutover.errors import Completed, Failed, StackFailed
from cutover.flow import Frame, Texts, Verdict
from cutover.wire.dialect import (
    CallAt,
    Dialect,
    EventRule,
    Found,
    Paths,
    Place,
    TextAt,
    find,
    listed,
    rules_of,
    values,
)
from cutover.wire.pieces import Calls, EventTemplate, TextCut
from cutover.wire.splitters import (
    MOST_BLOCK_BYTES,
    LineSplitter,
    Splitter,
    SseEvent,
    SseSplitter,
    TextSplitter,
    events,
    payload,
)

_SPLITTERS: Final = {"sse": SseSplitter, "ndjson": LineSplitter}
_HIGH_SURROGATES: Final = range(0xD800, 0xDC00)
_OTHER: Final = EventRule(name="*")
_GENERATED: Final = re.compile(
    r"(?i:[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}"
    r"|(?<![0-9A-Za-z])(?=[a-f]*\d)[0-9a-f]{8,}(?![0-9A-Za-z]))"
    r"|\b(?=\w*\d)(?=\w*[A-Z])(?=\w*[a-z])(?!\w*[a-z]{6})\w{16,}|\b(?=[A-Z]*\d)[0-9A-Z]{26}\b"
)
"""Parts of names: uuids, hexadecimal numbers, what nanoid draws (it has no words), ULIDs."""
_MOST_SHOWN: Final = 200
UNREADABLE: Final = "unreadable"
UNKNOWN: Final = "unknown_shape"
CONTRADICTION: Final = "contradiction"
"""Codes of failures: no event that can be read, none that is declared, one that says otherwise."""


@dataclass(slots=True)
class _Event:
    """One event as it is read: `at` is where its rule's paths lead in `value`."""

    name: str
    value: Any
    rule: EventRule
    paths: Paths
    at: Mapping[str, list[Found]]
    texts: dict[str, str] = field(default_factory=dict)
    cuts: list[TextCut] = field(default_factory=list)


def splitter(dialect: Dialect, limit: int = MOST_BLOCK_BYTES) -> Splitter | TextSplitter:
    """Return what cuts the bytes of a stream into its events."""
    framed = _SPLITTERS.get(dialect.framing)
    return framed(limit) if framed else TextSplitter()


class Reader:
    """Reads one stream, sans I/O.

    `texts` are the texts so far by channel: `content`, `reasoning`, `call 1 name`,
    `call 1 arguments` and so on; the second of a channel is `content 2`. `annotations` is what
    stood beside them, united over all events. `ids` are the generated ids of each kind, with their
    numbers. A reader `after` another one reads the stream of a successor: its frames speak to the
    client in the ids that the first stream gave. One that `joins` makes one reading of pieces that
    came together, and does not trim them.
    """

    def __init__(
        self,
        dialect: Dialect,
        *,
        after: Reader | None = None,
        joins: bool = False,
        limit: int = MOST_BLOCK_BYTES,
    ) -> None:
        self.dialect = dialect
        self.texts = Texts()
        self.annotations: dict[str, Any] = {}
        self.ids: dict[str, dict[Any, int]] = {}
        self.recognised = self.events = 0
        self._after = after
        self._joins = joins
        self._splitter = splitter(dialect, limit)
        self._halves: dict[str, str] = {}
        self._text_keys: dict[str, dict[Any, int]] = {}
        self._last_number: dict[str, int] = {}
        self._name_ids: dict[str, int] = {}
        self._calls = Calls(self.texts)
        self._counted = b""
        self._before: EventTemplate | None = None
        self._said = self._ended = self._closed = False
        self._finished = self._ever = False
        self._failure: Failed | None = None

    @property
    def ending(self) -> Completed | Failed:
        """How the stream has ended; one that goes on, or lacks its end, is truncated."""
        if self._failure is not None:
            return self._failure
        end, finished = self.dialect.end, self._finished or not self.dialect.finishes
        whole = self._said if end.body else end.unmarked and finished
        return Completed() if self._ended or (self._closed and whole) else Failed("truncated")

    def feed(self, piece: bytes) -> list[Frame]:
        """Take the next bytes; return the events they complete. Raises `BlockTooLong`."""
        frames: list[Frame] = []
        for alike, same in groupby(self._with_text(piece), lambda event: event[1] != ""):
            before = self._before if alike else None
            if before is None:
                frames += (self._read(block) for block, _ in same)
            elif self._joins:
                frames.append(self._go_on(before, list(same)))
            else:
                frames += (self._go_on(before, [event]) for event in same)
        return frames

    def close(self, *, torn: bool = False) -> list[Frame]:
        """End the stream; return its last event, where that lacks its end.

        With `torn` the connection broke: what came of an event is dropped.
        """
        rest = self._splitter.flush()
        self._closed = not torn
        return [] if torn else [self._read(block, last=True) for block in rest]

    def trimmed(self, frame: Frame, skip: Mapping[str, int]) -> bytes:
        """Encode an event's frame without the first `skip` characters of each channel's new text.

        Texts that are repeated whole are left whole: a client that has their beginning has lost
        nothing.
        """
        cuts: Sequence[TextCut] = frame.source or ()
        left = dict(skip)
        edits: list[tuple[Place, str]] = []
        for cut in cuts:
            known = min(left.get(cut.channel, 0), len(cut.text))
            left[cut.channel] = left.get(cut.channel, 0) - known
            if known:
                edits += [(place, cut.text[known:] + cut.half) for place in cut.places]
        if self.dialect.framing == "text":
            return "".join(text for _, text in edits).encode() if edits else frame.raw
        return self._edited(frame.raw, edits) if edits else frame.raw

    def _edited(self, raw: bytes, edits: Iterable[tuple[Place, str]]) -> bytes:
        """Encode an event anew with other values at some places."""
        data = json.loads(self._payload(raw).data.decode("utf-8", "replace"))
        for place, value in edits:
            holder = data
            for step in place[:-1]:
                holder = holder[step]
            holder[place[-1]] = value
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        encoded = text.encode("utf-8", "backslashreplace")
        if self.dialect.framing == "ndjson":
            return encoded + b"\n"
        lines = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").rstrip(b"\n").split(b"\n")
        kept = [line for line in lines if line.partition(b":")[0] != b"data"]
        return b"\n".join([*kept, b"data: " + encoded, b"", b""])

    def _payload(self, block: bytes) -> SseEvent:
        """Return the event of a block, an empty one where it has none."""
        if self.dialect.framing == "ndjson":
            return SseEvent(payload(block))
        return next(iter(events(block)), SseEvent(b""))

    def _read(self, block: bytes, *, last: bool = False) -> Frame:
        """Read one event's bytes; the `last` lacks its end, which the client is given."""
        self._before = None
        if self.dialect.framing == "text":
            text = block.decode("utf-8", "replace")
            self._said = True
            self.texts.add("content", text)
            cut = TextCut([()], "content", text)
            return Frame(block, "text", (("content", text),), source=(cut,))
        raw = block + b"\n\n" if last and self.dialect.framing == "sse" else block
        event = self._payload(raw)
        data = event.data or (b"null" if event.event and not last else b"")
        if not data:
            return Frame(block, "", verdict="preamble")
        self.events += 1
        try:
            return self._event(raw, data, event.event)
        except (NotJson, RecursionError):
            if last and self._ended:
                return Frame(block, "", verdict="preamble")
            failed = Failed("truncated") if last else Failed(UNREADABLE, detail=_shown(data))
        except StackFailed as error:
            failed = Failed(error.code, detail=error.detail)
        self._failure = self._failure or failed
        rest = encode(data.decode("utf-8", "replace"))
        return Frame(raw, event.event, (), rest, "failure", failed)

    def _event(self, raw: bytes, data: bytes, line: str) -> Frame:
        """Read one event; raises `NotJson` and `StackFailed`."""
        text = data.decode("utf-8", "replace")
        marked = text in self.dialect.names.marks
        value = text if marked else decode(text)
        name = text if marked else self._name(value, line)
        rule, paths = self._rule(name, value)
        event = _Event(name, value, rule, paths, paths.find(value))
        _check_shape(event)
        failed = self._reported(event)
        ids = self._number_ids(event.at)
        for one in rule.texts:
            self._find_text(one, event)
        for call in rule.calls:
            self._find_calls(call, event)
        failed = failed or self._find_finish(event)
        rest = self._rest(event, failed)
        verdict: Verdict = "content"
        if failed is not None:
            verdict = "failure"
        elif rule.says == "end":
            self._ended = self._ever or not self.dialect.finishes
            verdict = "terminal" if self._ended else "failure"
            failed = None if self._ended else Failed("truncated", detail=f"{name} without a finish")
        elif not event.texts and (not rest or rule.says == "preamble"):
            verdict = "preamble"
        self._said = self._said or verdict == "content"
        self._failure = self._failure or failed
        named = "*" not in listed(rule.name) and name != self.dialect.names.default
        self.recognised += named or failed is not None or not paths.telling.isdisjoint(event.at)
        raw = self._edited(raw, ids) if ids else raw
        texts = tuple(event.texts.items())
        frame = Frame(raw, self._folded(name), texts, rest, verdict, failed, tuple(event.cuts))
        self._before = None if ids else EventTemplate.of(frame)
        return frame

    def _with_text(self, piece: bytes) -> Iterator[tuple[bytes, str]]:
        """Yield the next events; with its text, where one differs from the last in that alone."""
        for block in self._splitter.feed(piece):
            yield block, self._before.text_of(block) if self._before is not None else ""

    def _go_on(self, before: EventTemplate, events: Sequence[tuple[bytes, str]]) -> Frame:
        """Read events that are the one before them but for their text."""
        channel = before.cut.channel
        self.events += len(events)
        self.recognised += len(events)
        block = b"".join(block for block, _ in events)
        text = "".join(text for _, text in events)
        self.texts.add(channel, text)
        cut = TextCut(before.cut.places, channel, text)
        return Frame(block, before.name, ((channel, text),), source=(cut,))

    def _name(self, value: Any, line: str) -> str:
        """Return an event's name: of those it may have, the first that a rule is declared for."""
        names = self.dialect.names
        at = values(value, names.path) if names.path else []
        for name in (*at, line):
            if name and isinstance(name, str) and rules_of(self.dialect, name):
                return name
        return names.default

    def _folded(self, name: str) -> str:
        """Return a name whose generated parts are numbers, in order of appearance."""
        return _GENERATED.sub(lambda part: f"#{_number(self._name_ids, part[0].lower())}", name)

    def _rule(self, name: str, value: Any) -> tuple[EventRule, Paths]:
        for rule, paths in rules_of(self.dialect, name):
            if all(_is(value, path, wanted) for path, wanted in rule.when.items()):
                return rule, paths
        return _OTHER, _OTHER.paths(self.dialect)

    def _reported(self, event: _Event) -> Failed | None:
        """Return the failure that an event reports."""
        reports = self.dialect.failure
        places = [place for path in reports.at for place in event.at.get(path, ())]
        if event.rule.says != "failure" and not any(holder[step] for holder, step, _ in places):
            return None
        code, message = (
            next((str(one) for path in paths if (one := _one(event.value, path))), "")
            for paths in (reports.code, reports.message)
        )
        detail = ": ".join(one for one in (code, message) if one)
        return Failed("service_failed", reports.blame(code), detail or _shown(encode(event.value)))

    def _number_ids(self, at: Mapping[str, list[Found]]) -> list[tuple[Place, str]]:
        """Replace generated ids by their numbers; return those that the client knows otherwise."""
        edits = []
        for kind, paths in self.dialect.ids.items():
            for holder, step, place in (one for path in paths for one in at.get(path, ())):
                own = holder[step]
                if own and isinstance(own, str | int):
                    number = _number(self.ids.setdefault(kind, {}), own)
                    holder[step] = f"{kind} {number}"
                    given = [*self._after.ids.get(kind, ())] if self._after is not None else []
                    if number <= len(given) and given[number - 1] != own:
                        edits.append((place, given[number - 1]))
        return edits

    def _find_text(self, one: TextAt, event: _Event) -> None:
        by = [next(iter(event.at.get(path, ())), None) for path in listed(one.by)]
        keys = [first and first[0][first[1]] for first in by]
        key = None if all(part is None for part in keys) else encode(keys)
        said: dict[tuple[str, str], TextCut] = {}
        paths = listed(one.path)
        for path in paths:
            new: dict[tuple[str, str], TextCut] = {}
            totals: dict[str, str] = {}
            for holder, step, place in event.at.get(path, ()):
                text = holder[step]
                if isinstance(text, list) and any(other.startswith(f"{path}[") for other in paths):
                    continue  # that path reads it
                if text is not None and not isinstance(text, str):
                    raise StackFailed(UNKNOWN, detail=f"{path} is {_shown(encode(text))}")
                holder[step] = None
                if not text:
                    continue
                if one.by == "*":
                    key = encode([part for part in place if isinstance(part, int)])
                channel = self._channel(one.channel, key)
                if one.growth == "total":
                    totals[channel] = totals.get(channel, "") + text
                elif (channel, text) in said:
                    said[channel, text].places.append(place)
                else:
                    new[channel, text] = self._grow(place, channel, text, event)
            for channel, text in totals.items():
                self._grow_to(channel, text, event)
            said |= new

    def _channel(self, name: str, key: bytes | None) -> str:
        """Return the channel of a text, by what tells it apart."""
        if key is None:
            number = self._last_number.get(name, 1)
        else:
            number = _number(self._text_keys.setdefault(name, {}), key)
        self._last_number[name] = number
        return name if number == 1 else f"{name} {number}"

    def _find_calls(self, at: CallAt, event: _Event) -> None:
        whole: list[Found] = [({"": event.value}, "", ())]
        for holder, step, place in event.at.get(at.at, ()) if at.at else whole:
            piece = holder[step]
            if piece is None:
                continue
            if not isinstance(piece, dict):
                raise StackFailed(UNKNOWN, detail=f"{at.at} is {_shown(encode(piece))}")
            id_, index, name = (_one(piece, path) for path in (at.id, at.index, at.name))
            number = self._calls.number_of(id_ or None, index, name)
            for path, kind in ((at.name, "name"), (at.arguments, "arguments")):
                channel = f"call {number} {kind}"
                for inner, key, below in find(piece, path) if path else ():
                    text, inner[key] = inner[key], None
                    if kind == "name" and text == self.texts.get(channel):
                        continue
                    if isinstance(text, str) and (kind == "name" or at.growth == "delta"):
                        if text:
                            self._grow((*place, *below), channel, text, event)
                    elif text is not None:
                        self._grow_to(channel, text, event)
            if at.at:
                for path in (at.id, at.index):
                    for inner, key, _ in find(piece, path) if path else ():
                        inner[key] = None

    def _grow(self, place: Place, channel: str, text: str, event: _Event) -> TextCut:
        """Add a piece to a channel; half a character at its end waits for its other half."""
        tail = ""
        if ord(text[-1]) in _HIGH_SURROGATES:
            text, tail = text[:-1], text[-1]
        if half := self._halves.pop(channel, ""):
            text = (half + text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        if tail:
            self._halves[channel] = tail
        cut = TextCut([place], channel, text, tail)
        event.cuts.append(cut)
        self._add(channel, text, event)
        return cut

    def _grow_to(self, channel: str, value: Any, event: _Event) -> None:
        """Add to a channel what it is to become, an object as JSON; raises `StackFailed`."""
        so_far = self.texts.get(channel, "")
        text = value if isinstance(value, str) else encode(value).decode()
        if not text.startswith(so_far):
            if not isinstance(value, str) and decode_or(so_far, None) == value:
                return  # the same object, in another spelling
            raise StackFailed(CONTRADICTION, detail=f"{channel}: {so_far!r}, and then {text!r}")
        self._halves.pop(channel, None)
        self._add(channel, text[len(so_far) :], event)

    def _add(self, channel: str, text: str, event: _Event) -> None:
        if text:
            self.texts.add(channel, text)
            event.texts[channel] = event.texts.get(channel, "") + text

    def _find_finish(self, event: _Event) -> Failed | None:
        """Note whether the answer is finished; what is said after it waits for another finish."""
        reasons = [
            holder[step]
            for path in self.dialect.end.finish
            for holder, step, _ in event.at.get(path, ())
        ]
        going_on = self._finished and not event.texts
        self._finished = going_on or event.rule.says == "finish" or any(reasons)
        self._ever = self._ever or self._finished
        self._ended = self._ended and (bool(self.dialect.names.marks) or not event.texts)
        failing = [one for one in reasons if one in self.dialect.end.failing]
        return (
            Failed("service_failed", "world", f"finish reason {failing[0]!r}") if failing else None
        )

    def _rest(self, event: _Event, failed: Failed | None) -> bytes:
        """Return what counts of an event besides its texts; annotations are put aside."""
        rule = event.rule
        counted: dict[str, list[Any]] = {}
        for path in rule.counts:
            for holder, step, _ in event.at.get(path, ()):
                if holder[step]:
                    counted.setdefault(path, []).append(holder[step])
                    holder[step] = None
        for path in event.paths.dropped & event.at.keys():
            for holder, step, _ in event.at[path]:
                holder[step] = None
        left = _pruned(event.value)
        if failed is not None:
            return encode([_by_place(counted), left])
        if rule.piece:
            if left is not None:
                family = listed(rule.name)[0]
                self.annotations[family] = _merged(self.annotations.get(family), left)
            rest = encode(_by_place(counted)) if counted else b""
            if rest == self._counted and not event.texts:
                return b""  # said again at the same place
        else:
            rest = b"" if rule.mark is False else encode(left)
        if rest or event.texts:
            self._counted = rest
        return rest


def _check_shape(event: _Event) -> None:
    """Check that an event has what its rule needs, and no text where none is read."""
    rule, at = event.rule, event.at
    if rule.needs and not any(path in at for path in rule.needs):
        raise StackFailed(UNKNOWN, detail=f"{event.name!r} has none of {', '.join(rule.needs)}")
    for path, instead in rule.foreign.items():
        if instead not in at and any(holder[step] for holder, step, _ in at.get(path, ())):
            raise StackFailed(UNKNOWN, detail=f"{event.name!r} has {path} and no {instead}")
    if (rule.texts or rule.calls) and not isinstance(event.value, dict | list):
        raise StackFailed(UNKNOWN, detail=f"{event.name!r} is {_shown(encode(event.value))}")


def _number(numbers: dict[Any, int], one: Any) -> int:
    """Return the number of a value, in order of appearance."""
    return numbers.setdefault(one, len(numbers) + 1)


def _is(value: Any, path: str, wanted: Any) -> bool:
    at = values(value, path)
    if isinstance(wanted, tuple):
        return any(one in wanted for one in at if isinstance(one, str))
    return any(type(one) is type(wanted) and one == wanted for one in at)


def _one(value: Any, path: str) -> Any:
    """Return the value at a path, where it can tell calls apart."""
    found = next(iter(values(value, path)), None) if path else None
    return found if isinstance(found, str | int | float) else None


def _by_place(counted: Mapping[str, list[Any]]) -> Any:
    """Return what counts by its place, as differences name it: `choices[].finish_reason`."""
    return {
        path.replace("[*]", "[]"): found[0] if len(found) == 1 else found
        for path, found in counted.items()
    }


def _pruned(value: Any) -> Any:
    """Return a value without nulls and what holds nothing else; None where nothing is left."""
    if isinstance(value, dict):
        return {k: one for k, old in value.items() if (one := _pruned(old)) is not None} or None
    if isinstance(value, list):
        kept = [_pruned(one) for one in value]
        return kept if any(one is not None for one in kept) else None
    return value


def _merged(old: Any, new: Any) -> Any:
    """Unite two annotations: keys of both, the later value of each."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: _merged(old.get(key), value) for key, value in new.items()}}
    if isinstance(old, list) and isinstance(new, list):
        return [_merged(one, two) for one, two in zip_longest(old, new)]
    return old if new is None else new


def _shown(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
