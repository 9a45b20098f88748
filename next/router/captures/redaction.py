"""Redaction: a run's line loses its personal data before it is stored. Pure."""

from __future__ import annotations

import codecs
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Any, Generic, TypeVar

import msgspec

from cutover.errors import CutoverError, Outcome
from cutover.normal_form import fold
from cutover.records import (
    EntryRecord,
    ItemRecord,
    PlayRecord,
    RunRecord,
    TapeRecord,
    encode,
)
from router.captures.kinds import Kind, Kinds
from router.captures.texts import Edit, Spot, StoredText, Track, View, spread, tracks

T = TypeVar("T", bound=ItemRecord)

ROOTS = ("request", "options", "frames", "calls", "results")
"""Where paths begin: the request's body, the flow's options, the events that went out, what effects
and models were asked, and what they returned."""
_SECRET_NAMES = re.compile(
    r"(?i)(?:proxy[_-]?)?authorization|(?:set[_-]?)?cookie|(?:x[_-])?api[_-]?key|pass(?:word|wd)"
    r"|(?:access|refresh|auth|id|bearer)[_-]?token|(?:client[_-]?)?secret|private[_-]?key"
    r"|secret[_-]?(?:access[_-]?)?key"
)
_PSEUDONYM = re.compile(r"<[a-z][a-z0-9_]*:[0-9a-f]{12}>")
_LEAST_FOUND, _LEAST_GIVEN = 8, 2
"""Characters from which what a pattern has found, or a path, is looked for in the whole line."""
_LEAST_CUT = 6
"""Characters of a known value that a stream may not end with, if they are half of it."""


class PathRefused(CutoverError):
    """A path of a configuration leads nowhere."""

    def __init__(self, path: str) -> None:
        super().__init__(f"path {path!r}: begin with one of {', '.join(ROOTS)}, then a dot")


class Redactor:
    """Replaces personal data by keyed pseudonyms such as `<email:3f9a1c07b2d4>`.

    Equal values have equal pseudonyms for as long as the key is the same. `paths` are dotted, begin
    with one of `ROOTS`, and `*` stands for any one step: `request.user.name`. What they lead to is
    replaced there and wherever it stands in the line. `patterns` are own expressions by name (see
    `Kinds`).
    """

    def __init__(
        self,
        key: bytes,
        *,
        paths: Iterable[str] = (),
        patterns: Mapping[str, str] | None = None,
    ) -> None:
        self._key = key
        self.kinds = Kinds(patterns)
        self._paths = [tuple(path.split(".")) for path in paths]
        for path in self._paths:
            if path[0] not in ROOTS or len(path) == 1:
                raise PathRefused(".".join(path))
        self._learns = any(path[0] in {"calls", "results"} for path in self._paths)

    def line(self, record: RunRecord, served: TapeRecord | None = None) -> RunRecord:
        """Return a line without personal data; what it raises, it raises instead of storing any.

        A line that holds no tape is to be given that of its exchange, `served`: what paths lead to
        there is replaced here, too.
        """
        work, tape = _Work(self), record.tape
        request, options = (
            work.text("request", record.request),
            work.text("options", record.options),
        )
        path, outcome = work.text("", record.path), work.text("", encode(record.outcome).decode())
        frames = work.items("frames", record.frames)
        entries = [_Entry(work, one) for one in (tape.entries if tape else ())]
        plays = [
            (work.text("", p.name), work.text("calls", p.canonical or "")) for p in record.plays
        ]
        question = work.text("", (tape.question if tape else None) or "")
        for one in served.entries if served and served is not tape and self._learns else ():
            _Entry(work, one)
        if not work.edited():
            return record
        replace = msgspec.structs.replace
        if tape is not None:
            tape = replace(
                tape,
                entries=tuple(one.rewritten() for one in entries),
                question=tape.question and question.rewritten(),
            )
        ended: Any = msgspec.json.decode(outcome.rewritten(), type=Outcome)
        return replace(
            record,
            request=request.rewritten(),
            options=options.rewritten(),
            path=path.rewritten(),
            outcome=ended,
            frames=frames.rewritten(),
            tape=tape,
            plays=tuple(map(_play, record.plays, plays)),
            redacted=True,
        )

    def entry(self, record: EntryRecord) -> EntryRecord:
        """Return a call on its own, found by what it would be found by in a redacted line."""
        work = _Work(self)
        entry = _Entry(work, record)
        work.edited()
        return entry.rewritten()

    def pseudonym(self, kind: Kind, value: str) -> str:
        """Return what stands for a value, which may be a pseudonym already."""
        if _PSEUDONYM.fullmatch(value):
            return value
        return f"<{kind.name}:{self.digest(kind.normal(value))}>"

    def digest(self, normal: str) -> str:
        """Return what tells a pseudonym from others of its kind."""
        data = normal.encode("utf-8", "surrogatepass")
        return hmac.new(self._key, data, sha256).hexdigest()[:12]

    def digests(self, value: str) -> set[str]:
        """Return what may tell the pseudonyms of a value, whatever its kind is."""
        return {self.digest(normal(value)) for normal in (_given("id").normal, _DIGITS.normal)}

    def number(self, value: str) -> str:
        """Return what stands for a whole number: one of as many digits."""
        made = int(hmac.new(self._key, value.encode(), sha256).hexdigest(), 16)
        return f"99{made}"[: len(value)]

    def given(self, root: str, spot: Spot) -> Kind | None:
        """Return the kind of what a path leads to, or what is named like a secret."""
        if spot.is_name:
            return None
        place = (root, *spot.path)
        for path in self._paths:
            if len(path) <= len(place) and all(a in {"*", b} for a, b in zip(path, place)):  # noqa: B905 - what is below is meant, too
                return _given(next((one for one in reversed(path) if one.isidentifier()), "value"))
        if not spot.is_number and _SECRET_NAMES.fullmatch(spot.path[-1]):
            return _given("secret")
        return None


_DIGITS = Kind("digits", "", lambda _: (), digits=True)


@lru_cache
def _given(name: str) -> Kind:
    return Kind(
        re.sub(r"[^a-z0-9_]", "_", name.lower()).lstrip("_0123456789") or "value", "", lambda _: ()
    )


def _play(record: PlayRecord, parts: tuple[StoredText, StoredText]) -> PlayRecord:
    canonical = record.canonical and parts[1].rewritten()
    return msgspec.structs.replace(record, name=parts[0].rewritten(), canonical=canonical)


@dataclass(slots=True)
class _Alike:
    """Strings that are equal, at one place in several texts."""

    spots: list[Spot]
    kind: Kind | None
    edits: list[Edit] = field(default_factory=list)


class _Work:
    """The texts of one line, in which values are learned first and then replaced everywhere."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._parts: list[tuple[str, StoredText]] = []
        self._streams: list[list[StoredText]] = []
        self._known: dict[str, tuple[Kind, bool]] = {}
        self._views: dict[str, tuple[View, list[tuple[int, int, Kind]]]] = {}

    def text(self, root: str, text: str) -> StoredText:
        """Add a text; `root` is where paths to it begin."""
        part = StoredText(text)
        self._parts.append((root, part))
        return part

    def items(self, root: str, items: Sequence[T]) -> _Items[T]:
        """Add items or frames: pieces of streams may stand in them."""
        found = _Items(self, root, items)
        self._streams.append(found.parts)
        return found

    def edited(self) -> bool:
        """Put edits where personal data stands; return whether it stands anywhere.

        Events of a stream are alike: what stands at one place again and again is searched once.
        """
        alike: dict[tuple[str, tuple[str, ...], str, bool, bool], list[Spot]] = {}
        for root, part in self._parts:
            for spot in part.spots:
                same = root, spot.path, spot.text, spot.is_name, spot.is_number
                if (those := alike.get(same)) is None:
                    alike[same] = [spot]
                else:
                    those.append(spot)
        whole = [
            _Alike(spots, self._redactor.given(root, spots[0]))
            for (root, *_), spots in alike.items()
            if not spots[0].bare
        ]
        joined = [track for parts in self._streams for track in tracks(parts)]
        joined = [track for track in joined if not any(spot.bare for spot in track.spots)]
        for one in whole:
            spot = one.spots[0]
            if one.kind is None:
                one.edits += self._found(spot)
            elif spot.text:
                self._learn(spot.text, one.kind, given=True)
                one.edits.append(self._edit(spot, 0, len(spot.text), one.kind, spot.text))
        for track in joined:
            spread(track, self._matches(track.text))
        for given in (False, True):
            if (literal := self._literal(given=given)) is None:
                continue
            for one in whole:
                if one.kind is None and not (given and one.spots[0].protocol):
                    one.edits += self._literals(one.spots[0].text, literal, one.spots[0])
            for track in joined:
                if not (given and track.spots[0].protocol):
                    spread(track, [*self._literals(track.text, literal), *self._cut(track)])
        for one in whole:
            for spot in one.spots if one.edits else ():
                spot.edits = (*spot.edits, *one.edits)
        return bool(self._known) or any(one.edits for one in whole)

    def _found(self, spot: Spot) -> list[Edit]:
        if not spot.is_number:
            return self._matches(spot.text)
        found = self._redactor.kinds.find(spot.text)
        return [
            self._edit(spot, start, end, kind, spot.text)
            for start, end, kind in found
            if end - start == len(spot.text)
        ]

    def _matches(self, text: str) -> list[Edit]:
        """Return edits of what patterns find in a text, as it stands and as it is read."""
        view = self._view(text)
        edits = []
        for start, end, kind in self._views[text][1]:
            value = view.text[start:end]
            self._learn(value, kind, given=False)
            edits.append(self._in_text(view, start, end, kind, value))
        return edits

    def _view(self, text: str) -> View:
        if text not in self._views:
            view = View(text)
            self._views[text] = view, self._redactor.kinds.find(view.text)
        return self._views[text][0]

    def _literals(
        self, text: str, literal: re.Pattern[str], spot: Spot | None = None
    ) -> list[Edit]:
        view, edits = self._view(text), []
        for found in literal.finditer(view.text):
            kind, _ = self._known[found[0]]
            if spot is None or not spot.is_number:
                edits.append(self._in_text(view, *found.span(), kind, found[0]))
            elif found[0] == text:
                edits.append(self._edit(spot, 0, len(text), kind, text))
        return edits

    def _in_text(self, view: View, start: int, end: int, kind: Kind, value: str) -> Edit:
        put = self._redactor.pseudonym(kind, value)
        if value.isdigit() and view.text.lstrip()[:1] in ("{", "["):
            before, after = view.text[:start].rstrip()[-1:], view.text[end:].lstrip()[:1]
            if before in {":", ",", "["} and after in {",", "]", "}"}:
                put = self._redactor.number(value)  # a number within JSON that is a text
        return Edit(view.source(start), view.source(end), put)

    def _edit(self, spot: Spot, start: int, end: int, kind: Kind, value: str) -> Edit:
        redactor = self._redactor
        put = redactor.number(value) if spot.is_number else redactor.pseudonym(kind, value)
        return Edit(start, end, put)

    def _learn(self, value: str, kind: Kind, *, given: bool) -> None:
        least = _LEAST_GIVEN if given else _LEAST_FOUND
        if len(value) >= least and not _PSEUDONYM.fullmatch(value):
            self._known.setdefault(value, (kind, given))

    def _literal(self, *, given: bool) -> re.Pattern[str] | None:
        """Return an expression for the known values; given ones are no parts of longer words."""
        values = [value for value, (_, one) in self._known.items() if one is given]
        if not values:
            return None
        longest = "|".join(map(re.escape, sorted(values, key=len, reverse=True)))
        apart = rf"(?<![A-Za-z0-9_])(?:{longest})(?![A-Za-z0-9_])"
        return re.compile(apart if given else longest)

    def _cut(self, track: Track) -> list[Edit]:
        """Return an edit for a known value that a stream which was cut off ends within."""
        text = track.text
        for value in self._known:
            for length in range(len(value) - 1, max(_LEAST_CUT, len(value) // 2) - 1, -1):
                if text.endswith(value[:length]):
                    return [Edit(len(text) - length, len(text), "")]
        return []


class _Items(Generic[T]):
    """Items of one call, or the frames of a run."""

    def __init__(self, work: _Work, root: str, items: Sequence[T]) -> None:
        self._items = items
        texts = [one.content for one in items if isinstance(one.content, str)]
        if len(texts) < len(items):  # characters may be cut: their beginnings wait for the rest
            reader = codecs.getincrementaldecoder("utf-8")("surrogateescape")
            texts = [reader.decode(one.data) for one in items]
            texts[-1] += reader.decode(b"", final=True)
        self._parts = [[work.text(root, one) for one in _events(text)] for text in texts]

    @property
    def parts(self) -> list[StoredText]:
        """The events, in order."""
        return [part for parts in self._parts for part in parts]

    def rewritten(self) -> tuple[T, ...]:
        """Return the items with the edits of their texts."""
        if not any(spot.edits for part in self.parts for spot in part.spots):
            return tuple(self._items)
        texts = ("".join(part.rewritten() for part in parts) for parts in self._parts)
        return tuple(
            type(item).of(item.at, text.encode("utf-8", "surrogateescape"))
            for item, text in zip(self._items, texts, strict=True)
        )


_BLANK_LINE = re.compile(r"(?<=\n\n)|(?<=\r\n\r\n)|(?<=\r\r)")
_OBJECT_LINES = re.compile(r"(?:\{[^\n]*\n){2,}")


def _events(text: str) -> list[str]:
    """Return the events in one item: a frame holds several where a service sent them at once."""
    if _OBJECT_LINES.fullmatch(text):
        return re.findall(r"[^\n]*\n", text)
    is_stream = text.startswith(("data:", "event:", "id:", ":"))
    return [one for one in _BLANK_LINE.split(text) if one] if is_stream else [text]


class _Entry:
    """A call on the tape."""

    def __init__(self, work: _Work, record: EntryRecord) -> None:
        self._record, error = record, record.error
        self._name = work.text("", record.name)
        self._canonical = work.text("calls", record.canonical)
        self._items = work.items("results", record.items)
        self._message = work.text("results", error.message if error else "")
        self._args = work.text("results", error.args if error else "")

    def rewritten(self) -> EntryRecord:
        """Return the entry, found by what its redacted request would be found by."""
        record, replace = self._record, msgspec.structs.replace
        name, canonical = self._name.rewritten(), self._canonical.rewritten()
        error = record.error and replace(
            record.error, message=self._message.rewritten(), args=self._args.rewritten()
        )
        key = record.key
        if (name, canonical) != (record.name, record.canonical):
            key = _key(record, name, canonical)
        return replace(
            record,
            name=name,
            key=key,
            canonical=canonical,
            items=self._items.rewritten(),
            error=error,
        )


def _key(record: EntryRecord, name: str, canonical: str) -> str:
    """Return the key of a changed request: that of an effect, of a request, or of its own.

    The old one is a hash of what was asked, and would tell who tries all telephone numbers.
    """

    def of_request(name: str, canonical: str) -> str:
        label = name.encode("utf-8", "backslashreplace")
        return blake2b(label + b"\0" + fold(canonical.encode()), digest_size=16).hexdigest()

    if record.key == of_request(record.name, record.canonical):
        return of_request(name, canonical)
    return blake2b(canonical.encode(), digest_size=16).hexdigest()
