"""What a client has of one stream, and what of another still goes to it after a takeover.

A stack that plays the same tape repeats the same frames (`FramePrefix`). Where two stacks do not
send equal frames, texts count (`TextPrefix`): they are compared wherever they are cut; events
without text are sent once, told apart by what they hold. Ids by which a client knows what events
belong together stay those that the client has. Texts are UTF-16 code units, as JSON has them: half
a character may stand in one frame, the other half in the next.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

from contract.errors import CutoverError
from contract.operations import EXTERNAL_READ, MODEL_STREAM
from contract.wire import Dialect, FrameReader, Growth, Place, WireEvent, value_at
from effects.tape import Tape

Track = str
"""Which text of a stream: the answer's, the reasoning, a tool call's arguments."""
Units = bytes
"""UTF-16 code units, two bytes each."""

_UTF_16: Final = "utf-16-le"


@dataclass(frozen=True, slots=True)
class EventText:
    """A text of an event: which one of the stream it is, its place, how it grows, its units."""

    track: Track
    at: Place
    growth: Growth
    units: Units


@dataclass(frozen=True, slots=True)
class ParsedEvent:
    """An event: its texts, `kind`: the fields it holds beside them, and `rest`: their values.

    `ids` are those that other events may share, `calls_tool`: it holds a piece of a tool call.
    """

    name: str
    texts: tuple[EventText, ...]
    kind: tuple[str, ...]
    rest: str
    ids: tuple[str, ...] = ()
    calls_tool: bool = False


class TextFrames:
    """Reads the texts in frames of one wire, and writes frames with other texts."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._reader = FrameReader(dialect)
        self.decoder = self._reader.decoder

    def read(self, frame: bytes) -> ParsedEvent | None:
        """Parse a frame; None where it is no event: a comment, a blank line."""
        event = self._event(frame)
        if event is None:
            return None
        name, tree = event.name, event.value
        if tree is None:
            return ParsedEvent(name, (), (name,), event.data.decode("utf-8", "replace").strip())
        texts = tuple(
            EventText(track, at, growth, value_at(tree, at).encode(_UTF_16, "surrogatepass"))
            for track, at, growth in event.texts()
        )
        part, calls_tool = event.part, self.decoder.calls_tool(tree)
        ids = tuple(value_at(tree, at) for at in self.decoder.ids(name, tree))
        for text in texts:
            tree = _replaced(tree, text.at, "")
        kind = (name, *sorted(set(_filled_paths(tree))))
        rest = json.dumps(tree, sort_keys=True)
        return ParsedEvent(part or name, texts, kind, rest, ids, calls_tool)

    def rewrite(self, frame: bytes, event: ParsedEvent, texts: Sequence[Units]) -> bytes:
        """Return a frame with other texts in it, and everything else as it was."""
        found = self._event(frame)
        tree = None if found is None else found.value
        for one, text in zip(event.texts, texts, strict=True):
            tree = _replaced(tree, one.at, text.decode(_UTF_16, "surrogatepass"))
        return self._with_value(frame, tree)

    def rename(self, frame: bytes, names: Mapping[str, str]) -> bytes:
        """Return a frame with other ids, where it has any of those in `names`."""
        event = self._event(frame)
        if event is None:
            return frame
        tree, renamed = event.value, False
        for at in self.decoder.ids(event.name, tree):
            known = value_at(tree, at)
            if (name := names.get(known, known)) != known:
                tree, renamed = _replaced(tree, at, name), True
        return self._with_value(frame, tree) if renamed else frame

    def _with_value(self, frame: bytes, tree: Any) -> bytes:
        plain = self.dialect.payload == "text"
        data = tree.encode("utf-8", "surrogatepass") if plain else _encoded(tree)
        match self.dialect.framing:
            case "sse":
                return _with_data(frame, data)
            case "ndjson":
                return data + frame[len(frame.rstrip()) :]
            case "text":
                return data
            case unknown:
                assert_never(unknown)

    def _event(self, frame: bytes) -> WireEvent | None:
        event = self._reader.event(frame)
        if event is None or not event.malformed:
            return event
        try:
            tree = json.loads(event.data)  # unlike the decoder, it reads half a character
        except (ValueError, RecursionError):
            return event
        name = self.decoder.name(event.sse_name, tree)
        return WireEvent(self.decoder, event.sse_name, event.data, name, tree)


def _encoded(tree: Any) -> bytes:
    try:
        return json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half a character: only an escape can carry it
        return json.dumps(tree, separators=(",", ":")).encode()


def _with_data(frame: bytes, data: bytes) -> bytes:
    """Replace an event's data, in the place of its first data line."""
    lines, replaced = list[bytes](), False
    for line in frame.splitlines(keepends=True):
        if line.rstrip(b"\r\n") != b"data" and not line.removeprefix(b"\xef\xbb\xbf").startswith(
            b"data:"
        ):
            lines.append(line)
        elif not replaced:
            end = line[len(line.rstrip(b"\r\n")) :]
            lines += [b"data: " + one + end for one in data.split(b"\n")]
            replaced = True
    return b"".join(lines)


def _replaced(tree: Any, at: Place, text: str) -> Any:
    """Return a tree with a text at a place in it: changed, or another one where it is all."""
    if not at:
        return text
    value_at(tree, at[:-1])[at[-1]] = text
    return tree


def _filled_paths(tree: Any, path: str = "") -> Iterator[str]:
    """Yield the paths that hold a value; null, an empty text and an empty list are none."""
    if isinstance(tree, dict):
        for key, below in tree.items():
            yield from _filled_paths(below, f"{path}.{key}")
    elif isinstance(tree, list):
        for below in tree:
            yield from _filled_paths(below, f"{path}[]")
    elif tree is not None and tree != "":
        yield path


class PrefixMismatch(CutoverError):
    """A stream differs from what the client has; `track` is None where no text is to blame."""

    def __init__(self, track: Track | None) -> None:
        super().__init__(f"the {track or 'stream'!r} differs from what the client has")
        self.track = track


class FramePrefix:
    """Takes the frames of a second run one by one: first those in `sent` again, then new ones."""

    def __init__(self, sent: Iterable[bytes]) -> None:
        self._due = deque(sent)

    def feed(self, frame: bytes) -> bytes | None:
        """Return a frame the client does not have; raises `PrefixMismatch`."""
        if not self._due:
            return frame
        if frame != self._due.popleft():
            raise PrefixMismatch(None)
        return None


class TextPrefix:
    """Takes the frames of a second run one by one, and returns those that go to the client.

    `sent` are the frames the client has.
    """

    def __init__(self, frames: TextFrames, sent: Iterable[bytes]) -> None:
        self._frames = frames
        self._sent: dict[Track, Units] = {}
        self._reached: dict[Track, int] = {}
        self._sent_kinds: Counter[tuple[str, ...]] = Counter()  # of events without text
        self._met_kinds: Counter[tuple[str, ...]] = Counter()
        self._seen: set[tuple[str, ...] | str] = set()
        self._ids_of_events: dict[tuple[tuple[str, ...], int], tuple[str, ...]] = {}
        self._ids_of_pieces: dict[Track, list[tuple[int, tuple[str, ...]]]] = {}
        self._names: dict[str, str] = {}  # ids of the second run, as the client knows them
        self._resumable = True
        self._passed = False
        for frame in sent:
            event = frames.read(frame)
            if event is not None:
                self._note_sent(event)

    @property
    def has_text(self) -> bool:
        """Whether the client has any text."""
        return any(self._sent.values())

    def feed(self, frame: bytes) -> bytes | None:
        """Return what of a frame goes to the client: all, a part, or None.

        Raises `PrefixMismatch` where it cannot continue what the client has.
        """
        new = frame if self._passed else self._new(frame)
        if new is None or not self._names:
            return new
        return self._frames.rename(new, self._names)

    def _new(self, frame: bytes) -> bytes | None:
        """Return what of a frame the client does not have, None where it has all of it."""
        if not self._resumable:
            raise PrefixMismatch(None)
        event = self._frames.read(frame)
        if event is None:
            return None
        if event.name in self._frames.decoder.failures:
            self._passed = True  # a failure is always new
            return frame
        self._learn_ids(event)
        rests = [self._rest(text) for text in event.texts]
        if not self._is_new(event, rests):
            return None
        self._passed = not self.behind
        if rests == [text.units for text in event.texts]:
            return frame
        return self._frames.rewrite(frame, event, rests)

    def _note_sent(self, event: ParsedEvent) -> None:
        decoder = self._frames.decoder
        ended = event.name in decoder.failures | decoder.terminal
        # Pieces of tool calls that are cut elsewhere cannot be matched.
        self._resumable = self._resumable and not ended and not event.calls_tool
        for text in event.texts:
            sent = self._sent.get(text.track, b"")
            if text.growth == "delta":
                self._sent[text.track] = sent + text.units
            else:
                self._resumable = self._resumable and text.units.startswith(sent)
                self._sent[text.track] = text.units
            if event.ids:
                pieces = self._ids_of_pieces.setdefault(text.track, [])
                pieces.append((len(self._sent[text.track]), event.ids))
        if not event.texts:
            self._sent_kinds[event.kind] += 1
            self._ids_of_events[event.kind, self._sent_kinds[event.kind]] = event.ids
        self._seen |= {event.kind, event.rest}

    def _learn_ids(self, event: ParsedEvent) -> None:
        """Note by which ids the client knows what an event belongs to; it has others of its own."""
        known = self._ids_of_events.get((event.kind, self._met_kinds[event.kind] + 1), ())
        for text in event.texts:
            at = self._reached.get(text.track, 0) if text.growth == "delta" else 0
            pieces = self._ids_of_pieces.get(text.track, ())
            known = next((ids for end, ids in pieces if end > at), known)
        for own, sent in zip(event.ids, known, strict=False):
            self._names.pop(own, None)
            if own != sent:
                self._names[own] = sent

    def _rest(self, text: EventText) -> Units:
        """Return what of a text is to be sent, for a cumulative one with what has been sent."""
        sent, units = self._sent.get(text.track, b""), text.units
        if text.growth == "delta":
            start = self._reached.get(text.track, 0)
            overlap = sent[start : start + len(units)]
            self._reached[text.track] = start + len(units)
            if not units.startswith(overlap):
                raise PrefixMismatch(text.track)
            return units[len(overlap) :]
        self._reached[text.track] = len(units)
        if not (units.startswith(sent) or sent.startswith(units)):
            raise PrefixMismatch(text.track)
        return max(units, sent, key=len)

    @property
    def behind(self) -> bool:
        """Whether some text the client has is not repeated yet."""
        reached = ((self._reached.get(track, 0), sent) for track, sent in self._sent.items())
        return not self._passed and any(length < len(sent) for length, sent in reached)

    def _is_new(self, event: ParsedEvent, rests: list[Units]) -> bool:
        """Whether an event holds anything the client does not have."""
        if any(map(self._is_longer, event.texts, rests)):
            return True
        self._met_kinds[event.kind] += not event.texts
        if self.behind:
            if event.name in self._frames.dialect.terminal:
                raise PrefixMismatch(None)
            return False
        if not event.texts:
            return self._met_kinds[event.kind] > self._sent_kinds[event.kind]
        cumulative = any(text.growth == "cumulative" for text in event.texts)
        return (event.rest if cumulative else event.kind) not in self._seen

    def _is_longer(self, text: EventText, rest: Units) -> bool:
        if text.growth == "delta":
            return bool(rest)
        return rest != self._sent.get(text.track, b"")


def text_prefix(
    dialect: Dialect, sent: Iterable[bytes], tape: Tape, *, taped: bool = False
) -> TextPrefix | None:
    """Return the prefix of frames a client has; None where no other run could repeat them.

    Text without a model's answer on the tape would differ: the model would be called anew. The
    model of a `taped` stack may have answered by another port.
    """
    if not dialect.locates_text:
        return None
    prefix = TextPrefix(TextFrames(dialect), sent)
    models = {MODEL_STREAM, EXTERNAL_READ} if taped else {MODEL_STREAM}
    answered = any(entry.operation in models for entry in tape.entries)
    return prefix if answered or not prefix.has_text else None
