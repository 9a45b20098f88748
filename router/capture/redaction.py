"""Redaction: an exchange's records lose their personal data before any of them is stored. Pure.

What patterns find and paths lead to is learned from all records first; then every value is
replaced by its pseudonym wherever it stands, in texts that were streamed in pieces too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from contract.model import Chunk
from contract.records import EntryRecord, FeedbackRecord, RunRecord
from contract.wire import EventDecoder
from router.capture.pseudonyms import (
    Dictionary,
    KnownValue,
    TextEdit,
    applied,
    decode_json,
    encode_json,
)
from router.config.patterns import Patterns

Json: TypeAlias = Any
Paths: TypeAlias = tuple[tuple[str, ...], ...]

_ANY = "*"
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]*")
# Words of a protocol, not of a person: no name found at a path is looked for here.
_PROTOCOL = frozenset(
    {"action", "code", "error", "finish", "kind", "relation", "role", "state", "status", "step"}
    | {"event", "risk", "tool_choice", "type", "worker"}
)
# Their answers are numbers and made-up ids: no personal data, and a clock looks like a card number.
_IMPERSONAL = frozenset({"clock", "ids"})
# A person types whole numbers here; elsewhere numbers are counts and times.
_TYPED = "human"
_PIECES = ("text", "reasoning")
_DATA = "data:"
_CLOSING = '"}\n'

_chunks = msgspec.json.Decoder(list[Chunk])


@dataclass(slots=True)
class ExchangeValues:
    """The personal data of an exchange whose second run is redacted later than its served runs.

    `learned` is whether these have been redacted.
    """

    known: dict[str, KnownValue] = field(default_factory=dict)
    learned: bool = False


class Redactor:
    """Replaces personal data by keyed pseudonyms.

    `paths` are dotted and begin with `request.body`, `request.options`, `tape.<port>.<op>.args`,
    `tape.<port>.<op>.items.<number>` or `frames.<event>`; `*` stands for any one step. Equal
    values have equal pseudonyms for as long as the key is the same.
    """

    def __init__(self, patterns: Patterns, paths: Iterable[str], key: bytes) -> None:
        self._patterns = patterns
        self._paths = tuple(tuple(path.split(".")) for path in paths)
        self._key = key

    def exchange(
        self,
        records: Sequence[RunRecord],
        decoder: EventDecoder,
        other: EventDecoder | None = None,
        values: ExchangeValues | None = None,
    ) -> list[RunRecord]:
        """Return records of one exchange without personal data, marked `redacted` if changed.

        An unmarked record is verbatim: its replay is compared with the recorded frames. `other`
        reads the records that name a dialect of their own. `values` are those learned from the
        exchange's other records; those of these records are added.
        """
        runs, patterns = self._apart(records, decoder, other)
        dictionary = self._learned(runs, patterns, values)
        redacted = [run.redacted(dictionary) for run in runs] if dictionary else list(records)
        if values is not None:
            values.learned = True
        return redacted

    def at_once(
        self,
        records: Sequence[RunRecord],
        decoder: EventDecoder,
        other: EventDecoder | None = None,
        values: ExchangeValues | None = None,
    ) -> list[RunRecord] | None:
        """Do as `exchange` where that is quick; None where texts would have to be searched.

        It is quick where there is no tape, no pattern could match, and no frame holds what paths
        lead to.
        """
        if any(record.tape for record in records):
            return None
        runs, patterns = self._apart(records, decoder, other)
        if patterns:
            return None
        dictionary = self._learned(runs, patterns, values)
        if dictionary and any(any(map(dictionary.possible, run.frames.search)) for run in runs):
            return None
        redacted = [run.redacted(dictionary) for run in runs] if dictionary else list(records)
        if values is not None:
            values.learned = True
        return redacted

    def feedback(self, record: FeedbackRecord) -> FeedbackRecord:
        """Return a feedback without personal data in its comment."""
        if not record.comment:
            return record
        dictionary = Dictionary(self._key, self._patterns)
        dictionary.learn(record.comment)
        return msgspec.structs.replace(record, comment=dictionary.replaced(record.comment))

    def arguments(self, port: str, op: str, args: Json) -> Json:
        """Return the arguments of one call without personal data, as its exchange would have them.

        Equal arguments are redacted equally.
        """
        return self._alone(args, below(self._paths, "tape", port, op, "args"))

    def body_value(self, path: str, value: str) -> str:
        """Return a text at a dotted path of a request's body as its captures would have it."""
        *above, last = path.split(".")
        found = self._alone({last: value}, below(self._paths, "request", "body", *above))
        return str(found[last])

    def _alone(self, value: Json, paths: Paths) -> Json:
        source = _Source([msgspec.Raw(msgspec.json.encode(value))], [paths])
        dictionary = Dictionary(self._key, self._patterns)
        source.learn(dictionary, self._patterns)
        source.rewrite(dictionary)
        return msgspec.json.decode(source.raws[0])

    def _apart(
        self, records: Sequence[RunRecord], decoder: EventDecoder, other: EventDecoder | None
    ) -> tuple[list[_Run], Patterns]:
        """Take records apart; return the patterns that could match somewhere in them, too."""
        runs = [
            _Run(record, (record.dialect and other) or decoder, self._paths) for record in records
        ]
        raw = b"\n".join([part for run in runs for source in run.sources for part in source.search])
        # Characters may hide in escapes.
        return runs, self._patterns if b"\\u" in raw else self._patterns.possible(raw)

    def _learned(
        self, runs: Sequence[_Run], patterns: Patterns, values: ExchangeValues | None
    ) -> Dictionary:
        dictionary = Dictionary(self._key, patterns, None if values is None else values.known)
        for run in runs:
            for source in run.sources:
                if patterns or source.paths:
                    source.learn(dictionary, patterns)
        return dictionary


class _Run:
    """One record, taken apart into the sources that are searched."""

    def __init__(self, record: RunRecord, decoder: EventDecoder, paths: Paths) -> None:
        self._record = record
        self._request: list[_Source] = []
        if record.request is not None:
            body, options = below(paths, "request", "body"), below(paths, "request", "options")
            self._request = [
                _Source([record.request.body], [body], typed=True),
                _Source([record.request.options], [options]),
            ]
        tape = below(paths, "tape")
        self._entries = {
            at: _Entry(entry, below(tape, entry.port, entry.op))
            for at, entry in enumerate(record.tape or ())
            if entry.port not in _IMPERSONAL
        }
        self._plays = {
            at: _Source(
                [play.args], [below(tape, play.port, play.op, "args")], typed=play.port == _TYPED
            )
            for at, play in enumerate(record.plays)
            if play.args is not None
        }
        self.frames = _Frames(record.frames, decoder, below(paths, "frames"))
        self._refusal: list[_Source] = []
        if record.error is not None and record.error.detail:
            detail = msgspec.Raw(msgspec.json.encode(record.error.detail))
            self._refusal = [_Source([detail], [()])]
        self.sources = [*self._request, *self._entries.values(), self.frames, *self._plays.values()]
        self.sources += self._refusal

    def redacted(self, dictionary: Dictionary) -> RunRecord:
        """Return the record with pseudonyms."""
        for source in self.sources:
            source.rewrite(dictionary)
        record, replace = self._record, msgspec.structs.replace
        request, tape, plays = record.request, list(record.tape or ()), list(record.plays)
        if request is not None:
            body, options = [source.raws[0] for source in self._request]
            request = replace(request, body=body, options=options)
        error = record.error
        if error is not None and self._refusal:
            detail = msgspec.json.decode(self._refusal[0].raws[0])
            error = replace(error, detail=detail)
        for at, entry in self._entries.items():
            tape[at] = entry.record()
        for at, source in self._plays.items():
            plays[at] = replace(plays[at], args=source.raws[0])
        return replace(
            record,
            request=request,
            error=error,
            frames=tuple(zip([at for at, _ in record.frames], self.frames.raws, strict=True)),
            tape=record.tape and tuple(tape),
            plays=tuple(plays),
            redacted=True,
        )


class Spot(NamedTuple):
    """A text in tree number `tree`: the value at `holder[key]`, or with kind `key` its name.

    `pointed` names what a path leads to, "" where it is only searched; `protocol` where it may be
    the word of a protocol.
    """

    tree: int
    holder: Any
    key: Any
    text: str
    kind: Literal["text", "number", "key"] = "text"
    protocol: bool = False
    pointed: str = ""


def collect(
    spots: list[Spot],
    tree: int,
    holder: Any,
    key: Any,
    paths: Paths,
    name: str = "",
    pointed: str = "",
    *,
    typed: bool = False,
) -> None:
    """Add what is searched in the JSON at `holder[key]`, a part of tree number `tree`.

    `name` is the key it stands under, `pointed` the key a path led to on the way; `typed` where
    whole numbers are a person's own.
    """
    value = holder[key]
    if () in paths:
        pointed = pointed or name or "value"
    if isinstance(value, str):
        spots.append(Spot(tree, holder, key, value, "text", name in _PROTOCOL, pointed))
    elif isinstance(value, dict):
        for child in value:
            spots.append(Spot(tree, value, child, child, "key", bool(_IDENTIFIER.fullmatch(child))))
            inside = paths and below(paths, child)
            collect(spots, tree, value, child, inside, child, pointed, typed=typed)
    elif isinstance(value, list):
        for at in range(len(value)):
            inside = paths and below(paths, str(at))
            collect(spots, tree, value, at, inside, name, pointed, typed=typed)
    elif value is None or isinstance(value, bool):
        return
    elif pointed or (typed and isinstance(value, int)):
        spots.append(Spot(tree, holder, key, str(value), "number", pointed=pointed))


Tracks: TypeAlias = dict[tuple[str, bool], list[Spot]]
"""The pieces of streamed texts, by the name of the text and whether it is cumulative."""


class _Source:
    """JSON that is searched together, as streamed texts run through its trees.

    It is only decoded where a path leads into it, or something could stand in `search`. `raws`
    are its trees as they are stored, `paths` those that could lead into each; `typed` where whole
    numbers are a person's own.
    """

    def __init__(self, raws: Sequence[Any], paths: Sequence[Paths], *, typed: bool = False) -> None:
        self.raws = list(raws)
        self.search = list(map(bytes, raws))
        self.paths: list[Paths] = []
        if any(paths):
            found = list(map(reachable, paths, self.search))
            self.paths = found if any(found) else []
        self._typed = typed
        self._walked: dict[int, list[Spot]] = {}

    @cached_property
    def trees(self) -> list[Json]:
        """The decoded trees; they are changed in place."""
        trees: list[Json] = msgspec.json.decode(b"[" + b",".join(self.raws) + b"]")
        return trees

    def pieces(self) -> Tracks:
        """Return the pieces of streamed texts."""
        return {}

    def paths_into(self, tree: int) -> Paths:
        """Return the paths that lead into a tree."""
        return self.paths[tree] if self.paths else ()

    def raw_of(self, tree: int) -> bytes:
        """Return the bytes of a tree as it was."""
        return bytes(self.raws[tree])

    def encoded(self, tree: int) -> Any:
        """Return a tree as it is stored."""
        return msgspec.Raw(msgspec.json.encode(self.trees[tree]))

    def put(self, spot: Spot, text: str) -> None:
        """Write a text into a tree."""
        spot.holder[spot.key] = text

    def learn(self, dictionary: Dictionary, patterns: Patterns) -> None:
        """Put what patterns find and paths lead to into the dictionary."""
        raw = b" ".join(self.search) if patterns else b""
        if b"\\u" in raw or (patterns and patterns.possible(raw)):
            trees: Sequence[int] = range(len(self.raws))
        else:
            trees = [tree for tree in range(len(self.raws)) if self.paths and self.paths_into(tree)]
        for spot in self._spots(trees):
            if spot.pointed:
                dictionary.learn_value(spot.pointed, spot.text)
            else:
                dictionary.learn(spot.text)
        for (_, cumulative), pieces in self._tracks.items() if trees and patterns else ():
            texts = [spot.text for spot in pieces]
            for chain in _chains(texts) if cumulative else [["".join(texts)]]:
                dictionary.learn(chain[-1])

    def rewrite(self, dictionary: Dictionary) -> None:
        """Write pseudonyms into the trees, and those that changed into `raws`."""
        if not self.paths and not any(map(dictionary.possible, self.search)):
            return
        # What a path leads to goes however it is written: 1e5 is learned as 100000.0.
        trees = [
            tree
            for tree in range(len(self.raws))
            if dictionary.possible(self.raw_of(tree)) or (self.paths and self.paths_into(tree))
        ]
        changed: list[tuple[Spot, str]] = []
        for spot in self._spots(trees):
            text = spot.text
            if spot.pointed:
                new = text and dictionary.pseudonym(spot.pointed, text)
            elif spot.kind != "number":
                new = dictionary.replaced(text, given=not spot.protocol)
            else:  # it goes as a whole
                new = dictionary.pseudonym("number", text) if dictionary.edits(text) else text
            if new != text:
                changed.append((spot, new))
        for (_, cumulative), pieces in self._tracks.items():
            spread = _over_prefixes if cumulative else _over_deltas
            texts = spread([spot.text for spot in pieces], dictionary)
            changed += [both for both in zip(pieces, texts, strict=True) if both[0].text != both[1]]
        for spot, text in changed:
            if spot.kind != "key":
                self.put(spot, text)
        for spot, text in changed:
            if spot.kind == "key":
                items = [(text if key == spot.key else key, it) for key, it in spot.holder.items()]
                spot.holder.clear()
                spot.holder.update(items)
        for tree in {spot.tree for spot, _ in changed}:
            self.raws[tree] = self.encoded(tree)

    @cached_property
    def _tracks(self) -> Tracks:
        """The streams; what a path leads to is no piece of one."""
        tracks = self.pieces()
        if self.paths:
            spots = [spot for tree in range(len(self.raws)) for spot in self._walk(tree)]
            pointed = {(id(spot.holder), spot.key) for spot in spots if spot.pointed}
            for track, pieces in tracks.items():
                tracks[track] = [one for one in pieces if (id(one.holder), one.key) not in pointed]
        return tracks

    def _spots(self, trees: Iterable[int]) -> list[Spot]:
        """Return what is searched by itself in some trees."""
        spots = [spot for tree in trees for spot in self._walk(tree)]
        if not self._tracks:
            return spots
        streamed = {
            (id(spot.holder), spot.key) for track in self._tracks.values() for spot in track
        }
        return [it for it in spots if it.kind == "key" or (id(it.holder), it.key) not in streamed]

    def _walk(self, tree: int) -> list[Spot]:
        if tree not in self._walked:
            spots: list[Spot] = []
            collect(spots, tree, self.trees, tree, self.paths_into(tree), typed=self._typed)
            self._walked[tree] = spots
        return self._walked[tree]


class _Entry(_Source):
    """One entry of a tape: its arguments, its items, the data of its fault."""

    def __init__(self, entry: EntryRecord, paths: Paths) -> None:
        self._entry = entry
        self._end = 1 + len(entry.items)
        raws = [entry.args, *entry.items]
        if entry.fault and entry.fault.data:
            raws.append(msgspec.Raw(msgspec.json.encode(entry.fault.data)))
        inside: list[Paths] = []
        if paths:
            items = [below(paths, "items", str(at)) for at in range(len(entry.items))]
            inside = [below(paths, "args"), *items, ()]
        super().__init__(raws, inside, typed=entry.port == _TYPED)
        self._chunks = slice(1, 1)
        if (entry.port, entry.op) == ("model", "stream"):
            self._search_streams()

    def _search_streams(self) -> None:
        """Search the joined texts of the chunks, and their other words; not what is no stream."""
        found = slice(1, self._end)
        try:
            chunks = _chunks.decode(b"[" + b",".join(self.search[found]) + b"]")
        except msgspec.DecodeError:
            return
        texts = {
            "text": "".join([chunk.text for chunk in chunks]),
            "reasoning": "".join([chunk.reasoning for chunk in chunks]),
        }
        for chunk in chunks:
            for path, _, _, text in _strings(chunk.other) if chunk.other else ():
                texts[path] = texts.get(path, "") + text
        words = {f"{chunk.model} {chunk.finish}" for chunk in chunks}
        for call in [call for chunk in chunks for call in chunk.tool_calls]:
            words |= {call.id, call.name}
            track = f"arguments {call.index}"
            texts[track] = texts.get(track, "") + call.arguments
        self._chunks = found
        self.search[found] = [_searchable(text) for text in (*texts.values(), " ".join(words))]

    def pieces(self) -> Tracks:
        """Return the pieces of a model's answer."""
        tracks: Tracks = {}
        for at, chunk in enumerate(self.trees[self._chunks], 1):
            for name in _PIECES:
                if name in chunk:
                    tracks.setdefault((name, False), []).append(Spot(at, chunk, name, chunk[name]))
            for path, holder, key, text in _strings(chunk.get("other", {})):
                tracks.setdefault((path, False), []).append(Spot(at, holder, key, text))
            for call in chunk.get("tool_calls", ()):
                if "arguments" in call:
                    track = (f"arguments {call.get('index', 0)}", False)
                    tracks.setdefault(track, []).append(
                        Spot(at, call, "arguments", call["arguments"])
                    )
        return tracks

    def put(self, spot: Spot, text: str) -> None:
        """Write a text; a chunk leaves out a piece that became empty."""
        if text or isinstance(spot.holder, list):
            spot.holder[spot.key] = text
        else:
            del spot.holder[spot.key]

    def record(self) -> EntryRecord:
        """Return the entry as it is now."""
        fault = self._entry.fault
        if fault is not None and self.raws[self._end :]:
            fault = msgspec.structs.replace(fault, data=msgspec.json.decode(self.raws[-1]))
        items = tuple(self.raws[1 : self._end])
        return msgspec.structs.replace(self._entry, args=self.raws[0], items=items, fault=fault)


def _strings(holder: Json, path: str = "other") -> Iterator[tuple[str, Json, Any, str]]:
    """Yield the texts inside a value: their path, holder and key in it; streamed, pieces of one."""
    for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
        value, inside = holder[key], f"{path}.{key}"
        if isinstance(value, str):
            yield inside, holder, key, value
        elif isinstance(value, dict | list):
            yield from _strings(value, inside)


@dataclass(frozen=True, slots=True)
class _Frame:
    """One frame taken apart: its lines, which of them are data, its JSON, its event's name.

    Where the dialect has no JSON, the data is a text: `plain`.
    """

    lines: tuple[str, ...]
    data: tuple[int, ...]
    tree: Json
    name: str
    plain: bool

    @classmethod
    def of(cls, text: str, decoder: EventDecoder) -> _Frame | None:
        """Take a frame apart; None where its data is not what the dialect has."""
        lines = tuple(text.split("\n"))
        if decoder.dialect.framing == "text":
            return cls((text,), (0,), text, decoder.name("", text), plain=True)
        if decoder.dialect.framing == "ndjson":
            data: tuple[int, ...] = (0,)
            values = [lines[0]]
        else:
            data = tuple([index for index, line in enumerate(lines) if line.startswith(_DATA)])
            values = [lines[index][len(_DATA) :].removeprefix(" ") for index in data]
        content = "\n".join(values)
        plain = decoder.dialect.payload == "text"
        tree: Json
        if plain:
            tree = "\n".join([value.removesuffix("\r") for value in values])
            if not data or tree.encode() in decoder.literals:
                return None
        else:
            try:
                tree = decode_json(content)
            except (ValueError, RecursionError):
                return None
        named = (line[len("event:") :].strip() for line in lines if line.startswith("event:"))
        return cls(lines, data, tree, decoder.name(next(named, ""), tree), plain)

    def text(self, tree: Json) -> str:
        """Return the frame with `tree` as its data."""
        first, rest = self.data[0], self.data[1:]
        kept = [line for index, line in enumerate(self.lines) if index not in rest]
        old = self.lines[first]
        head = next((one for one in (f"{_DATA} ", _DATA) if old.startswith(one)), "")
        if self.plain and head:
            head = f"{_DATA} "  # a text may begin with a space
        data = (
            tree.split("\n") if self.plain and head else [tree if self.plain else encode_json(tree)]
        )
        kept[first] = "\n".join([f"{head}{line}" + "\r" * old.endswith("\r") for line in data])
        return "\n".join(kept)


class _Frames(_Source):
    """The frames of one run; one that is not as its dialect says is searched by itself."""

    def __init__(
        self, frames: Sequence[tuple[int, str]], decoder: EventDecoder, paths: Paths
    ) -> None:
        super().__init__((), ())
        self.raws = [text for _, text in frames]
        self.paths = [paths] if paths else []
        self._decoder = decoder
        # Growing text is looked at once: a frame contained in the next is left out.
        ends = [text.rstrip(_CLOSING) for text in self.raws]
        following = zip(ends, self.raws[1:], strict=False)
        grown = [text for text, after in following if not after.startswith(text)]
        self.search = ["".join(grown + ends[-1:]).encode()]
        if decoder.has_deltas:  # these only show when they are joined
            self.search += [
                _searchable("".join([spot.text for spot in pieces]))
                for (_, cumulative), pieces in self.pieces().items()
                if not cumulative
            ]

    @cached_property
    def trees(self) -> list[Json]:
        """The decoded data of each frame, or its text."""
        frames = zip(self.raws, self._parsed, strict=True)
        return [text if frame is None else frame.tree for text, frame in frames]

    def pieces(self) -> Tracks:
        """Return the pieces of the texts of the dialect."""
        tracks: Tracks = {}
        for at, frame in enumerate(self._parsed):
            for track, path, growth in self._decoder.texts(frame.name, frame.tree) if frame else ():
                holder: Any = self.trees
                key: Any = at
                for step in path:
                    holder, key = holder[key], step
                if isinstance(holder[key], str):
                    pieces = tracks.setdefault((track, growth == "cumulative"), [])
                    pieces.append(Spot(at, holder, key, holder[key]))
        return tracks

    def paths_into(self, tree: int) -> Paths:
        """Return the paths that lead into a frame's data, by the name of its event."""
        frame = self._parsed[tree]
        return below(self.paths[0], frame.name) if self.paths and frame else ()

    def raw_of(self, tree: int) -> bytes:
        """Return the bytes of a frame."""
        return _searchable(self.raws[tree])

    def encoded(self, tree: int) -> Any:
        """Return a frame with its new data."""
        frame = self._parsed[tree]
        return frame.text(self.trees[tree]) if frame else self.trees[tree]

    @cached_property
    def _parsed(self) -> list[_Frame | None]:
        return [_Frame.of(text, self._decoder) for text in self.raws]


def below(paths: Paths, *steps: str) -> Paths:
    """Return what is left of the paths that lead along `steps`."""
    for step in steps:
        paths = tuple([path[1:] for path in paths if path and path[0] in (step, _ANY)])
    return paths


def reachable(paths: Paths, raw: bytes) -> Paths:
    """Return the paths that could lead somewhere in JSON: the names along them occur in it."""
    if not paths or b"\\" in raw:  # a name may be written in escapes
        return paths
    return tuple(
        path
        for path in paths
        if all(step == _ANY or step.isdigit() or step.encode() in raw for step in path)
    )


def _searchable(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _over_deltas(pieces: Sequence[str], dictionary: Dictionary) -> Iterator[str]:
    """Rewrite the text that pieces make when joined, and spread it over them again.

    A pseudonym goes whole into the piece in which its value ends.
    """
    edits = dictionary.stream_edits("".join(pieces))
    start = 0
    for piece in pieces:
        end = start + len(piece)
        inside = [
            TextEdit(
                max(edit.start, start) - start,
                min(edit.end, end) - start,
                edit.put if edit.end <= end else "",
            )
            for edit in edits
            if edit.start < end and edit.end > start
        ]
        yield applied(piece, inside)
        start = end


def _over_prefixes(pieces: Sequence[str], dictionary: Dictionary) -> Iterator[str]:
    """Rewrite the longest of each chain, and the others as far as they go.

    A piece that ends inside a value is cut back to before it.
    """
    for chain in _chains(pieces):
        edits = dictionary.stream_edits(chain[-1])
        for piece in chain:
            whole = [edit for edit in edits if edit.end <= len(piece)]
            cut = next((e.start for e in edits if e.start < len(piece) < e.end), len(piece))
            yield applied(piece[:cut], whole)


def _chains(pieces: Sequence[str]) -> Iterator[list[str]]:
    """Split cumulative texts into runs in which each is the beginning of the next."""
    chain: list[str] = []
    for piece in pieces:
        if chain and not piece.startswith(chain[-1]):
            yield chain
            chain = []
        chain.append(piece)
    if chain:
        yield chain
