"""The entries of a tape under redaction: arguments, items, and a model's stream in its chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from contract.model import Chunk
from contract.records import EntryRecord, PlayRecord
from router.capture.redaction.passes import (
    Pass,
)
from router.capture.redaction.places import (
    Json,
    Paths,
    Walk,
    below,
    reachable,
)
from router.capture.redaction.slots import (
    Slot,
    treated,
)

_PIECES = ("text", "reasoning")
_ONLY_PIECES = frozenset({"at", *_PIECES})
# What people typed comes with whole numbers in it; elsewhere numbers are counts and times.
_TYPED = frozenset({"human"})


_chunks = msgspec.json.Decoder(list[Chunk])


class EntryText:
    """One entry."""

    def __init__(self, entry: EntryRecord, paths: Paths) -> None:
        self._entry = entry
        self._paths = _operation_paths(paths, entry.port, entry.op)
        self._streams = (entry.port, entry.op) == ("model", "stream")
        self._array = b"[" + b",".join(map(bytes, entry.items)) + b"]"
        self.texts: list[str] = []
        self.raw = bytes(entry.args) + (self._stream_words() if self._streams else self._array)
        if entry.fault and entry.fault.data:
            self.raw += msgspec.json.encode(entry.fault.data)

    def after(self, treatment: Pass) -> EntryRecord:
        """Give the entry after a pass."""
        if not treatment.concerned(self.raw, self._paths, self.texts):
            return self._entry
        entry = self._entry
        args = raw_after(entry.args, below(self._paths, "args"), treatment, typed=self._typed)
        items = self._items(treatment)
        changes: dict[str, Any] = {}
        if args is not entry.args:
            changes["args"] = args
        if any(new is not old for new, old in zip(items, entry.items, strict=True)):
            changes["items"] = items
        if entry.fault and entry.fault.data:
            data = Walk(treatment).tree(dict(entry.fault.data), ())
            changes["fault"] = msgspec.structs.replace(entry.fault, data=data)
        return msgspec.structs.replace(entry, **changes) if changes else entry

    @property
    def _typed(self) -> bool:
        return self._entry.port in _TYPED

    def _items(self, treatment: Pass) -> tuple[msgspec.Raw, ...]:
        paths = below(self._paths, "items")
        if not treatment.concerned(self._array, paths, self.texts):
            return self._entry.items
        trees: list[Any] = msgspec.json.decode(self._array)
        walk = Walk(treatment, numbers=self._typed)
        changed = treated(
            trees,
            list(_slots(trees, paths)) if self._streams else [],
            lambda index, tree: self._walked(walk, tree, paths and below(paths, str(index))),
            treatment,
            omit_empty=True,
        )
        return tuple(
            old if new is None else msgspec.Raw(msgspec.json.encode(new))
            for old, new in zip(self._entry.items, changed, strict=True)
        )

    def _walked(self, walk: Walk, tree: Json, paths: Paths) -> Json:
        if self._streams and not paths and tree.keys() <= _ONLY_PIECES:
            return tree  # its texts are treated as streams, and there is nothing else
        return walk.tree(tree, paths)

    def _stream_words(self) -> bytes:
        """Join the texts of a stream; give its other words, or all its bytes if it is none."""
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


@lru_cache(maxsize=256)
def _operation_paths(paths: Paths, port: str, op: str) -> Paths:
    return below(paths, port, op)


def play_after(play: PlayRecord, paths: Paths, treatment: Pass) -> PlayRecord:
    """Give a play after a pass."""
    if play.args is None:
        return play
    inside = below(_operation_paths(paths, play.port, play.op), "args")
    args = raw_after(play.args, inside, treatment, typed=play.port in _TYPED)
    return play if args is play.args else msgspec.structs.replace(play, args=args)


def raw_after(
    raw: msgspec.Raw, paths: Paths, treatment: Pass, *, typed: bool = False
) -> msgspec.Raw:
    """Give a piece of JSON after a pass: the same object where nothing changed."""
    said = bytes(raw)
    if not treatment.concerned(said, reachable(paths, said)):
        return raw
    tree = msgspec.json.decode(raw)
    after = Walk(treatment, numbers=typed).tree(tree, paths)
    return raw if after == tree else msgspec.Raw(msgspec.json.encode(after))


def _slots(trees: Sequence[Any], paths: Paths) -> Iterator[Slot]:
    for index, tree in enumerate(trees):
        inside = paths and below(paths, str(index))
        for name in _PIECES:
            if isinstance(tree.get(name), str) and () not in below(inside, name):
                yield Slot(index, (name,), name)
        for place, call in enumerate(tree.get("tool_calls", ())):
            if "arguments" in call:
                track = f"arguments {call.get('index', 0)}"
                yield Slot(index, ("tool_calls", place, "arguments"), track)
