"""Redacting an exchange: all its records at once, before any of it is stored."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import msgspec

from contract.model import Chunk
from contract.records import EntryRecord, FeedbackRecord, PlayRecord, RunRecord
from contract.wire import Dialect, EventDecoder
from router.capture.redaction.dictionary import Dictionary
from router.capture.redaction.passes import (
    Json,
    Learn,
    Pass,
    Paths,
    Rewrite,
    below,
    reachable,
    split_paths,
    walk,
)
from router.capture.redaction.texts import decode_json, encode_json, searchable
from router.config import Patterns

# Their answers are numbers and made-up ids: no personal data, and a clock looks like a card number.
_IMPERSONAL = frozenset({"clock", "ids"})
# A person types whole numbers here; elsewhere numbers are counts and times.
_TYPED = frozenset({"human"})
_PIECES = ("text", "reasoning")
_ONLY_PIECES = frozenset({"at", *_PIECES})
_DATA = "data:"
_CLOSING = '"}\n'

_chunks = msgspec.json.Decoder(list[Chunk])


class Redactor:
    """Replaces personal data by keyed pseudonyms.

    `paths` are dotted and begin with `request.body`, `request.options`, `tape.<port>.<op>.args`,
    `tape.<port>.<op>.items.<number>` or `frames.<event>`; `*` stands for any one step. Equal
    values have equal pseudonyms for as long as the key is the same.
    """

    def __init__(self, patterns: Patterns, paths: Iterable[str], key: bytes) -> None:
        self._patterns = patterns
        self._paths = split_paths(paths)
        self._key = key

    def exchange(self, records: Sequence[RunRecord], dialect: Dialect) -> list[RunRecord]:
        """Return the records of one exchange without personal data, marked `redacted` if changed.

        An unmarked record is verbatim: its replay is compared with the recorded frames.
        """
        runs, dictionary, _ = self._learned(records, dialect)
        return _rewritten(runs, dictionary) if dictionary else list(records)

    def at_once(self, records: Sequence[RunRecord], dialect: Dialect) -> list[RunRecord] | None:
        """Do as `exchange` where that is quick; None where texts would have to be searched.

        It is quick where no pattern could match, and no frame holds what paths lead to.
        """
        runs, dictionary, searched = self._learned(records, dialect, search=False)
        if searched:
            return None
        if not dictionary:
            return list(records)
        rewrite = Rewrite(dictionary)
        if any(run.entries or run.frames.concerned(rewrite) for run in runs):
            return None
        return _rewritten(runs, dictionary)

    def feedback(self, record: FeedbackRecord) -> FeedbackRecord:
        """Return a feedback without personal data in its comment."""
        if not record.comment:
            return record
        dictionary = Dictionary(self._key, self._patterns)
        dictionary.learn(record.comment)
        comment = Rewrite(dictionary).leaf(record.comment, protocol=False)
        return msgspec.structs.replace(record, comment=comment)

    def _learned(
        self, records: Sequence[RunRecord], dialect: Dialect, *, search: bool = True
    ) -> tuple[list[_Run], Dictionary, bool]:
        """Learn from all records; with `search` off, nothing where a pattern could match."""
        decoder = EventDecoder(dialect)
        runs = [_Run(record, decoder, self._paths) for record in records]
        raw = b"\n".join([part for run in runs for part in run.raw()])
        # Characters may hide in escapes.
        possible = self._patterns if b"\\u" in raw else self._patterns.possible(raw)
        dictionary = Dictionary(self._key, possible)
        if search or not possible:
            learn = Learn(dictionary, possible)
            for run in runs:
                run.after(learn)
        return runs, dictionary, bool(possible)


def _rewritten(runs: Sequence[_Run], dictionary: Dictionary) -> list[RunRecord]:
    rewrite = Rewrite(dictionary)
    return [msgspec.structs.replace(run.after(rewrite), redacted=True) for run in runs]


class _Run:
    """One record under redaction."""

    def __init__(self, record: RunRecord, decoder: EventDecoder, paths: Paths) -> None:
        self._record = record
        self._request = _below(paths, "request")
        self._tape = _below(paths, "tape")
        self.frames = FrameText(record.frames, decoder, _below(paths, "frames"))
        self.entries = {
            at: EntryText(entry, self._tape)
            for at, entry in enumerate(record.tape or ())
            if entry.port not in _IMPERSONAL
        }

    def raw(self) -> Iterator[bytes]:
        """Yield all bytes that may hold a value, and the texts that pieces make."""
        request = self._record.request
        if request is not None:
            yield from (bytes(request.body), bytes(request.options))
        sources: list[FrameText | EntryText] = [self.frames, *self.entries.values()]
        for source in sources:
            yield source.raw
            yield from map(searchable, source.texts)
        for play in self._record.plays:
            if play.args is not None:
                yield bytes(play.args)

    def after(self, treatment: Pass) -> RunRecord:
        """Return the record after a pass."""
        record, request = self._record, self._record.request
        if request is not None:
            body, options = below(self._request, "body"), below(self._request, "options")
            request = msgspec.structs.replace(
                request,
                body=_raw_after(request.body, body, treatment, typed=True),
                options=_raw_after(request.options, options, treatment),
            )
        tape = record.tape
        if tape:
            treated = {at: entry.after(treatment) for at, entry in self.entries.items()}
            tape = tuple(treated.get(at, entry) for at, entry in enumerate(tape))
        return msgspec.structs.replace(
            record,
            request=request,
            frames=self.frames.after(treatment),
            tape=tape,
            plays=tuple([self._play_after(play, treatment) for play in record.plays]),
        )

    def _play_after(self, play: PlayRecord, treatment: Pass) -> PlayRecord:
        if play.args is None:
            return play
        inside = _below(self._tape, play.port, play.op, "args")
        args = _raw_after(play.args, inside, treatment, typed=play.port in _TYPED)
        return play if args is play.args else msgspec.structs.replace(play, args=args)


_below = lru_cache(maxsize=1_024)(below)


def _raw_after(
    raw: msgspec.Raw, paths: Paths, treatment: Pass, *, typed: bool = False
) -> msgspec.Raw:
    """Return a piece of JSON after a pass: the same object where nothing changed."""
    content = bytes(raw)
    if not treatment.concerned(content, reachable(paths, content)):
        return raw
    tree = msgspec.json.decode(raw)
    after = walk(tree, paths, treatment, numbers=typed)
    return raw if after == tree else msgspec.Raw(msgspec.json.encode(after))


class EntryText:
    """One entry of a tape: arguments, items, and a model's stream in its chunks."""

    def __init__(self, entry: EntryRecord, paths: Paths) -> None:
        self._entry = entry
        self._paths = _below(paths, entry.port, entry.op)
        self._streams = (entry.port, entry.op) == ("model", "stream")
        self._array = b"[" + b",".join(map(bytes, entry.items)) + b"]"
        self.texts: list[str] = []
        self.raw = bytes(entry.args) + (self._stream_words() if self._streams else self._array)
        if entry.fault and entry.fault.data:
            self.raw += msgspec.json.encode(entry.fault.data)

    def after(self, treatment: Pass) -> EntryRecord:
        """Return the entry after a pass."""
        entry = self._entry
        if not treatment.concerned(self.raw, self._paths, self.texts):
            return entry
        typed = entry.port in _TYPED
        changes: dict[str, Any] = {
            "args": _raw_after(entry.args, below(self._paths, "args"), treatment, typed=typed),
            "items": self._items_after(treatment, typed=typed),
        }
        if entry.fault and entry.fault.data:
            data = walk(dict(entry.fault.data), (), treatment)
            changes["fault"] = msgspec.structs.replace(entry.fault, data=data)
        return msgspec.structs.replace(entry, **changes)

    def _items_after(self, treatment: Pass, *, typed: bool) -> tuple[msgspec.Raw, ...]:
        paths = below(self._paths, "items")
        if not treatment.concerned(self._array, paths, self.texts):
            return self._entry.items
        trees: list[Any] = msgspec.json.decode(self._array)

        def after(index: int, tree: Json) -> Json:
            inside = paths and below(paths, str(index))
            if self._streams and not inside and tree.keys() <= _ONLY_PIECES:
                return tree  # its texts are treated as streams, and there is nothing else
            return walk(tree, inside, treatment, numbers=typed)

        slots = list(_chunk_slots(trees, paths)) if self._streams else []
        changed = _with_streams(trees, slots, after, treatment, omit_empty=True)
        return tuple(
            old if new is None else msgspec.Raw(msgspec.json.encode(new))
            for old, new in zip(self._entry.items, changed, strict=True)
        )

    def _stream_words(self) -> bytes:
        """Join the texts of a stream; return its other words, or all its bytes if it is none."""
        try:
            chunks = _chunks.decode(self._array)
        except msgspec.DecodeError:
            return self._array
        texts = {
            "text": "".join([chunk.text for chunk in chunks]),
            "reasoning": "".join([chunk.reasoning for chunk in chunks]),
        }
        words = {f"{chunk.model} {chunk.finish}" for chunk in chunks}
        for call in [call for chunk in chunks for call in chunk.tool_calls]:
            words |= {call.id, call.name}
            track = f"arguments {call.index}"
            texts[track] = texts.get(track, "") + call.arguments
        self.texts = [text for text in texts.values() if text]
        return " ".join(words).encode()


@dataclass(frozen=True, slots=True)
class _Frame:
    """One frame taken apart: its lines, which of them are data, its JSON, its event's name."""

    lines: tuple[str, ...]
    data: tuple[int, ...]
    tree: Json
    name: str

    @classmethod
    def of(cls, text: str, decoder: EventDecoder) -> _Frame | None:
        """Take a frame apart; None where its data is not JSON."""
        lines = tuple(text.split("\n"))
        if decoder.dialect.framing == "ndjson":
            data: tuple[int, ...] = (0,)
            content = lines[0]
        else:
            data = tuple([index for index, line in enumerate(lines) if line.startswith(_DATA)])
            content = "\n".join([lines[index][len(_DATA) :] for index in data])
        try:
            tree = decode_json(content)
        except (ValueError, RecursionError):
            return None
        named = (line[len("event:") :].strip() for line in lines if line.startswith("event:"))
        return cls(lines, data, tree, decoder.name(next(named, ""), tree))

    def text(self, tree: Json) -> str:
        """Return the frame with `tree` as its data."""
        first, rest = self.data[0], self.data[1:]
        kept = [line for index, line in enumerate(self.lines) if index not in rest]
        old = self.lines[first]
        head = next((one for one in (f"{_DATA} ", _DATA) if old.startswith(one)), "")
        kept[first] = head + encode_json(tree) + ("\r" * old.endswith("\r"))
        return "\n".join(kept)


class FrameText:
    """The frames of one run; they are only taken apart when that can matter."""

    def __init__(
        self, frames: tuple[tuple[int, str], ...], decoder: EventDecoder, paths: Paths
    ) -> None:
        self._frames = frames
        self._decoder = decoder
        self._paths = paths
        # Growing text is looked at once: a frame contained in the next is left out.
        ends = [text.rstrip(_CLOSING) for _, text in frames]
        following = [text for _, text in frames[1:]]
        grown = [
            text for text, after in zip(ends, following, strict=False) if not after.startswith(text)
        ]
        self.raw = "".join(grown + ends[-1:]).encode()

    @cached_property
    def texts(self) -> list[str]:
        """The texts that only show when pieces are joined; growing ones stand in `raw`."""
        if not self._decoder.has_deltas:
            return []
        trees = [frame and frame.tree for frame in self._parsed]
        texts: dict[str, str] = {}
        for slot in self._slots:
            piece = _read(trees[slot.item], slot.path) or ""
            texts[slot.track] = piece if slot.cumulative else texts.get(slot.track, "") + piece
        return list(texts.values())

    def concerned(self, treatment: Pass) -> bool:
        """Whether a pass has something to do in them."""
        return treatment.concerned(self.raw, self._paths, self.texts)

    def after(self, treatment: Pass) -> tuple[tuple[int, str], ...]:
        """Return the frames after a pass."""
        if not self.concerned(treatment):
            return self._frames
        parsed = self._parsed

        def after(index: int, tree: Json) -> Json:
            frame = parsed[index]
            return walk(tree, below(self._paths, frame.name), treatment) if frame else None

        trees = [frame and copy.deepcopy(frame.tree) for frame in parsed]
        changed = _with_streams(trees, self._slots, after, treatment)
        found = []
        for (at, text), frame, tree in zip(self._frames, parsed, changed, strict=True):
            if frame is None:
                found.append((at, treatment.leaf(text, protocol=False)))
            else:
                found.append((at, text if tree is None else frame.text(tree)))
        return tuple(found)

    @cached_property
    def _parsed(self) -> list[_Frame | None]:
        return [_Frame.of(text, self._decoder) for _, text in self._frames]

    @cached_property
    def _slots(self) -> list[_Slot]:
        return [
            _Slot(index, path, track, growth == "cumulative")
            for index, frame in enumerate(self._parsed)
            if frame is not None
            for track, path, growth in self._decoder.texts(frame.name, frame.tree)
            # A path takes the whole field, piece by piece.
            if not (self._paths and () in below(self._paths, frame.name, *map(str, path)))
        ]


class _Slot(NamedTuple):
    """One piece of a streamed text: its path in tree number `item`, its text, how that grows."""

    item: int
    path: tuple[str | int, ...]
    track: str
    cumulative: bool = False


def _chunk_slots(trees: Sequence[Any], paths: Paths) -> Iterator[_Slot]:
    for index, tree in enumerate(trees):
        inside = paths and below(paths, str(index))
        for name in _PIECES:
            if isinstance(tree.get(name), str) and () not in below(inside, name):
                yield _Slot(index, (name,), name)
        for place, call in enumerate(tree.get("tool_calls", ())):
            if "arguments" in call:
                track = f"arguments {call.get('index', 0)}"
                yield _Slot(index, ("tool_calls", place, "arguments"), track)


def _read(tree: Json, path: Sequence[str | int]) -> str | None:
    for step in path:
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            return None
    return tree if isinstance(tree, str) else None


def _write(tree: Json, path: Sequence[str | int], text: str | None) -> None:
    for step in path[:-1]:
        tree = tree[step]
    if text is None:
        tree.pop(path[-1], None)
    else:
        tree[path[-1]] = text


def _with_streams(
    trees: list[Json],
    slots: Sequence[_Slot],
    after: Callable[[int, Json], Json],
    treatment: Pass,
    *,
    omit_empty: bool = False,
) -> list[Json]:
    """Return the trees after a pass, None for those that did not change.

    The pieces in `slots` are treated as the texts they make; `after` treats all the rest. Where
    `omit_empty`, a piece that became empty is left out.
    """
    old = {slot: _read(trees[slot.item], slot.path) or "" for slot in slots}
    tracks: dict[tuple[str, bool], list[_Slot]] = {}
    for slot in old:
        tracks.setdefault((slot.track, slot.cumulative), []).append(slot)
        _write(trees[slot.item], slot.path, "")
    walked = [after(index, tree) for index, tree in enumerate(trees)]
    changed = [new != before for new, before in zip(walked, trees, strict=True)]
    new: dict[_Slot, str] = {}
    for (_, cumulative), track in tracks.items():
        pieces = [old[slot] for slot in track]
        texts = treatment.prefixes(pieces) if cumulative else treatment.deltas(pieces)
        new.update(zip(track, texts, strict=True))
    for slot, text in new.items():
        changed[slot.item] = changed[slot.item] or text != old[slot]
        _write(walked[slot.item], slot.path, text)
    for slot, text in new.items():
        if omit_empty and not text and old[slot]:
            _write(walked[slot.item], slot.path, None)
    return [tree if moved else None for tree, moved in zip(walked, changed, strict=True)]
