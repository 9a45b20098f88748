"""Redaction: a run's line loses its personal data before it is stored. Pure."""

from __future__ import annotations

import codecs
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b, sha256
from itertools import chain, pairwise
from typing import Any, TypeVar, cast

import msgspec

from cutover.errors import CutoverError
from cutover.normal_form import fold
from cutover.records import EntryRecord, ItemRecord, RunRecord, TapeRecord
from router.captures.kinds import Kind, Kinds
from router.captures.texts import Edit, Spot, StoredText, Track, View, equal_tracks, joined_tracks

R = TypeVar("R")
T = TypeVar("T", bound=ItemRecord)
Found = tuple[int, int, Kind]
"""Where a value begins and ends, and what it is."""

ROOTS = ("request", "options", "frames", "calls", "results")
"""Where paths begin: the request's body, the flow's options, the events that went out, what effects
and models were asked, and what they returned."""
_SECRET_NAMES = re.compile(
    r"(?i).{0,60}(?:authorization|cookie|api[_-]?key|pass(?:word|wd|phrase|code)|pwd|secret|credentials"
    r"|(?:access|refresh|auth|id|bearer|session|csrf|xsrf|security)[_-]?token"
    r"|(?:private|secret|access|account|signing|encryption|gateway)[_-]?key|密码|密碼|口令)|jwt|otp|cv[vc]"
)
_PSEUDONYM = re.compile(r"<[a-z][a-z0-9_]*:[0-9a-f]{12}>")
_LEAST_FOUND, _LEAST_DECLARED = 8, 2
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
        self, key: bytes, *, paths: Iterable[str] = (), patterns: Mapping[str, str] | None = None
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
        work = _Work(self)
        _visit(record, work)
        if served is not None and served is not record.tape and self._learns:
            _visit(served, work)
        if not work.find():
            return record
        return msgspec.structs.replace(_visit(record, work), redacted=True)

    def entry(self, record: EntryRecord) -> EntryRecord:
        """Return a call on its own, found by what it would be found by in a redacted line."""
        work = _Work(self)
        _visit(record, work)
        return _visit(record, work) if work.find() else record

    def pseudonym(self, kind: Kind, value: str) -> str:
        """Return what stands for a value, which may be a pseudonym already."""
        if _PSEUDONYM.fullmatch(value):
            return value
        return f"<{kind.name}:{self._hash(kind.normal(value))[:12]}>"

    def digests(self, value: str) -> set[str]:
        """Return what may tell the pseudonyms of a value, whatever its kind is."""
        read = View(value).text
        return {self._hash(normal(read))[:12] for normal in (_kind("id").normal, _DIGITS.normal)}

    def number(self, value: str) -> str:
        """Return what stands for a whole number: one of as many digits."""
        return f"99{int(self._hash(value), 16)}"[: len(value)]

    def _hash(self, value: str) -> str:
        return hmac.new(self._key, value.encode("utf-8", "surrogatepass"), sha256).hexdigest()

    def declared(self, spot: Spot) -> Kind | None:
        """Return the kind of what a path leads to, or what is named like a secret."""
        if spot.is_name:
            return None
        for path in self._paths:
            begins = zip(path, spot.path, strict=False)  # what is below is meant, too
            if len(path) <= len(spot.path) and all(one in {"*", there} for one, there in begins):
                return _kind(next((one for one in reversed(path) if one.isidentifier()), ""))
        if not spot.is_number and _SECRET_NAMES.fullmatch(spot.path[-1]):
            return _kind("secret")
        return None


_DIGITS = Kind("digits", digits=True)


@lru_cache
def _kind(name: str) -> Kind:
    """Return the kind of what stands at a name."""
    return Kind(re.sub(r"[^a-z0-9_]", "_", name.lower()).lstrip("_0123456789") or "value")


class _Work:
    """The texts of one line: they are added, searched, and then asked for once more, rewritten.

    Values are learned first, and then replaced everywhere.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._texts: list[StoredText] = []
        self._streams: list[Sequence[StoredText]] = []
        self._searched: Iterator[StoredText] | None = None
        self._known: dict[str, tuple[Kind, bool]] = {}
        self._views: dict[str, tuple[View, list[Found]]] = {}

    def text(self, root: str, text: str) -> str:
        """Add a text, whose paths begin with `root`; once searched, return it rewritten."""
        if self._searched is not None:
            return next(self._searched).rewritten()
        self._texts.append(StoredText(text, root))
        return text

    def items(self, root: str, items: tuple[T, ...]) -> tuple[T, ...]:
        """Add the items of a call or the frames of a run, or return them rewritten."""
        texts, before = _texts(items), len(self._texts)
        rewritten = ["".join(self.text(root, one) for one in _events(text)) for text in texts]
        if self._searched is None:
            self._streams.append(self._texts[before:])
        if rewritten == texts:
            return items
        return tuple(
            type(item).of(item.at, text.encode("utf-8", "surrogateescape"))
            for item, text in zip(items, rewritten, strict=True)
        )

    def find(self) -> bool:
        """Put edits where personal data stands; return whether it stands anywhere.

        Events of a stream are alike: what stands at one place again and again is searched once.
        """
        self._searched = iter(self._texts)
        joined = chain.from_iterable(map(joined_tracks, self._streams))
        searched = []
        for track in chain(equal_tracks(self._texts), joined):
            if any(spot.bare for spot in track.spots):
                continue
            spot = track.spots[0]
            view, found = self._view(track.text)
            kind = self._redactor.declared(spot) if track.kind == "equal" else None
            if kind is None:
                searched.append(track)
            else:
                found = [(0, len(view.text), kind)] if spot.text else []
            for start, end, known in found:
                if kind is not None or not spot.is_number:
                    self._learn(view.text[start:end], known, declared=kind is not None)
            track.spread(self._edits(track, found))
        for declared in (False, True):
            if (literal := self._literal(declared=declared)) is None:
                continue
            for track in searched:
                if not (declared and track.spots[0].protocol):
                    track.spread([*self._known_in(track, literal), *self._cut(track)])
        return any(spot.edits for text in self._texts for spot in text.spots)

    def _known_in(self, track: Track, literal: re.Pattern[str]) -> list[Edit]:
        found = literal.finditer(self._view(track.text)[0].text)
        return self._edits(track, ((*one.span(), self._known[one[0]][0]) for one in found))

    def _edits(self, track: Track, found: Iterable[Found]) -> list[Edit]:
        view, edits, redactor = self._view(track.text)[0], [], self._redactor
        for start, end, kind in found:
            value = view.text[start:end]
            if not track.spots[0].is_number:
                within = value.isdigit() and _is_number_in_json(view.text, start, end)
                put = redactor.number(value) if within else redactor.pseudonym(kind, value)
                edits.append(Edit(view.source(start), view.source(end), put))
            elif value == view.text:
                edits.append(Edit(start, end, redactor.number(value)))
        return edits

    def _view(self, text: str) -> tuple[View, list[Found]]:
        if text not in self._views:
            view = View(text)
            self._views[text] = view, self._redactor.kinds.find(view.text)
        return self._views[text]

    def _learn(self, value: str, kind: Kind, *, declared: bool) -> None:
        least = _LEAST_DECLARED if declared else _LEAST_FOUND
        if len(value) >= least and not _PSEUDONYM.fullmatch(value):
            self._known.setdefault(value, (kind, declared))

    def _literal(self, *, declared: bool) -> re.Pattern[str] | None:
        """Return an expression for the known values; declared ones are no parts of words."""
        values = [value for value, (_, one) in self._known.items() if one is declared]
        if not values:
            return None
        longest = "|".join(map(re.escape, sorted(values, key=len, reverse=True)))
        apart = rf"(?<![A-Za-z0-9_])(?:{longest})(?![A-Za-z0-9_])"
        return re.compile(apart if declared else longest)

    def _cut(self, track: Track) -> list[Edit]:
        """Return an edit for a known value that a stream which was cut off ends within."""
        if track.kind == "equal":
            return []
        view = self._view(track.text)[0]
        for value in self._known:
            for length in range(len(value) - 1, max(_LEAST_CUT, len(value) // 2) - 1, -1):
                if view.text.endswith(value[:length]):
                    return [Edit(view.source(len(view.text) - length), len(track.text), "")]
        return []


def _is_number_in_json(text: str, start: int, end: int) -> bool:
    """Whether digits are a number within JSON that is a text."""
    if text.lstrip()[:1] not in ("{", "["):
        return False
    before, after = text[:start].rstrip()[-1:], text[end:].lstrip()[:1]
    return before in {":", ",", "["} and after in {",", "]", "}"}


# --- What a line holds


_FIELDS: Mapping[str, str] = {
    "request": "request",
    "options": "options",
    "frames": "frames",
    "canonical": "calls",
    **dict.fromkeys(("items", "message", "args"), "results"),
    **dict.fromkeys(("path", "name", "question", "code", "detail"), ""),
    **dict.fromkeys(("outcome", "tape", "plays", "entries", "error"), ""),
}
"""Fields of records that hold texts, or records that do, and the root of paths in these texts."""


def _visit(value: R, work: _Work, root: str = "") -> R:
    """Add the texts in a record to the work; once it has searched them, return it with new ones."""
    made: Any = value
    if isinstance(value, str):
        made = work.text(root, value)
    elif isinstance(value, tuple):
        items = root in {"frames", "results"}
        made = work.items(root, value) if items else tuple(_visit(one, work) for one in value)
    elif isinstance(value, msgspec.Struct):
        names = [name for name in value.__struct_fields__ if name in _FIELDS]
        new = {name: _visit(getattr(value, name), work, _FIELDS[name]) for name in names}
        made = msgspec.structs.replace(value, **new)
        if isinstance(value, EntryRecord):
            made = msgspec.structs.replace(made, key=_key(value, made.name, made.canonical))
    return cast("R", made)


def _texts(items: Sequence[ItemRecord]) -> list[str]:
    """Return the texts of items; characters may be cut: their beginnings wait for the rest."""
    texts = [one.content for one in items if isinstance(one.content, str)]
    if len(texts) < len(items):
        reader = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        texts = [reader.decode(one.data) for one in items]
        texts[-1] += reader.decode(b"", final=True)
    return texts


_BLANK_LINE = re.compile(r"\n\n|\r\n\r\n|\r\r")
_OBJECT_LINES = re.compile(r"(?:\{[^\n]*\n){2,}")


def _events(text: str) -> list[str]:
    """Return the events in one item: a frame holds several where a service sent them at once."""
    if _OBJECT_LINES.fullmatch(text):
        return re.findall(r"[^\n]*\n", text)
    if not text.startswith(("data:", "event:", "id:", ":")):
        return [text]
    ends = (found.end() for found in _BLANK_LINE.finditer(text))
    return [text[start:end] for start, end in pairwise((0, *ends, len(text))) if start < end]


def _key(record: EntryRecord, name: str, canonical: str) -> str:
    """Return the key of a changed request: that of an effect, of a request, or of its own.

    The old one is a hash of what was asked, and would tell who tries all telephone numbers.
    """

    def of_request(name: str, canonical: str) -> str:
        label = name.encode("utf-8", "backslashreplace")
        return blake2b(label + b"\0" + fold(canonical.encode()), digest_size=16).hexdigest()

    if (name, canonical) == (record.name, record.canonical):
        return record.key
    if record.key == of_request(record.name, record.canonical):
        return of_request(name, canonical)
    return blake2b(canonical.encode(), digest_size=16).hexdigest()
