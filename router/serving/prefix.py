"""Wording: a frame taken apart into its event's name, its texts and all else, and put together.

Texts are UTF-16 code units, as JSON has them: half a character may stand in one frame, the other
half in the next.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from contract.errors import CutoverError
from contract.operations import MODEL_STREAM
from contract.wire.reader import EventDecoder, Place, value_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from contract.wire.dialect import Dialect, Growth
    from effects.tape import Tape


Track = str
"""Which text of a stream: the answer's, the reasoning, a tool call's arguments."""
Units = bytes
"""UTF-16 code units, two bytes each."""

_UTF_16: Final = "utf-16-le"
_UNNAMED: Final = "message"
_BOM: Final = "\ufeff"
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")


@dataclass(frozen=True, slots=True)
class Said:
    """A text of an event: where it stands, how it grows, what it is."""

    track: Track
    at: Place
    growth: Growth
    units: Units


@dataclass(frozen=True, slots=True)
class Worded:
    """An event: its texts, what sort of thing it says beside them, and what that is.

    `calls`: it holds a piece of a tool call.
    """

    name: str
    said: tuple[Said, ...]
    kind: tuple[str, ...]
    rest: str
    calls: bool = False


class Wording:
    """Reads and writes the frames of one wire."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._sse = dialect.framing == "sse"
        self.decoder = EventDecoder(dialect)

    @property
    def tells(self) -> bool:
        """Whether the wire says where its texts are: without, no two streams can be matched."""
        return bool(self.dialect.text) and self.dialect.payload == "json"

    def read(self, frame: bytes) -> Worded | None:
        """Take a frame apart; None where it is no event: a comment, a blank line."""
        event, payload = self._payload(frame)
        if payload is None:
            return None
        tree = _tree(payload)
        if tree is None:
            said = payload.strip()
            name = said if said in self.decoder.terminal else event or _UNNAMED
            return Worded(name, (), (name,), said)
        name = self.decoder.name(event, tree)
        texts = tuple(self._texts(name, tree))
        calls = self.decoder.calls_tool(tree)
        part = self.decoder.part(tree)
        for one in texts:
            _put(tree, one.at, "")
        kind = (name, *sorted(set(_said_of(tree))))
        return Worded(part or name, texts, kind, json.dumps(tree, sort_keys=True), calls)

    def rewritten(self, frame: bytes, worded: Worded, texts: Sequence[Units]) -> bytes:
        """Give a frame with other texts in it, all else being as it was."""
        _, payload = self._payload(frame)
        tree = _tree(payload or "")
        for one, text in zip(worded.said, texts, strict=True):
            _put(tree, one.at, text.decode(_UTF_16, "surrogatepass"))
        data = _encoded(tree)
        return _with_data(frame, data) if self._sse else data + frame[len(frame.rstrip()) :]

    def _payload(self, frame: bytes) -> tuple[str, str | None]:
        text = frame.decode("utf-8", "replace")
        if not self._sse:
            return "", text.strip() or None
        event, data = "", list[str]()
        for line in _LINE.findall(text.removeprefix(_BOM)):
            name, _, value = line.rstrip("\r\n").partition(":")
            if name == "data":
                data.append(value.removeprefix(" "))
            elif name == "event":
                event = value.removeprefix(" ")
        return event, "\n".join(data) if data else None

    def _texts(self, name: str, tree: Any) -> Iterator[Said]:
        for track, at, growth in self.decoder.texts(name, tree):
            yield Said(track, at, growth, _units(value_at(tree, at)))


def _units(text: str) -> Units:
    return text.encode(_UTF_16, "surrogatepass")


def _tree(payload: str) -> Any:
    """Read JSON; None where it is none, or nothing. Halves of characters are read as they are."""
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        return None


def _encoded(tree: Any) -> bytes:
    try:
        return json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half a character: only an escape can carry it
        return json.dumps(tree, separators=(",", ":")).encode()


def _with_data(frame: bytes, data: bytes) -> bytes:
    """Put other data into an event, in the place of the first line of the old."""
    lines, put = list[bytes](), False
    for line in frame.splitlines(keepends=True):
        if line.rstrip(b"\r\n") != b"data" and not line.removeprefix(b"\xef\xbb\xbf").startswith(
            b"data:"
        ):
            lines.append(line)
        elif not put:
            lines.append(b"data: " + data + line[len(line.rstrip(b"\r\n")) :])
            put = True
    return b"".join(lines)


def _put(tree: Any, at: Place, text: str) -> None:
    value_at(tree, at[:-1])[at[-1]] = text


def _said_of(tree: Any, path: str = "") -> Iterator[str]:
    """List where something is said; nothing, an empty text and an empty list are not."""
    if isinstance(tree, dict):
        for key, below in tree.items():
            yield from _said_of(below, f"{path}.{key}")
    elif isinstance(tree, list):
        for below in tree:
            yield from _said_of(below, f"{path}[]")
    elif tree is not None and tree != "":
        yield path


class PrefixMismatch(CutoverError):
    """A stream cannot go on behind what the client has had; `track` is None where all has ended."""

    def __init__(self, track: Track | None) -> None:
        super().__init__(f"the {track or 'stream'!r} is not the one the client has had")
        self.track = track


class Prefix:
    """Takes a successor's frames one by one and gives those that go to the client.

    `had` are the frames the client has had.
    """

    def __init__(self, wording: Wording, had: Iterable[bytes]) -> None:
        self._wording = wording
        self._had: dict[Track, Units] = {}
        self._reached: dict[Track, int] = {}
        self._silent: Counter[tuple[str, ...]] = Counter()
        self._spoken: set[tuple[str, ...] | str] = set()
        self._met: Counter[tuple[str, ...]] = Counter()
        self._sound = True
        self._goes_on = False
        for frame in had:
            worded = wording.read(frame)
            if worded is not None:
                self._keep(worded)

    @property
    def speaks(self) -> bool:
        """Whether the client has had any text."""
        return any(self._had.values())

    def feed(self, frame: bytes) -> bytes | None:
        """Give what of a frame goes to the client: all, a part, or nothing.

        Raises `PrefixDiffers` where it cannot go on from what the client has had.
        """
        if self._goes_on:
            return frame
        if not self._sound:
            raise PrefixMismatch(None)
        worded = self._wording.read(frame)
        if worded is None:
            return None
        if worded.name in self._wording.decoder.failures:
            self._goes_on = True  # that it fails is news wherever it says so
            return frame
        rests = [self._rest(said) for said in worded.said]
        if not self._is_new(worded, rests):
            return None
        self._goes_on = not self._behind
        if rests == [said.units for said in worded.said]:
            return frame
        return self._wording.rewritten(frame, worded, rests)

    def _keep(self, worded: Worded) -> None:
        """Note an event the client has had."""
        decoder = self._wording.decoder
        ended = worded.name in decoder.failures | decoder.terminal
        # Of calls that were cut elsewhere nobody could tell which piece belongs to which.
        self._sound = self._sound and not ended and not worded.calls
        for said in worded.said:
            had = self._had.get(said.track, b"")
            if said.growth == "delta":
                self._had[said.track] = had + said.units
            else:
                self._sound = self._sound and said.units.startswith(had)
                self._had[said.track] = said.units
        self._silent[worded.kind] += not worded.said
        self._spoken |= {worded.kind, worded.rest}

    def _rest(self, said: Said) -> Units:
        """Give what of a text is to be sent, for a cumulative one with what has been sent."""
        had, units = self._had.get(said.track, b""), said.units
        if said.growth == "delta":
            start = self._reached.get(said.track, 0)
            overlap = had[start : start + len(units)]
            self._reached[said.track] = start + len(units)
            if not units.startswith(overlap):
                raise PrefixMismatch(said.track)
            return units[len(overlap) :]
        self._reached[said.track] = len(units)
        if not (units.startswith(had) or had.startswith(units)):
            raise PrefixMismatch(said.track)
        return max(units, had, key=len)

    @property
    def _behind(self) -> bool:
        """Whether some text of the client's has not been said again yet."""
        return any(self._reached.get(track, 0) < len(had) for track, had in self._had.items())

    def _is_new(self, worded: Worded, rests: list[Units]) -> bool:
        """Whether an event says anything the client has not had."""
        if any(map(self._is_more, worded.said, rests)):
            return True
        self._met[worded.kind] += not worded.said
        if self._behind:
            if worded.name in self._wording.dialect.terminal:
                raise PrefixMismatch(None)
            return False
        if not worded.said:
            return self._met[worded.kind] > self._silent[worded.kind]
        cumulative = any(said.growth == "cumulative" for said in worded.said)
        return (worded.rest if cumulative else worded.kind) not in self._spoken

    def _is_more(self, said: Said, rest: Units) -> bool:
        return bool(rest) if said.growth == "delta" else rest != self._had.get(said.track, b"")


def resume_text(dialect: Dialect, had: Iterable[bytes], tape: Tape) -> Prefix | None:
    """Begin to follow what a client has had; None where nobody could say it again.

    Text that came from no answer on the tape would be another one: the model would be asked anew.
    """
    wording = Wording(dialect)
    if not wording.tells:
        return None
    prefix = Prefix(wording, had)
    answered = any(entry.operation is MODEL_STREAM for entry in tape.entries)
    return prefix if answered or not prefix.speaks else None
