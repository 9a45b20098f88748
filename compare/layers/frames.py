"""Frames: the events both stacks sent, aligned by an edit script.

Events of bare text are aligned by how far the text has come, where its cuts count at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from compare.findings import (
    CadenceChanged,
    ChunksMoved,
    EventLineChanged,
    FrameAdded,
    FrameChanged,
    FrameDropped,
    FrameFinding,
    FrameMoved,
    FrameReplaced,
    shortened,
)
from compare.input.pairing import Pair
from compare.layers.groups import grouped
from compare.layers.values import changes
from compare.streams.alignment import align
from contract.equality import (
    MESSAGE,
    EventStream,
    StreamEvent,
    Types,
    frame_keys,
    other_types,
    renamed_text,
)

CUTS_SHOWN = 8
Kind = TypeVar("Kind", bound=FrameFinding)


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
    left, right = frame_keys(legacy, cuts=cuts), frame_keys(graph, cuts=cuts)
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


def _behind(keys: list[tuple[int, Hashable]], position: int) -> int:
    return keys[position - 1][0] + 1 if position else 0


def frame_findings(
    pair: Pair, legacy: EventStream, graph: EventStream, script: EditScript
) -> list[FrameFinding]:
    """Name what is in the gaps."""
    return _Gaps(pair, legacy, graph).findings(script)


def event_line_findings(pair: Pair, legacy: EventStream, graph: EventStream) -> list[FrameFinding]:
    """Compare the `event:` lines of frames that both sides sent; at most one finding."""
    other = other_types(legacy, graph)
    if not other:
        return []
    name, before, after = other[0]
    how = "renamed"
    if all(was.keys() == {MESSAGE} for _, was, _ in other):
        how = "added"
    elif all(now.keys() == {MESSAGE} for _, _, now in other):
        how = "missing"
    i, j = _first_of_other_type(before, after), _first_of_other_type(after, before)
    return [
        EventLineChanged(
            path=f"frames[{i}].{name if len(other) == 1 else '*'}.event: {how}",
            exchange=pair.exchange,
            legacy=_lines_text(before),
            graph=_lines_text(after),
            at_legacy=i,
            at_graph=j,
        )
    ]


def _first_of_other_type(types: Types, others: Types) -> int:
    """Return the index of the first event whose type the other side does not have."""
    own = [index for name, index in types.items() if name not in others]
    return min(own or types.values())


def _lines_text(types: Types) -> str:
    shown = (f"event: {name}" if name != MESSAGE else "no event: line" for name in sorted(types))
    return ", ".join(shown)


def cadence_of(
    pair: Pair, legacy: EventStream, graph: EventStream, script: EditScript
) -> CadenceChanged | None:
    """Find that a text was sent in other pieces, rather than that a frame of it is missing.

    Cuts of a cumulative text that one side merely lacks are frames it dropped, unless it lacks
    several, more than a third of all: then it sends less often.
    """
    lost = _cuts_alone(legacy, [i for gap in script.gaps for i in gap.legacy], graph)
    new = _cuts_alone(graph, [j for gap in script.gaps for j in gap.graph], legacy)
    if not (lost or new):
        return None
    streams = legacy, graph
    cuts = [[k for k, event in enumerate(side.events) if event.bare] for side in streams]
    cumulative = all(
        side.events[k].growth == "cumulative"
        for side, held in zip(streams, cuts, strict=True)
        for k in held
    )
    few = _few(lost, cuts[0]) and _few(new, cuts[1])
    if cumulative and few and not (lost and new):
        return None
    at_legacy, at_graph = (min(found, default=0) for found in (lost, new))
    name = legacy.events[lost[0]].name if lost else graph.events[new[0]].name
    return CadenceChanged(
        path=f"frames[{at_legacy}].{name}",
        exchange=pair.exchange,
        legacy=_pieces(legacy, cuts[0]),
        graph=_pieces(graph, cuts[1]),
        at_legacy=at_legacy,
        at_graph=at_graph,
    )


def _cuts_alone(stream: EventStream, gaps: Sequence[int], other: EventStream) -> list[int]:
    """List the bare events in gaps, but for those the other side sent with a field more."""
    bare = [k for k in gaps if stream.events[k].bare]
    if not bare:
        return []
    more = {
        (event.name, reached)
        for event, reached in zip(other.events, other.reached, strict=True)
        if not event.bare
    }
    return [k for k in bare if (stream.events[k].name, stream.reached[k]) not in more]


def _few(lacking: Sequence[int], cuts: Sequence[int]) -> bool:
    return len(lacking) <= 1 or 3 * len(lacking) <= len(cuts)


def _pieces(stream: EventStream, cuts: Sequence[int]) -> str:
    """Describe how a text was sent: in how many pieces, how far each of the first went."""
    reached = [str(sum(stream.reached[k])) for k in cuts[:CUTS_SHOWN]]
    more = ", …" if len(cuts) > CUTS_SHOWN else ""
    return f"{len(cuts)} {'piece' if len(cuts) == 1 else 'pieces'}: {', '.join(reached)}{more}"


class _Gaps:
    """Turns the gaps of one script into findings."""

    def __init__(self, pair: Pair, legacy: EventStream, graph: EventStream) -> None:
        self._pair = pair
        self._legacy, self._graph = legacy, graph
        self._old, self._new = legacy.events, graph.events

    def findings(self, script: EditScript) -> list[FrameFinding]:
        gaps = script.gaps
        found: list[FrameFinding] = self._take_moves(gaps)
        found += self._take_fields(gaps)
        for gap in gaps:
            found += self._gap(gap)
        legacy, graph = self._legacy, self._graph
        if (legacy.text, legacy.reasoning) == (graph.text, graph.reasoning):
            # The script looks at how far equal texts came, not under which name they were sent.
            renamed = renamed_text(legacy, graph)
            if renamed is not None:
                found.append(self._replaced(*renamed, renamed[:1], renamed[1:]))
        return sorted(found, key=lambda finding: (finding.at_legacy, finding.at_graph))

    def _take_moves(self, gaps: list[Gap]) -> list[FrameFinding]:
        """Take out frames that are missing in one gap and turn up, equal, in another."""
        unmatched: dict[Hashable, list[tuple[Gap, int]]] = defaultdict(list)
        for gap in gaps:
            for j in gap.graph:
                if not self._new[j].bare:
                    unmatched[self._new[j].name, self._new[j].shape].append((gap, j))
        found: list[FrameFinding] = []
        for gap in gaps:
            for i in list(gap.legacy):
                event = self._old[i]
                if not event.bare and unmatched[event.name, event.shape]:
                    other, j = unmatched[event.name, event.shape].pop(0)
                    gap.legacy.remove(i)
                    other.graph.remove(j)
                    shape = event.shape.decode()
                    shown = f"frame {i}: {shape}", f"frame {j}: {shape}"
                    found.append(self._finding(FrameMoved, (i, j), event.name, shown))
        return found

    def _take_fields(self, gaps: list[Gap]) -> list[FrameFinding]:
        """Take out frames of text that one side sent with a field more.

        On the other side they are bare, and stand in no gap where cuts do not count.
        """
        sides = [(self._old, gap.legacy) for gap in gaps] + [(self._new, gap.graph) for gap in gaps]
        if not any(_speaks_more(events[k]) for events, missing in sides for k in missing):
            return []
        texts = [_TextFrames(stream) for stream in (self._legacy, self._graph)]
        found: list[FrameFinding] = []
        for gap in gaps:
            for side, (own, other) in enumerate(((gap.legacy, gap.graph), (gap.graph, gap.legacy))):
                for at in list(own):
                    twin = texts[side].bare_twin(at, texts[1 - side])
                    if twin is None:
                        continue
                    own.remove(at)
                    if twin in other:
                        other.remove(twin)
                    found += self._changed(*((twin, at) if side else (at, twin)))
        return found

    def _gap(self, gap: Gap) -> list[FrameFinding]:
        """Pair what has the same name; what is left was dropped, added or replaced."""
        found: list[FrameFinding] = []
        left, right = list(gap.legacy), list(gap.graph)
        for i in gap.legacy:
            name = self._old[i].name
            j = next((j for j in right if self._new[j].name == name), None)
            if j is not None:
                left.remove(i)
                right.remove(j)
                found += self._changed(i, j)
        if not left and not right:
            return found
        i, j = left[0] if left else gap.at[0], right[0] if right else gap.at[1]
        if left and right:
            found.append(self._replaced(i, j, left, right))
        elif left:
            shown = _payloads(self._legacy, left), None
            found.append(self._finding(FrameDropped, (i, j), self._old[i].name, shown, len(left)))
        else:
            shown_ = None, _payloads(self._graph, right)
            added = self._finding(FrameAdded, (i, j), self._new[j].name, shown_, len(right), at=j)
            found.append(added)
        return found

    def _changed(self, i: int, j: int) -> list[FrameFinding]:
        old, new = self._old[i], self._new[j]
        if old.bare and new.bare and old.shape == new.shape:
            reached = self._legacy.reached[i][0], self._graph.reached[j][0]
            shown = f"{reached[0]} characters", f"{reached[1]} characters"
            return [self._finding(ChunksMoved, (i, j), old.name, shown)]
        made: list[FrameFinding] = [
            self._finding(FrameChanged, (i, j), f"{old.name}{path}", (before, after))
            for path, before, after in changes(old.shape, new.shape)
        ]
        if not made:  # one is nothing but text, and the other has none
            made = [self._finding(FrameChanged, (i, j), old.name, (old.data, new.data))]
        return grouped(made, f"frames[{i}].{old.name}")

    def _replaced(self, i: int, j: int, left: Sequence[int], right: Sequence[int]) -> FrameReplaced:
        shown = _payloads(self._legacy, left), _payloads(self._graph, right)
        count = max(len(left), len(right))
        name = f"{self._old[i].name}→{self._new[j].name}"
        return self._finding(FrameReplaced, (i, j), name, shown, count)

    def _finding(
        self,
        kind: type[Kind],
        places: tuple[int, int],
        name: str,
        shown: tuple[str | None, str | None],
        count: int = 1,
        at: int | None = None,
    ) -> Kind:
        return kind(
            path=f"frames[{places[0] if at is None else at}].{name}",
            exchange=self._pair.exchange,
            legacy=shown[0],
            graph=shown[1],
            at_legacy=places[0],
            at_graph=places[1],
            count=count,
        )


class _TextFrames:
    """The frames of one stream by name and by how far the text has come."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._at: dict[Hashable, list[int]] = defaultdict(list)
        self._bare: dict[str, list[tuple[tuple[int, int], int]]] = defaultdict(list)
        for k, (event, reached) in enumerate(zip(stream.events, stream.reached, strict=True)):
            self._at[event.name, reached].append(k)
            if event.bare:
                self._bare[event.name].append((reached, k))

    def bare_twin(self, at: int, other: _TextFrames) -> int | None:
        """Find the bare event of the other stream that an event with fields stands for.

        It has the same name and text, and there are as many such events on either side: what lacks
        is missing, not changed. A text that was cut otherwise stands for the next cut.
        """
        event, reached = self._stream.events[at], self._stream.reached[at]
        if not _speaks_more(event):
            return None
        own, twins = self._at[event.name, reached], other._at.get((event.name, reached), [])
        if twins or reached == (self._stream.reached[at - 1] if at else (0, 0)):
            fits = len(own) == len(twins) and other._stream.events[twins[own.index(at)]].bare
            return twins[own.index(at)] if fits else None
        bare = other._bare.get(event.name, [])
        k = bisect_left(bare, (reached, 0))
        return bare[k][1] if k < len(bare) else None


def _speaks_more(event: StreamEvent) -> bool:
    """Whether an event holds text, and something else."""
    spoken = event.text is not None or event.reasoning is not None
    return spoken and not event.bare and event.fault is None


def _payloads(stream: EventStream, indices: Sequence[int]) -> str:
    return shortened("\n".join(stream.events[k].data for k in indices))
