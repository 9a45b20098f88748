"""Slots: where in a list of trees the pieces of streamed texts stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from router.capture.redaction.passes import (
    Pass,
)
from router.capture.redaction.places import (
    Json,
)


@dataclass(frozen=True, slots=True)
class Slot:
    """One piece: the path in tree number `index`, the text it belongs to, and how that grows."""

    index: int
    path: tuple[str | int, ...]
    track: str
    cumulative: bool = False


def read(tree: Json, path: Sequence[str | int]) -> str | None:
    """Give the text at a path, None where there is none."""
    for step in path:
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            return None
    return tree if isinstance(tree, str) else None


def write(tree: Json, path: Sequence[str | int], text: str | None) -> None:
    """Put a text at a path that is there; None removes the key."""
    for step in path[:-1]:
        tree = tree[step]
    if text is None:
        tree.pop(path[-1], None)
    else:
        tree[path[-1]] = text


def joined(trees: Sequence[Json], slots: Sequence[Slot]) -> list[str]:
    """Give every streamed text as it is when joined (the last state of a cumulative one)."""
    texts: dict[str, str] = {}
    for slot in slots:
        piece = read(trees[slot.index], slot.path) or ""
        texts[slot.track] = piece if slot.cumulative else texts.get(slot.track, "") + piece
    return list(texts.values())


def treated(
    trees: list[Json],
    slots: Sequence[Slot],
    walk: Callable[[int, Json], Json],
    treatment: Pass,
    *,
    omit_empty: bool = False,
) -> list[Json]:
    """Give the trees after a pass, None for those that did not change.

    The pieces in `slots` are treated as the texts they make; `walk` treats all the rest. Where
    `omit_empty`, a piece that became empty is left out.
    """
    old = {slot: read(trees[slot.index], slot.path) or "" for slot in slots}
    new = _streams(old, treatment)
    for slot in slots:
        write(trees[slot.index], slot.path, "")
    walked = [walk(index, tree) for index, tree in enumerate(trees)]
    changed = [after != before for after, before in zip(walked, trees, strict=True)]
    for slot, text in new.items():
        changed[slot.index] = changed[slot.index] or text != old[slot]
        write(walked[slot.index], slot.path, text)
    for slot, text in new.items():
        if omit_empty and not text and old[slot]:
            write(walked[slot.index], slot.path, None)
    return [tree if moved else None for tree, moved in zip(walked, changed, strict=True)]


def _streams(old: dict[Slot, str], treatment: Pass) -> dict[Slot, str]:
    tracks: dict[tuple[str, bool], list[Slot]] = {}
    for slot in old:
        tracks.setdefault((slot.track, slot.cumulative), []).append(slot)
    new: dict[Slot, str] = {}
    for (_, cumulative), slots in tracks.items():
        pieces = [old[slot] for slot in slots]
        texts = treatment.prefixes(pieces) if cumulative else treatment.deltas(pieces)
        new.update(zip(slots, texts, strict=True))
    return new
