"""A stream read by a dialect: bytes, cut anywhere, become frames that can be compared and cut."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final

from cutover.chat_form import NotJson, decode, decode_or, encode
from cutover.errors import Completed, CutoverError, Failed
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
from cutover.wire.pieces import Calls, Edits, EventPiece, TextCut
from cutover.wire.splitters import (
    MOST_BLOCK_BYTES,
    LineSplitter,
    Splitter,
    SseSplitter,
    TextSplitter,
    events,
    payload,
)

_SPLITTERS: Final = {"sse": SseSplitter, "ndjson": LineSplitter}
_HIGH_SURROGATES: Final = range(0xD800, 0xDC00)
_OTHER: Final = EventRule(name="*")
_GENERATED: Final = re.compile(
    r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}|(?<![0-9A-Za-z])(?=[a-f]*\d)[0-9a-f]{8,}(?![0-9A-Za-z])",
    re.IGNORECASE,
)
_MOST_SHOWN: Final = 200
UNREADABLE: Final = "unreadable"
UNKNOWN: Final = "unknown_shape"
CONTRADICTION: Final = "contradiction"
"""Codes of failures: no event that can be read, none that is declared, one that says otherwise."""


@dataclass(slots=True)
class _Found:
    """What is found in one event; `at` is where its rule's paths lead."""

    at: Mapping[str, list[Found]]
    dropped: frozenset[str]
    texts: dict[str, str] = field(default_factory=dict)
    cuts: list[TextCut] = field(default_factory=list)
    known: bool = False

    def add(self, channel: str, text: str) -> None:
        self.texts[channel] = self.texts.get(channel, "") + text


class _Shape(CutoverError):
    """An event is not of the shape that its dialect declares; `code` is the failure's."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code, self.detail = code, detail


def splitter(dialect: Dialect, limit: int = MOST_BLOCK_BYTES) -> Splitter | TextSplitter:
    """Return what cuts the bytes of a stream into its events."""
    framed = _SPLITTERS.get(dialect.framing)
    return framed(limit) if framed else TextSplitter()


class Reader:
    """Reads one stream, sans I/O.

    `texts` are the texts so far by channel: `content`, `reasoning`, `call 1 name`,
    `call 1 arguments` and so on; the second of a channel is `content 2`. `annotations` is what
    stood beside them, united over all events. A reader `after` another one reads the stream of a
    successor: its frames speak to the client in the ids that the first stream gave. One that
    `joins` makes one reading of pieces that came together, and does not trim them.
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
        self.ids: dict[str, list[Any]] = {}
        self.recognised = self.events = 0
        self._after = after
        self._joins = joins
        self._splitter = splitter(dialect, limit)
        self._halves: dict[str, str] = {}
        self._keys: dict[str, dict[Any, int]] = {}
        self._last_key: dict[str, int] = {}
        self._calls = Calls()
        self._counted = b""
        self._before: EventPiece | None = None
        self._said = self._ended = self._closed = self._torn = False
        self._finished = self._ever = False
        self._failure: Failed | None = None

    @property
    def ending(self) -> Completed | Failed:
        """How the stream has ended; one that goes on, or lacks its end, is truncated."""
        if self._failure is not None:
            return self._failure
        end = self.dialect.end
        whole = self._closed and not self._torn
        if end.body:
            whole = whole and self._said
        else:
            whole = whole and end.unmarked and self._whole(finished=self._finished)
        return Completed() if self._ended or whole else Failed("truncated")

    def feed(self, piece: bytes) -> list[Frame]:
        """Take the next bytes; return the events they complete. Raises `BlockTooLong`."""
        blocks = self._splitter.feed(piece)
        if not self._joins:
            return [self.read(block) for block in blocks]
        frames: list[Frame] = []
        for before, group in groupby(blocks, self._like_before):
            if before is not None:
                frames.append(self._go_on(before, list(group)))
            else:
                frames.extend(map(self.read, group))
        return frames

    def close(self, *, torn: bool = False) -> list[Frame]:
        """End the stream; return its last event, where that lacks its end.

        With `torn` the connection broke: what came of an event is dropped.
        """
        rest = self._splitter.flush()
        self._closed, self._torn = True, torn
        return [] if torn else [self.read(block, last=True) for block in rest]

    def trimmed(self, frame: Frame, skip: Mapping[str, int]) -> bytes:
        """Encode an event's frame without the first `skip` characters of each channel's new text.

        Texts that are repeated whole are left whole: a client that has their beginning has lost
        nothing.
        """
        found: Edits = frame.source or Edits()
        if self.dialect.framing == "text":
            (cut,) = found.cuts
            return cut.text[skip.get(cut.channel, 0) :].encode()
        left = dict(skip)
        edits: list[tuple[Place, str]] = list(found.ids)
        known: dict[str, int] = {}
        for cut in found.cuts:
            if not cut.repeat:
                known[cut.channel] = min(left.get(cut.channel, 0), len(cut.text))
                left[cut.channel] = left.get(cut.channel, 0) - known[cut.channel]
            if known[cut.channel]:
                edits.append((cut.place, cut.text[known[cut.channel] :] + cut.tail))
        return self._edited(frame.raw, edits) if edits else frame.raw

    def _edited(self, raw: bytes, edits: Iterable[tuple[Place, str]]) -> bytes:
        """Encode an event anew with other values at some places."""
        ndjson = self.dialect.framing == "ndjson"
        given = payload(raw) if ndjson else events(raw)[0].data
        data = json.loads(given.decode("utf-8", "replace"))
        for place, value in edits:
            holder = data
            for step in place[:-1]:
                holder = holder[step]
            holder[place[-1]] = value
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        encoded = text.encode("utf-8", "backslashreplace")
        if ndjson:
            return encoded + b"\n"
        lines = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").rstrip(b"\n").split(b"\n")
        kept = [line for line in lines if line.partition(b":")[0] != b"data"]
        return b"\n".join([*kept, b"data: " + encoded, b"", b""])

    def read(self, block: bytes, *, last: bool = False) -> Frame:
        """Read one event's bytes; the `last` lacks its end, which the client is given."""
        if not last and (before := self._like_before(block)) is not None:
            return self._go_on(before, [block])
        self._before = None
        raw, data, line = block, block, ""
        match self.dialect.framing:
            case "text":
                said = block.decode("utf-8", "replace")
                self._said = True
                self.texts.add("content", said)
                edits = Edits((TextCut((), "content", said),))
                return Frame(raw, "text", (("content", said),), source=edits)
            case "ndjson":
                data = payload(block)
            case "sse":
                raw = block + b"\n\n" if last else block
                decoded = events(raw)
                data = decoded[0].data if decoded else b""
                line = decoded[0].event if decoded else ""
                if line and not (data or last):
                    data = b"null"
        if not data:
            return Frame(block, "", verdict="preamble")
        self.events += 1
        try:
            return self._event(raw, data, line)
        except (NotJson, RecursionError):
            if last and self._ended:
                return Frame(block, "", verdict="preamble")
            failed = Failed("truncated") if last else Failed(UNREADABLE, detail=_shown(data))
        except _Shape as error:
            failed = Failed(error.code, detail=error.detail)
        self._failure = self._failure or failed
        rest = encode(data.decode("utf-8", "replace"))
        return Frame(raw, line, (), rest, "failure", failed)

    def _event(self, raw: bytes, data: bytes, line: str) -> Frame:
        """Read one event; raises `NotJson` and `_Shape`."""
        text = data.decode("utf-8", "replace")
        if text in self.dialect.names.marks:
            value: Any = text
            name = text
        else:
            value = decode(text)
            name = self._name(value, line)
        rule, paths = self._rule(name, value)
        at = paths.find(value)
        if rule.needs and not any(path in at for path in rule.needs):
            raise _Shape(UNKNOWN, f"{name!r} has none of {', '.join(rule.needs)}")
        for path, instead in rule.foreign.items():
            if instead not in at and any(holder[step] for holder, step, _ in at.get(path, ())):
                raise _Shape(UNKNOWN, f"{name!r} has {path} and no {instead}")
        if (rule.texts or rule.calls) and not isinstance(value, dict | list):
            raise _Shape(UNKNOWN, f"{name!r} is {_shown(data)}")
        failed = self._reported(rule, value, at)
        ids = self._number_ids(at)
        found = _Found(
            at,
            paths.dropped,
            known="*" not in listed(rule.name) and name != self.dialect.names.default,
        )
        for one in rule.texts:
            self._find_text(rule, one, found)
        for call in rule.calls:
            self._find_calls(call, value, found)
        failed = failed or self._find_finish(rule, found)
        rest = self._rest(rule, value, found, failed)
        texts = tuple((channel, text) for channel, text in found.texts.items() if text)
        verdict: Verdict = "content"
        if failed is not None:
            verdict = "failure"
        elif rule.says == "end":
            self._ended = self._whole(finished=self._ever)
            verdict = "terminal" if self._ended else "failure"
            failed = None if self._ended else Failed("truncated", detail=f"{name} without a finish")
        elif not texts and (not rest or rule.says == "preamble"):
            verdict = "preamble"
        for channel, text in texts:
            self.texts.add(channel, text)
        self._said = self._said or verdict == "content"
        self._failure = self._failure or failed
        self.recognised += found.known or bool(texts) or failed is not None
        if ids:
            raw = self._edited(raw, ids)
        edits = Edits(tuple(found.cuts), ids) if found.cuts or ids else None
        frame = Frame(raw, self._folded(name), texts, rest, verdict, failed, edits)
        self._before = None if ids else EventPiece.of(frame)
        return frame

    def _like_before(self, block: bytes) -> EventPiece | None:
        """Return the event before this one, where nothing but the text of the two differs."""
        return self._before if self._before is not None and self._before.text_of(block) else None

    def _go_on(self, before: EventPiece, blocks: Sequence[bytes]) -> Frame:
        """Read events that are the one before them but for their text."""
        channel = before.cut.channel
        self.events += len(blocks)
        self.recognised += len(blocks)
        block, text = b"".join(blocks), "".join(map(before.text_of, blocks))
        self.texts.add(channel, text)
        edits = Edits((TextCut(before.cut.place, channel, text),))
        return Frame(block, before.name, ((channel, text),), source=edits)

    def _rest(self, rule: EventRule, value: Any, found: _Found, failed: Failed | None) -> bytes:
        """Return what counts of an event besides its texts; annotations are put aside."""
        at = found.at
        counted: dict[str, list[Any]] = {}
        for path in rule.counts:
            for holder, step, _ in at.get(path, ()):
                if holder[step]:
                    counted.setdefault(path, []).append(holder[step])
                    holder[step] = None
        for path in found.dropped & at.keys():
            for holder, step, _ in at[path]:
                holder[step] = None
        left = _pruned(value)
        if failed is not None:
            return encode([_by_place(counted), left])
        if rule.piece:
            if left is not None:
                family = listed(rule.name)[0]
                self.annotations[family] = _merged(self.annotations.get(family), left)
            rest = encode(_by_place(counted)) if counted else b""
            if rest == self._counted and not found.texts:
                return b""  # said again at the same place
        else:
            rest = b"" if rule.mark is False else encode(left)
        if rest or found.texts:
            self._counted = rest
        return rest

    def _name(self, value: Any, line: str) -> str:
        """Return an event's name: of those it may have, the first that a rule is declared for."""
        names = self.dialect.names
        at = values(value, names.path) if names.path else []
        for name in (*at, line):
            if name and isinstance(name, str) and rules_of(self.dialect, name):
                return name
        return names.default

    def _rule(self, name: str, value: Any) -> tuple[EventRule, Paths]:
        for rule, paths in rules_of(self.dialect, name):
            if all(_is(value, path, wanted) for path, wanted in rule.when.items()):
                return rule, paths
        return _OTHER, _OTHER.paths(self.dialect)

    def _reported(
        self, rule: EventRule, value: Any, at: Mapping[str, list[Found]]
    ) -> Failed | None:
        """Return the failure that an event reports."""
        reports = self.dialect.failure
        places = [place for path in reports.at for place in at.get(path, ())]
        if rule.says != "failure" and not any(holder[step] for holder, step, _ in places):
            return None
        code, message = (
            next((str(one) for path in paths if (one := _one(value, path))), "")
            for paths in (reports.code, reports.message)
        )
        detail = ": ".join(one for one in (code, message) if one)
        return Failed("service_failed", reports.blame(code), detail or _shown(encode(value)))

    def _number_ids(self, at: Mapping[str, list[Found]]) -> tuple[tuple[Place, str], ...]:
        """Replace generated ids by their numbers; return those that the client knows otherwise."""
        edits = []
        for kind, paths in self.dialect.ids.items():
            if not any(path in at for path in paths):
                continue
            known = self.ids.setdefault(kind, [])
            before = self._after.ids.get(kind, []) if self._after is not None else []
            numbers = self._keys.setdefault(f"id {kind}", {})
            for path in paths:
                for holder, step, place in at.get(path, ()):
                    one = holder[step]
                    if not isinstance(one, str | int) or not one or isinstance(one, _Numbered):
                        continue
                    if one not in numbers:
                        known.append(one)
                        numbers[one] = len(known)
                    number = numbers[one]
                    if number <= len(before) and before[number - 1] != one:
                        edits.append((place, before[number - 1]))
                    holder[step] = _Numbered(f"{kind} {number}")
        return tuple(edits)

    def _channel(self, name: str, key: Any) -> str:
        """Return the channel of a text, by what tells it apart."""
        if key is None:
            number = self._last_key.get(name, 1)
        else:
            keys = self._keys.setdefault(name, {})
            number = keys.setdefault(key, len(keys) + 1)
        self._last_key[name] = number
        return name if number == 1 else f"{name} {number}"

    def _find_text(self, rule: EventRule, one: TextAt, found: _Found) -> None:
        paths = [path for path in listed(one.path) if path in found.at]
        if not paths:
            return
        key = None
        if one.by and one.by != "*":
            places = (next(iter(found.at.get(path, ())), None) for path in listed(one.by))
            by = [place and place[0][place[1]] for place in places]
            key = None if all(part is None for part in by) else encode(by)
        said: dict[str, str] = {}
        for path in paths:
            here: dict[str, list[TextCut]] = {}
            for holder, step, place in found.at[path]:
                text = holder[step]
                if isinstance(text, list) and any(
                    other.startswith(f"{path}[")
                    for text_at in rule.texts
                    for other in listed(text_at.path)
                ):
                    continue
                if text is not None and not isinstance(text, str):
                    raise _Shape(UNKNOWN, f"{path} is {_shown(encode(text))}")
                found.known = True
                holder[step] = None
                if not text:
                    continue
                if one.by == "*":
                    key = encode([part for part in place if isinstance(part, int)])
                channel = self._channel(one.channel, key)
                here.setdefault(channel, []).append(TextCut(place, channel, text))
            for channel, cuts in here.items():
                text = "".join(cut.text for cut in cuts)
                if one.growth == "total":
                    self._grow_to(channel, text, found)
                elif said.get(channel) == text:
                    if len(cuts) == 1:
                        first = next(cut for cut in found.cuts if cut.channel == channel)
                        found.cuts.append(replace(first, place=cuts[0].place, repeat=True))
                else:
                    for cut in cuts:
                        self._grow(cut.place, channel, cut.text, found)
                    said.setdefault(channel, text)

    def _grow(self, place: Place, channel: str, text: str, found: _Found) -> None:
        """Add a piece to a channel; half a character at its end waits for its other half."""
        tail = ""
        if ord(text[-1]) in _HIGH_SURROGATES:
            text, tail = text[:-1], text[-1]
        if half := self._halves.pop(channel, ""):
            text = _joined(half + text)
        if tail:
            self._halves[channel] = tail
        found.add(channel, text)
        found.cuts.append(TextCut(place, channel, text, tail))

    def _so_far(self, channel: str, found: _Found) -> str:
        return self.texts.get(channel, "") + found.texts.get(channel, "")

    def _grow_to(self, channel: str, text: str, found: _Found) -> None:
        """Add to a channel what its text is to become; raises `_Shape` where it says otherwise."""
        so_far = self._so_far(channel, found)
        if not text.startswith(so_far):
            raise _Shape(CONTRADICTION, f"{channel}: {so_far!r}, and then {text!r}")
        self._halves.pop(channel, None)
        if len(text) > len(so_far):
            found.add(channel, text[len(so_far) :])

    def _find_calls(self, at: CallAt, value: Any, found: _Found) -> None:
        whole: list[Found] = [({"": value}, "", ())]
        for holder, step, place in found.at.get(at.at, ()) if at.at else whole:
            piece = holder[step]
            if not isinstance(piece, dict):
                if piece is not None:
                    raise _Shape(UNKNOWN, f"{at.at} is {_shown(encode(piece))}")
                continue
            found.known = True
            id_, index, name = (_one(piece, path) for path in (at.id, at.index, at.name))
            name = name if isinstance(name, str) else ""
            call = self._calls.of(
                id_ or None,
                index,
                name,
                lambda call: self._so_far(f"call {call.number} arguments", found),
            )
            for path, kind in ((at.name, "name"), (at.arguments, "arguments")):
                for inner, key, below in find(piece, path) if path else ():
                    text = inner[key]
                    inner[key] = None
                    channel = f"call {call.number} {kind}"
                    if kind == "name" and text == call.name:
                        continue
                    if isinstance(text, str) and (kind == "name" or at.growth == "delta"):
                        if text:
                            self._grow((*place, *below) if at.at else below, channel, text, found)
                        call.name += text if kind == "name" else ""
                    elif text is not None:
                        self._whole_arguments(channel, text, found)
            if at.at:
                for path in (at.id, at.index):
                    for inner, key, _ in find(piece, path) if path else ():
                        inner[key] = None

    def _whole_arguments(self, channel: str, value: Any, found: _Found) -> None:
        """Take arguments that came whole, perhaps after their pieces."""
        so_far = self._so_far(channel, found)
        if not so_far:
            text = value if isinstance(value, str) else encode(value).decode()
            found.add(channel, text) if text else None
        elif isinstance(value, str):
            self._grow_to(channel, value, found)
        elif decode_or(so_far, None) != value:
            raise _Shape(CONTRADICTION, f"{channel}: {so_far!r}, and then {_shown(encode(value))}")

    def _find_finish(self, rule: EventRule, found: _Found) -> Failed | None:
        """Note whether the answer is finished; what is said after it waits for another finish."""
        if any(found.texts.values()):
            self._finished = False
        self._finished = self._finished or rule.says == "finish"
        failed = None
        for path in self.dialect.end.finish:
            for holder, step, _ in found.at.get(path, ()):
                reason = holder[step]
                if reason:
                    found.known = self._finished = True
                if reason in self.dialect.end.failing:
                    failed = Failed("service_failed", "world", f"finish reason {reason!r}")
        self._ever = self._ever or self._finished
        return failed

    def _whole(self, *, finished: bool) -> bool:
        """Whether the answer has a finish, where the dialect has one."""
        needed = self.dialect.end.finish or any(r.says == "finish" for r in self.dialect.events)
        return finished or not needed

    def _folded(self, name: str) -> str:
        """Return a name whose generated parts are numbers, in order of appearance."""
        numbers = self._keys.setdefault("id in names", {})

        def number(match: re.Match[str]) -> str:
            return f"#{numbers.setdefault(match[0].lower(), len(numbers) + 1)}"

        return _GENERATED.sub(number, name)


class _Numbered(str):
    """A generated id that has become its number."""

    __slots__ = ()


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
        longest = max(len(old), len(new))
        pairs = ((old[i : i + 1] or [None], new[i : i + 1] or [None]) for i in range(longest))
        return [_merged(one, two) for [one], [two] in pairs]
    return old if new is None else new


def _joined(text: str) -> str:
    """Join the halves of characters."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _shown(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
