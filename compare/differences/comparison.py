"""How two runs of one exchange differ: one function decides, and explains."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, Final
from unicodedata import normalize

import msgspec

from compare.differences.alignment import Comparable, last_before_closing, paired, take_equal
from compare.differences.causes import Finding, explain
from compare.differences.difference import SLIGHT, Difference, Kind, Pair
from compare.differences.generated import Folding, generated
from compare.differences.rules import NONE, Rules
from compare.differences.runs import Event, Reading, RunCall, ends, read_run
from compare.differences.values import MISSING, MOST_BYTES, changes, common, readable, shape, shown
from cutover.chat_form import encode
from cutover.errors import Completed, Outcome, Refusal
from cutover.flow import Flow
from cutover.records import TapeRecord

HELD_US, HELD_TIMES = 1_000_000, 2
"""A text is held back that comes more than so many microseconds, and times, later."""
AT_ONCE: Final = "times of texts: one run was answered at once, or by a model of another pace"
_CACHE: Final = re.compile(
    r"cached?_.*|.*_cached?_.*|.*_cached?|cached?[A-Z].*|[a-z].*Cached?(?:[A-Z].*)?"
)
_APART: Final = {
    "input_tokens": ("cache_read_input_tokens", "cache_creation_input_tokens"),
    "inputTokens": ("cacheReadInputTokens", "cacheWriteInputTokens"),
}
"""Counts of Anthropic and Bedrock, and those of the cache that they leave out."""
_BROKEN: Final = re.compile("event '(.+?)' where")
_ORDER: Final = {"refusal": 0, "outcome": 1, "grammar": 2}
"""What counts first of differences at the same moment."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two runs of one exchange differ, in order of tape time.

    `left_out` says what was not compared, `folded` how many values were equal but for a generated
    id, a date or a time. `pieces` are the numbers of frames of text, legacy's and graph's; of all
    frames, where both streams are the same to the byte. With a `damage`, which says what of a run
    could not be read, nothing is compared.
    """

    differences: tuple[Difference, ...] = ()
    left_out: tuple[str, ...] = ()
    folded: int = 0
    pieces: tuple[int, int] = (0, 0)
    damage: str = ""

    @property
    def equal(self) -> bool:
        """Whether both runs could be read, and no difference counts."""
        return not self.damage and all(one.kind in SLIGHT for one in self.differences)


def differences(
    pair: Pair, flow: Flow, rules: Rules = NONE, graph_flow: Flow | None = None
) -> Comparison:
    """Return how the runs of a pair differ, read from legacy to graph; never raises for a line.

    `graph_flow` reads graph's stream where that has another wire format: then only texts, tool
    calls and ends are compared, which both can say.
    """
    if graph_flow is None and (comparison := _same_bytes(pair, flow)) is not None:
        return comparison
    legacy = read_run(pair.legacy, pair.tape, flow)
    graph = read_run(pair.graph, pair.tape, graph_flow or flow)
    if damage := legacy.damage or graph.damage:
        return Comparison(damage=damage)
    rules = rules.of(flow.name)
    kinds = getattr(getattr(flow, "dialect", None), "ids", ())
    folding = Folding(lambda: (_ids(legacy), _ids(graph)), kinds)
    comparing = _Comparing(legacy, graph, pair.tape, rules, folding)
    comparing.compare(two_formats=graph_flow is not None)
    found = sorted(
        comparing.found,
        key=lambda one: (one.difference.at, _ORDER.get(one.difference.kind, len(_ORDER))),
    )
    left_out = *comparing.left_out, *(f"by a rule: {rule}" for rule in sorted(rules.used))
    pieces = legacy.pieces, graph.pieces
    return Comparison(explain(found), tuple(dict.fromkeys(left_out)), folding.count, pieces)


def _same_bytes(pair: Pair, flow: Flow) -> Comparison | None:
    """Return the comparison of runs whose lines are the same, which most are; None for others."""
    legacy, graph = pair.legacy, pair.graph
    if legacy.outcome != graph.outcome or len(legacy.frames) != len(graph.frames):
        return None
    if len(legacy.plays) != len(graph.plays):
        return None
    for one, other in zip(legacy.frames, graph.frames, strict=True):
        if one.content != other.content or abs(one.at - other.at) > HELD_US:
            return None
    for play, its in zip(legacy.plays, graph.plays, strict=True):
        same = play.entry == its.entry and play.canonical == its.canonical
        if not same or play.entry is None or not 0 <= play.entry < len(pair.tape.entries):
            return None
    if legacy.outcome == Completed() and not ends(legacy, flow):
        return None
    count = len(legacy.frames)
    return Comparison((), _not_on_tape(pair.tape, calls=bool(legacy.plays)), 0, (count, count))


def _not_on_tape(
    tape: TapeRecord, unstored: AbstractSet[str] = frozenset(), *, calls: bool
) -> tuple[str, ...]:
    left_out = []
    if not (calls or tape.entries):
        left_out.append("calls: neither run has any on the tape")
    left_out += [f"calls of {name}: not stored whole" for name in tape.incomplete]
    left_out += [f"calls of {name}: not on the tape" for name in sorted(unstored)]
    return tuple(left_out)


@dataclass(slots=True)
class _Comparing:
    """Two runs that are being compared; of a couple of values legacy's stands first."""

    legacy: Reading
    graph: Reading
    tape: TapeRecord
    rules: Rules
    folding: Folding
    found: list[Finding] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def compare(self, *, two_formats: bool) -> None:
        """Fill `found` and `left_out`."""
        self.outcomes()
        if two_formats:
            self.left_out.append("events: the runs have two wire formats")
        else:
            self.events(self.legacy.events, self.graph.events)
            self.annotations()
        self.events(self.legacy.streamed, self.graph.streamed)
        for channel in dict.fromkeys((*self.legacy.texts, *self.graph.texts)):
            self.text(channel)
        self.calls()

    def add(
        self,
        kind: Kind,
        name: str,
        both: tuple[Any, Any],
        at: int,
        *,
        path: str = "",
        note: str = "",
        **found: Any,
    ) -> None:
        """Add a difference of two values with what else was `found`; `note` replaces the shape."""
        if not note and kind not in {"text", "reasoning"}:
            note = shape(*both)
        self.found.append(Finding(Difference(kind, name, path, *shown(*both), at, note), **found))

    # How they ended.

    def outcomes(self) -> None:
        """Compare how the runs ended."""
        runs = self.legacy.outcome, self.graph.outcome
        both = _fields(runs[0]), _fields(runs[1])
        ends = [f"{one['type']} {one.get('code', '')}".rstrip() for one in both]
        if all(isinstance(one, Refusal) for one in runs):
            self.values("refusal", str(both[0]["code"]), both, self.ended)
        elif ends[0] != ends[1]:
            broken = [_BROKEN.match(one.get("detail", "")) for one in both]
            name = next((found[1] for found in broken if found), "")
            kind: Kind = "grammar" if name else "outcome"
            self.add(kind, name, both, self.ended, note=" → ".join(ends))

    # What the client was told.

    def events(self, legacy: Sequence[Event], graph: Sequence[Event]) -> None:
        """Align events and compare those that belong together."""
        if [(one.name, one.rest) for one in legacy] == [(one.name, one.rest) for one in graph]:
            for event, its in zip(legacy, graph, strict=True):
                self.place(event, its)
            return
        ours, theirs = [*self.normal(legacy)], [*self.normal(graph)]
        missing, added = dict(enumerate(ours)), dict(enumerate(theirs))
        pairs = [*paired(ours, theirs)]
        last, other_last = last_before_closing(pairs, len(ours), len(theirs))
        for i, j in pairs:
            one, other = missing.pop(i), added.pop(j)
            both, at = (one.value, other.value), one.event.at
            if not self.values("event_changed", one.event.name, both, at, tail=i > last):
                self.place(one.event, other.event)
        for i, one in missing.items():
            same_key = next((j for j, other in added.items() if other.key == one.key), None)
            if same_key is not None:
                del added[same_key]
                self.add("event_moved", one.event.name, (one.value, one.value), one.event.at)
            else:
                both, at = (one.value, MISSING), one.event.at
                self.add("event_missing", one.event.name, both, at, tail=i > last)
        for j, one in added.items():
            both, at = (MISSING, one.value), one.event.at
            self.add("event_added", one.event.name, both, at, tail=j > other_last)

    def normal(self, events: Sequence[Event]) -> Iterator[Comparable]:
        """Yield what of events is compared."""
        for event in events:
            value = readable(event.rest)
            if b"ache" in event.rest:
                value = _uncached(value)
            value = self.ruled(event.name, value)
            if value is not MISSING:
                yield Comparable(event, f"{event.name} {self.folding.skeleton(value)}", value)

    def ruled(self, name: str, value: Any) -> Any:
        """Return what the rules leave of a value, `MISSING` for nothing."""
        if value is None or not self.rules:
            return value
        left = self.rules.value(name, value)
        return MISSING if left is None else left

    def place(self, legacy: Event, graph: Event) -> None:
        """Compare where two events stand among the texts that are equal."""
        for channel, text in self.legacy.texts.items():
            ours, theirs = (one.lengths.get(channel, 0) for one in (legacy, graph))
            if ours != theirs and self.graph.texts.get(channel) == text:
                both, at = (text[:ours], text[:theirs]), min(legacy.at, graph.at)
                self.add("event_moved", legacy.name, both, at, note=f"among {channel}")
                return

    def values(self, kind: Kind, name: str, both: tuple[Any, Any], at: int, **found: Any) -> bool:
        """Compare two values, and return whether they differ."""
        legacy, graph = both
        asked: RunCall | None = found.get("call")
        graph = self.folding.fold(legacy, graph, moments=asked is not None and asked.model)
        whole, theirs = encode(legacy), encode(graph)
        if whole == theirs:
            return False
        if max(len(whole), len(theirs)) > MOST_BYTES:
            self.left_out.append(f"places in values of more than {MOST_BYTES} bytes")
        differ = False
        normal = [readable(normalize("NFC", one.decode())) for one in (whole, theirs)]
        spelt = "NFC/NFD" if normal[0] == normal[1] else ""
        for path, before, after in changes(legacy, graph):
            if self.rules and self.rules.tolerates(name, path, before, after):
                continue
            differ, note = True, spelt or _spelling(before, after)
            self.add(kind, name, (before, after), at, path=path, note=note, **found)
        return differ

    def text(self, channel: str) -> None:
        """Compare a channel's text, joined, and when it came."""
        ours, theirs = (run.texts.get(channel, "") for run in (self.legacy, self.graph))
        if self.rules:
            ours, theirs = (self.rules.value(channel, one) or "" for one in (ours, theirs))
        if ours != theirs:
            theirs = self.folding.fold(ours, theirs)
        place = len(ours) if ours == theirs else common(ours, theirs)
        stamps = [run.stamps.get(channel, []) for run in (self.legacy, self.graph)]
        if ours != theirs:
            kind: Kind = "reasoning" if channel.startswith("reasoning") else "text"
            at = min(_when(one, place, self.ended) for one in stamps)
            both, note = (ours or MISSING, theirs or MISSING), _spelling(ours, theirs)
            tail = place in {len(ours), len(theirs)}
            self.add(kind, channel, both, at, note=note, tail=tail)
        if (held := _held_back(stamps[0], stamps[1], place)) is None:
            return
        if (self.legacy if held[0] > held[1] else self.graph).paced:
            both = round(held[0] / 1e6, 3), round(held[1] / 1e6, 3)
            self.add("held_back", channel, both, min(one[0][1] for one in stamps) + min(held))
        elif AT_ONCE not in self.left_out:
            self.left_out.append(AT_ONCE)

    @property
    def ended(self) -> int:
        """When the run that ended first did."""
        return min(self.legacy.ended, self.graph.ended)

    def annotations(self) -> None:
        """Compare what stood beside the texts, once."""
        ours, theirs = self.legacy.annotations, self.graph.annotations
        for name in dict.fromkeys((*ours, *theirs)):
            one, other = (self.ruled(name, _uncached(run.get(name, {}))) for run in (ours, theirs))
            if MISSING not in (one, other):
                self.values("annotation", name, (one, other), self.ended)

    # What was asked.

    def calls(self) -> None:
        """Compare calls by their effects, and the order of writes."""
        unstored = self.legacy.unstored | self.graph.unstored
        ours, theirs = (
            [one for one in run.calls if one.name not in {*self.tape.incomplete, *unstored}]
            for run in (self.legacy, self.graph)
        )
        self.left_out += _not_on_tape(self.tape, unstored, calls=bool(ours or theirs))
        matched: list[tuple[int, int]] = []
        for name in dict.fromkeys(one.name for one in (*ours, *theirs)):
            matched += self.effect(name, ours, theirs)
        writes = [i for _, i in sorted((j, i) for i, j in matched if ours[i].writes)]
        order = sorted(writes)
        blocks = SequenceMatcher(None, order, writes, autojunk=False).get_matching_blocks()
        kept = {i for block in blocks for i in order[block.a : block.a + block.size]}
        if moved := [i for i in order if i not in kept]:
            both = ([ours[i].name for i in order], [ours[i].name for i in writes])
            self.add("writes_moved", ours[moved[0]].name, both, ours[moved[0]].at)

    def effect(
        self, name: str, legacy: Sequence[RunCall], graph: Sequence[RunCall]
    ) -> list[tuple[int, int]]:
        """Compare the calls of one effect; return the places of those that are equal."""
        ours = {i: one.canonical for i, one in enumerate(legacy) if one.name == name}
        theirs = {j: one.canonical for j, one in enumerate(graph) if one.name == name}
        matched = take_equal(ours, theirs)
        left, right = (
            {place: self.ruled(name, readable(text)) for place, text in calls.items()}
            for calls in (ours, theirs)
        )
        ours, theirs = (
            {i: self.folding.skeleton(one) for i, one in values.items() if one is not MISSING}
            for values in (left, right)
        )
        # Equal but for generated values; then the rest in order; what is over is missing or added.
        for i, j in (*take_equal(ours, theirs), *zip([*ours], [*theirs], strict=False)):
            one, other = legacy[i], graph[j]
            found = {"call": other, "answered": one.entry != other.entry}
            if not self.values("call_changed", name, (left[i], right[j]), one.at, **found):
                matched.append((i, j))
        for i in [*ours][len(theirs) :]:
            one, tail = legacy[i], legacy[i].at >= self.graph.ended
            both = left[i], MISSING
            self.add("call_missing", name, both, one.at, tail=tail, call=one, answered=True)
        for j in [*theirs][len(ours) :]:
            other = graph[j]
            tail = other.entry is not None and other.at >= self.legacy.ended
            both = MISSING, right[j]
            self.add("call_added", name, both, other.at, tail=tail, call=other, answered=True)
        return matched


def _held_back(
    ours: Sequence[tuple[int, int]], theirs: Sequence[tuple[int, int]], length: int
) -> tuple[int, int] | None:
    """Return how late a text that both have came, where one was held back for much longer.

    In microseconds since the first text of either; of several places the worst.
    """
    if not (ours and theirs):
        return None
    began = min(ours[0][1], theirs[0][1])
    starts = {0, *(end for end, _ in ours), *(end for end, _ in theirs)}
    moments = [
        (_when(ours, start, 0) - began, _when(theirs, start, 0) - began)
        for start in starts
        if start < length
    ]
    late = max(moments, key=lambda both: abs(both[0] - both[1]), default=(0, 0))
    held = max(late) - min(late) > HELD_US and max(late) > HELD_TIMES * min(late)
    return late if held else None


def _when(stamps: Sequence[tuple[int, int]], place: int, otherwise: int) -> int:
    """Return when a channel's text reached beyond a place."""
    index = bisect_right(stamps, place, key=lambda one: one[0])
    return stamps[index][1] if index < len(stamps) else otherwise


def _fields(outcome: Outcome) -> dict[str, Any]:
    """Return what of an outcome is compared."""
    fields: dict[str, Any] = msgspec.to_builtins(outcome)
    return {key: one for key, one in fields.items() if key not in {"blame", "question"}}


def _uncached(value: Any) -> Any:
    """Return a value without what usage says of caches: it depends on who asked before."""
    match value:
        case dict():
            return {
                key: _with_cached(key, value) if key in _APART else _uncached(one)
                for key, one in value.items()
                if not (_CACHE.fullmatch(key) and _counts(one))
            }
        case list():
            return [_uncached(one) for one in value]
        case _:
            return value


def _with_cached(key: str, counts: dict[str, Any]) -> Any:
    """Return a count of tokens with those that are counted apart."""
    added = [counts.get(one) for one in (key, *_APART[key])]
    numbers = [one for one in added if isinstance(one, int)]
    return sum(numbers) if isinstance(added[0], int) else added[0]


def _counts(value: Any) -> bool:
    """Whether a value is a number, or holds counts of tokens."""
    tokens = isinstance(value, dict | list) and b"oken" in encode(value)
    return tokens or isinstance(value, int | float | None)


def _spelling(legacy: Any, graph: Any) -> str:
    """Return what cannot be seen of the difference of two texts."""
    texts = isinstance(legacy, str) and isinstance(graph, str)
    return "NFC/NFD" if texts and normalize("NFC", legacy) == normalize("NFC", graph) else ""


def _ids(run: Reading) -> frozenset[str]:
    """Return the generated ids in all that a run said and asked."""
    texts = (*run.texts.values(), *(one.canonical for one in run.calls))
    events = (one.rest.decode("utf-8", "replace") for one in (*run.events, *run.streamed))
    return frozenset().union(*map(generated, (*texts, *events)))
