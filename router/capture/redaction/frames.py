"""The frames of a run under redaction: their JSON, and the text that is spread over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from contract.wire.reader import EventDecoder
from router.capture.redaction.halves import decoded, encoded
from router.capture.redaction.passes import Pass
from router.capture.redaction.places import Json, Paths, Walk, below
from router.capture.redaction.slots import Slot, joined, treated

Frames = tuple[tuple[int, str], ...]

_DATA = "data:"
_CLOSING = '"}\n'


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame taken apart: its lines, the JSON of its data, the name of its event."""

    lines: tuple[str, ...]
    data: tuple[int, ...]
    tree: Json
    name: str

    def text(self, tree: Json) -> str:
        """Give the frame again, with `tree` as its data."""
        first, rest = self.data[0], self.data[1:]
        kept = [line for index, line in enumerate(self.lines) if index not in rest]
        old = self.lines[first]
        head = old[: len(_DATA) + 1] if old.startswith(_DATA + " ") else _head(old)
        kept[first] = head + encoded(tree) + ("\r" * old.endswith("\r"))
        return "\n".join(kept)


class FrameText:
    """The frames of one run; they are only taken apart when that can matter."""

    def __init__(self, frames: Frames, decoder: EventDecoder, paths: Paths) -> None:
        self._frames = frames
        self._decoder = decoder
        self._paths = paths
        self.raw = "".join(_distinct([text for _, text in frames])).encode()

    @cached_property
    def texts(self) -> list[str]:
        """The texts that only show when pieces are joined; growing ones stand in `raw`."""
        if not self._decoder.has_deltas:
            return []
        return joined([frame and frame.tree for frame in self._parsed], self._slots)

    @cached_property
    def _parsed(self) -> list[Frame | None]:
        return [parsed(text, self._decoder) for _, text in self._frames]

    @cached_property
    def _slots(self) -> list[Slot]:
        return [
            slot
            for index, frame in enumerate(self._parsed)
            if frame is not None
            for slot in self._slots_of(index, frame)
        ]

    def concerned(self, treatment: Pass) -> bool:
        """Whether a pass has something to do in them."""
        return treatment.concerned(self.raw, self._paths, self.texts)

    def after(self, treatment: Pass) -> Frames:
        """Give the frames after a pass."""
        if not self.concerned(treatment):
            return self._frames
        walk = Walk(treatment)
        trees = [frame and _copy(frame.tree) for frame in self._parsed]

        def step(index: int, tree: Json) -> Json:
            frame = self._parsed[index]
            return walk.tree(tree, below(self._paths, frame.name)) if frame else None

        changed = treated(trees, self._slots, step, treatment)
        return tuple(
            (at, self._text(index, text, changed[index], treatment))
            for index, (at, text) in enumerate(self._frames)
        )

    def _text(self, index: int, text: str, changed: Json, treatment: Pass) -> str:
        frame = self._parsed[index]
        if frame is None:
            return treatment.leaf(text, protocol=False)
        return text if changed is None else frame.text(changed)

    def _slots_of(self, index: int, frame: Frame) -> Iterator[Slot]:
        for track, path, growth in self._decoder.texts(frame.name, frame.tree):
            if self._paths and () in below(self._paths, frame.name, *map(str, path)):
                continue  # a path takes the whole field, piece by piece
            yield Slot(index, path, track, growth == "cumulative")


def parsed(text: str, decoder: EventDecoder) -> Frame | None:
    """Take a frame apart; None where its data is not JSON."""
    lines = tuple(text.split("\n"))
    if decoder.dialect.framing == "ndjson":
        data: tuple[int, ...] = (0,)
        content = lines[0]
    else:
        data = tuple([index for index, line in enumerate(lines) if line.startswith(_DATA)])
        content = "\n".join([lines[index][len(_DATA) :] for index in data])
    try:
        tree = decoded(content)
    except (ValueError, RecursionError):
        return None
    return Frame(lines, data, tree, _name(lines, tree, decoder))


def _name(lines: tuple[str, ...], tree: Json, decoder: EventDecoder) -> str:
    named = (line[len("event:") :].strip() for line in lines if line.startswith("event:"))
    return decoder.name(next(named, ""), tree)


def _distinct(frames: Sequence[str]) -> list[str]:
    """Give the frames that are not contained in the next: growing text is looked at once."""
    ends = [text.rstrip(_CLOSING) for text in frames]
    grown = [
        text for text, after in zip(ends, frames[1:], strict=False) if not after.startswith(text)
    ]
    return grown + ends[-1:]


def _head(line: str) -> str:
    return _DATA if line.startswith(_DATA) else ""


def _copy(tree: Json) -> Json:
    if isinstance(tree, dict):
        return {key: _copy(child) for key, child in tree.items()}
    if isinstance(tree, list):
        return [_copy(child) for child in tree]
    return tree
