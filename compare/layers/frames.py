"""Spans: under which event names a text was sent, however it was cut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from compare.findings import (
    ChunksMoved,
    FrameAdded,
    FrameChanged,
    FrameDropped,
    FrameFinding,
    FrameMoved,
    FrameReplaced,
    shortened,
)
from compare.input.pairing import Pair
from compare.layers.values import changes
from compare.streams.alignment import align
from compare.streams.events import EventStream

TEXT, REASONING = 0, 1


class Span(NamedTuple):
    """A stretch of one text under one name, "" where events say more than text.

    `end` is how far the text had come with it, `at` the index of its first event.
    """

    name: str
    end: int
    at: int


def renamed(legacy: EventStream, graph: EventStream) -> tuple[int, int] | None:
    """Find where equal texts are sent under different names, as the indices of both events.

    Only events that are nothing but text are looked at: all others are aligned by name anyway.
    """
    names = {event.name for stream in (legacy, graph) for event in stream.events if event.bare}
    if len(names) == 1:
        return None
    for channel in (TEXT, REASONING):
        found = _parted(_spans(legacy, channel), _spans(graph, channel))
        if found is not None:
            return found
    return None


def _parted(old: list[Span], new: list[Span]) -> tuple[int, int] | None:
    i = j = 0
    while i < len(old) and j < len(new):
        before, after = old[i], new[j]
        if before.name and after.name and before.name != after.name:
            return before.at, after.at
        i += before.end <= after.end
        j += after.end <= before.end
    return None


def _spans(stream: EventStream, channel: int) -> list[Span]:
    spans: list[Span] = []
    come = 0
    for index, (event, reached) in enumerate(zip(stream.events, stream.reached, strict=True)):
        if reached[channel] <= come:
            continue
        come = reached[channel]
        name = event.name if event.bare else ""
        first = spans.pop().at if spans and spans[-1].name == name else index
        spans.append(Span(name, come, first))
    return spans


Chunking = Literal["ignore", "exact"]


@dataclass(frozen=True, slots=True)
class Gap:
    """Frames of each side that found no partner, between two that did.

    Indices into the streams; `at` is where the gap opens on each side.
    """

    at: tuple[int, int]
    legacy: list[int]
    graph: list[int]


@dataclass(slots=True)
class EditScript:
    """The edit script of two streams: which frames match, and the gaps between."""

    matched: list[tuple[int, int]] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)


def script_of(legacy: EventStream, graph: EventStream, *, cuts: bool) -> EditScript:
    """Align two streams; with `cuts`, frames of bare text too, by how far the text has come."""
    left, right = _keys(legacy, cuts=cuts), _keys(graph, cuts=cuts)
    script = EditScript()
    for block in align([key for _, key in left], [key for _, key in right]):
        a = [left[k][0] for k in block.left]
        b = [right[k][0] for k in block.right]
        if block.equal:
            script.matched += zip(a, b, strict=True)
        else:
            at = _behind(left, block.left.start), _behind(right, block.right.start)
            script.gaps.append(Gap(at, a, b))
    return script


def _keys(stream: EventStream, *, cuts: bool) -> list[tuple[int, Hashable]]:
    return [
        (index, reached if event.bare else (event.name, event.shape))
        for index, (event, reached) in enumerate(zip(stream.events, stream.reached, strict=True))
        if cuts or not event.bare
    ]


def _behind(keys: list[tuple[int, Hashable]], position: int) -> int:
    return keys[position - 1][0] + 1 if position else 0


def frame_findings(
    pair: Pair, legacy: EventStream, graph: EventStream, script: EditScript, chunking: Chunking
) -> list[FrameFinding]:
    """Name what is in the gaps."""
    return _Naming(pair, legacy, graph, chunking).findings(script)


class _Naming:
    """Turns the gaps of one script into findings."""

    def __init__(
        self, pair: Pair, legacy: EventStream, graph: EventStream, chunking: Chunking
    ) -> None:
        self._pair = pair
        self._legacy = legacy
        self._graph = graph
        self._chunking = chunking

    def findings(self, script: EditScript) -> list[FrameFinding]:
        gaps = self._without_moved_cuts(script.gaps)
        found, gaps = self._moves(gaps)
        for gap in gaps:
            found += self._gap(gap)
        found += self._renamed()
        return sorted(found, key=lambda finding: (finding.at_legacy, finding.at_graph))

    def _renamed(self) -> list[FrameFinding]:
        """Find equal texts sent under another name: the script looks at how far they came alone."""
        if (self._legacy.text, self._legacy.reasoning) != (self._graph.text, self._graph.reasoning):
            return []
        found = renamed(self._legacy, self._graph)
        return [] if found is None else [self._replaced(*found, [found[0]], [found[1]])]

    def _without_moved_cuts(self, gaps: list[Gap]) -> list[Gap]:
        """Leave out cuts that merely moved: each side then has some the other lacks.

        A side whose cuts are all found on the other, which has more, has dropped frames.
        """
        lacking = any(self._legacy.events[i].bare for gap in gaps for i in gap.legacy)
        added = any(self._graph.events[j].bare for gap in gaps for j in gap.graph)
        if not (lacking and added) or self._chunking == "exact":
            return gaps
        return [
            Gap(
                gap.at,
                [i for i in gap.legacy if not self._legacy.events[i].bare],
                [j for j in gap.graph if not self._graph.events[j].bare],
            )
            for gap in gaps
        ]

    def _moves(self, gaps: list[Gap]) -> tuple[list[FrameFinding], list[Gap]]:
        """Take out frames that are missing in one gap and turn up, equal, in another."""
        homeless: dict[Hashable, list[tuple[Gap, int]]] = defaultdict(list)
        for gap in gaps:
            for j in gap.graph:
                event = self._graph.events[j]
                if not event.bare:
                    homeless[event.name, event.shape].append((gap, j))
        found: list[FrameFinding] = []
        for gap in gaps:
            for i in list(gap.legacy):
                event = self._legacy.events[i]
                if not event.bare and homeless[event.name, event.shape]:
                    other, j = homeless[event.name, event.shape].pop(0)
                    gap.legacy.remove(i)
                    other.graph.remove(j)
                    found.append(self._moved(i, j))
        return found, gaps

    def _moved(self, i: int, j: int) -> FrameMoved:
        event = self._legacy.events[i]
        return FrameMoved(
            path=f"frames[{i}].{event.name}",
            exchange=self._pair.exchange,
            legacy=f"frame {i}: {event.shape.decode()}",
            graph=f"frame {j}: {event.shape.decode()}",
            at_legacy=i,
            at_graph=j,
        )

    def _gap(self, gap: Gap) -> list[FrameFinding]:
        """Pair what has the same name; what is left was dropped, added or replaced."""
        found: list[FrameFinding] = []
        left, right = list(gap.legacy), list(gap.graph)
        for i in gap.legacy:
            name = self._legacy.events[i].name
            j = next((j for j in right if self._graph.events[j].name == name), None)
            if j is not None:
                left.remove(i)
                right.remove(j)
                found += self._changed(i, j)
        return found + self._rest(gap, left, right)

    def _changed(self, i: int, j: int) -> list[FrameFinding]:
        old, new = self._legacy.events[i], self._graph.events[j]
        if old.bare and new.bare and old.shape == new.shape:
            return [self._chunks(i, j)]
        return [
            FrameChanged(
                path=f"frames[{i}].{old.name}{path}",
                exchange=self._pair.exchange,
                legacy=legacy,
                graph=graph,
                at_legacy=i,
                at_graph=j,
            )
            for path, legacy, graph in changes(old.shape, new.shape)
        ]

    def _chunks(self, i: int, j: int) -> ChunksMoved:
        return ChunksMoved(
            path=f"frames[{i}].{self._legacy.events[i].name}",
            exchange=self._pair.exchange,
            legacy=f"{self._legacy.reached[i][0]} characters",
            graph=f"{self._graph.reached[j][0]} characters",
            at_legacy=i,
            at_graph=j,
        )

    def _rest(self, gap: Gap, left: list[int], right: list[int]) -> list[FrameFinding]:
        if not left and not right:
            return []
        i = left[0] if left else gap.at[0]
        j = right[0] if right else gap.at[1]
        if left and right:
            return [self._replaced(i, j, left, right)]
        stream, at, kind = (self._legacy, i, FrameDropped) if left else (self._graph, j, FrameAdded)
        payload = shortened("\n".join(stream.events[k].data for k in left or right))
        return [
            kind(
                path=f"frames[{at}].{stream.events[at].name}",
                exchange=self._pair.exchange,
                legacy=payload if left else None,
                graph=None if left else payload,
                at_legacy=i,
                at_graph=j,
                count=len(left or right),
            )
        ]

    def _replaced(self, i: int, j: int, left: list[int], right: list[int]) -> FrameReplaced:
        old, new = self._legacy.events, self._graph.events
        return FrameReplaced(
            path=f"frames[{i}].{old[i].name}→{new[j].name}",
            exchange=self._pair.exchange,
            legacy=shortened("\n".join(old[k].data for k in left)),
            graph=shortened("\n".join(new[k].data for k in right)),
            at_legacy=i,
            at_graph=j,
            count=max(len(left), len(right)),
        )
