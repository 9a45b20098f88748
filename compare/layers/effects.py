"""Effects: what both runs asked of the world: prompts, parameters, tools, writes, their order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import NamedTuple

from compare.findings import (
    ARROW,
    CallChanged,
    CallExtra,
    CallSkipped,
    CallUnplayed,
    EffectFinding,
    FrameOrder,
    ReadOrder,
    SiteChanged,
    ToolAdded,
    ToolArguments,
    ToolDropped,
    ToolOrder,
    WriteChanged,
    WriteOrder,
    general_path,
    shortened,
    signature_of,
)
from compare.input.calls import EffectCall
from compare.input.pairing import Pair
from compare.layers.groups import grouped
from compare.layers.model_calls import MODEL, model_call_findings
from compare.layers.values import changes, unset_text
from compare.streams.events import EventStream
from contract.grammar import Grammar
from contract.operations import (
    CLOCK_NOW,
    IDS_NEW,
    LASTING,
    LOCK_RELEASE,
    STORE_READS,
    TOOLS_RUN,
    WRITES,
)

TOOL = TOOLS_RUN.label
RELEASE_ORDER = "order.release"
_LAST = frozenset({CLOCK_NOW.label, IDS_NEW.label})
"""Calls that ask for nothing a lock protects."""
Twins = list[tuple[int, int]]
"""Indices of calls that stand for each other, in the order of the first run."""


class CallMatch(NamedTuple):
    """The calls of two runs, the indices of those `matched`, and of what is left on each side."""

    legacy: Sequence[EffectCall]
    graph: Sequence[EffectCall]
    matched: Twins
    skipped: Sequence[int]
    extra: Sequence[int]

    @property
    def twins(self) -> list[tuple[EffectCall, EffectCall]]:
        """The calls that stand for each other."""
        return [(self.legacy[i], self.graph[j]) for i, j in self.matched]

    @property
    def behind_other_frames(self) -> list[tuple[EffectCall, EffectCall]]:
        """The lasting ones that the runs made behind other numbers of frames, where known."""
        return [
            (old, new)
            for old, new in self.twins
            if old.frames != new.frames
            and old.label in LASTING
            and min(old.frames, new.frames) >= 0
        ]


def effect_findings(pair: Pair, match: CallMatch) -> list[EffectFinding]:
    """Compare the calls of both runs; tools first, for prompts of later rounds follow from them."""
    twins = match.twins
    found = [_one_sided(pair, match.legacy[i], skipped=True) for i in match.skipped]
    found += [_one_sided(pair, match.graph[j], skipped=False) for j in match.extra]
    for old, new in twins:
        found += _changed(pair, old, new)
    found += _orders(pair, match) or _released_early(pair, match)
    kinds = ToolArguments, ToolDropped, ToolAdded, ToolOrder
    tool = next((signature_of(finding) for finding in found if isinstance(finding, kinds)), None)
    found += model_call_findings(pair, twins, tool)
    played = {call.entry for call in (*match.legacy, *match.graph)}
    return found + [
        CallUnplayed(
            path=f"{entry.port}.{entry.op}@{entry.site}",
            exchange=pair.exchange,
            legacy=_text(bytes(entry.args)),
        )
        for entry in pair.tape
        if entry.seq not in played
    ]


def match_calls(legacy: Sequence[EffectCall], graph: Sequence[EffectCall]) -> CallMatch:
    """Match calls: by the entry that answered both, then by what was asked, then by place.

    A call answered by the nearest entry comes after the ones that asked exactly for it. What is
    asked under another site is matched last, if it is the same question.
    """
    matched: Twins = []
    left, right = list(range(len(legacy))), list(range(len(graph)))

    def by(
        key: Callable[[EffectCall], Hashable], fits: Callable[[EffectCall], bool] = lambda _: True
    ) -> None:
        """Match what is left and equal in key, in order; `fits` says which candidate calls may."""
        if not (left and right):
            return
        waiting: dict[Hashable, list[int]] = defaultdict(list)
        for i in left:
            waiting[key(legacy[i])].append(i)
        waiting.pop(None, None)
        for j in list(right):
            found = waiting.get(key(graph[j])) if fits(graph[j]) else None
            if found:
                i = found.pop(0)
                left.remove(i)
                right.remove(j)
                matched.append((i, j))

    by(lambda call: call.entry, lambda call: call.how in {"live", "exact"})
    by(lambda call: call.entry)
    by(lambda call: (call.label, call.site, call.args))
    by(lambda call: (call.label, call.site))
    by(lambda call: (call.label, call.args))
    return CallMatch(legacy, graph, sorted(matched), left, right)


def _changed(pair: Pair, old: EffectCall, new: EffectCall) -> list[EffectFinding]:
    """Compare two calls, the arguments of model calls apart."""
    found: list[EffectFinding] = []
    if old.site != new.site:
        path = f"{old.label}@{old.site}→{new.site}"
        found.append(
            SiteChanged(path=path, exchange=pair.exchange, legacy=old.site, graph=new.site)
        )
    if old.args == new.args or old.label == MODEL:
        return found
    if old.label == TOOL:
        return [*found, _tool_arguments(pair, old, new)]
    kind = WriteChanged if old.label in WRITES else CallChanged
    made: list[EffectFinding] = [
        kind(
            path=f"{old.place}{path}",
            exchange=pair.exchange,
            legacy=unset_text(old.label, path) if a is None else a,
            graph=unset_text(old.label, path) if b is None else b,
        )
        for path, a, b in changes(old.args, new.args)
    ]
    return found + grouped(made, old.place)


def _tool_arguments(pair: Pair, old: EffectCall, new: EffectCall) -> ToolArguments:
    tool = tool_name(old)
    before, after = old.arguments, new.arguments
    if (before.get("id"), before.get("name")) != (after.get("id"), after.get("name")):
        legacy, graph, path = _text(old.args), _text(new.args), ""
    else:
        legacy, graph = str(before.get("arguments", "")), str(after.get("arguments", ""))
        paths = {path for path, _, _ in changes(legacy.encode(), graph.encode())}
        path = paths.pop() if len(paths) == 1 else ""
    return ToolArguments(
        path=old.place,
        detail=f"{tool}{general_path(path)}",
        exchange=pair.exchange,
        legacy=shortened(legacy),
        graph=shortened(graph),
        tool=tool,
    )


def _one_sided(pair: Pair, call: EffectCall, *, skipped: bool) -> EffectFinding:
    """Name a call that only one run made: `skipped` by graph, or extra."""
    shown, missed, exchange = _text(call.args), call.how == "missed", pair.exchange
    if call.label == TOOL:
        tool = tool_name(call)
        place = call.place
        if skipped:
            return ToolDropped(path=place, exchange=exchange, legacy=shown, tool=tool, detail=tool)
        return ToolAdded(
            path=place, exchange=exchange, graph=shown, tool=tool, missed=missed, detail=tool
        )
    if skipped:
        return CallSkipped(path=call.place, exchange=exchange, legacy=shown)
    return CallExtra(path=call.place, exchange=exchange, graph=shown, missed=missed)


def _orders(pair: Pair, match: CallMatch) -> list[EffectFinding]:
    """Compare the order of tool calls, and of what lasts among itself and around its reads."""
    legacy, graph, matched, *_ = match
    if not _inverted(matched):  # nor is any part of them
        return []
    writes = [twins for twins in matched if legacy[twins[0]].label in WRITES]
    tools = [twins for twins in writes if legacy[twins[0]].label == TOOL]
    others = [twins for twins in writes if legacy[twins[0]].label != TOOL]

    def order(
        kind: type[ToolOrder | WriteOrder | ReadOrder], twins: Twins, path: str = "order"
    ) -> EffectFinding:
        old = ARROW.join(_short(legacy[i]) for i, _ in twins)
        new = ARROW.join(_short(graph[j]) for j in sorted(j for _, j in twins))
        return kind(path=path, exchange=pair.exchange, legacy=old, graph=new)

    found: list[EffectFinding] = []
    if _inverted(tools):
        found.append(order(ToolOrder, tools))
    if _inverted(others) or (_inverted(writes) and not _inverted(tools)):
        found.append(order(WriteOrder, writes))
    lasting = [twins for twins in matched if legacy[twins[0]].label in LASTING]
    if not found and _inverted(lasting):
        found.append(order(WriteOrder, lasting, RELEASE_ORDER))
    for read in matched if not found else ():
        call = legacy[read[0]]
        if call.label not in STORE_READS:
            continue
        for write in lasting:
            other_side = (read[0] < write[0]) != (read[1] < write[1])
            if other_side and legacy[write[0]].port == call.port:
                return [order(ReadOrder, sorted([read, write]), f"order.{_short(call)}")]
    return found


def _released_early(pair: Pair, match: CallMatch) -> list[EffectFinding]:
    """Find a lock that legacy held to its end, and graph released before calls legacy still made.

    What a run does not release is released behind it: this is another order. At most one finding.
    """
    legacy, graph = match.legacy, match.graph
    made = dict(match.matched)
    for j in match.extra:
        call = graph[j]
        if call.label != LOCK_RELEASE.label:
            continue
        if any((old.label, old.args) == (call.label, call.args) for old in legacy):
            continue
        behind = [i for i, old in enumerate(legacy) if made.get(i, len(graph)) > j]
        if any(legacy[i].label not in _LAST for i in behind):
            before = [_short(one) for one in legacy if one.label in LASTING]
            after = [_short(one) for one in graph if one.label in LASTING]
            return [
                WriteOrder(
                    path=RELEASE_ORDER,
                    exchange=pair.exchange,
                    legacy=ARROW.join([*before, "its end"]),
                    graph=ARROW.join(after),
                )
            ]
    return []


def frame_order_findings(
    pair: Pair, match: CallMatch, streams: tuple[EventStream, EventStream], grammar: Grammar
) -> list[EffectFinding]:
    """Compare on which side of the frames that end a stream, or show a question, effects stand.

    A reader of such a frame relies on what was done before it. At most one finding; none where no
    call is `behind_other_frames`.
    """
    twins = match.behind_other_frames
    runs = pair.control, pair.candidate
    if not twins or runs[0].outcome != runs[1].outcome:
        return []
    if any(len(run.frames) != len(read.events) for run, read in zip(runs, streams, strict=True)):
        return []
    for name in sorted(grammar.questions | grammar.terminal):
        old_at, new_at = (
            next((k for k, event in enumerate(stream.events) if event.name == name), None)
            for stream in streams
        )
        if old_at is None or new_at is None:
            continue
        moved = [(a, b) for a, b in twins if (a.frames > old_at) != (b.frames > new_at)]
        if moved:
            before = [_short(call) for call, _ in moved if call.frames <= old_at]
            behind = [_short(call) for call, _ in moved if call.frames > old_at]
            return [
                FrameOrder(
                    path=f"order.{name}.{_short(moved[0][0])}",
                    exchange=pair.exchange,
                    legacy=ARROW.join([*before, name, *behind]),
                    graph=ARROW.join([*behind, name, *before]),
                )
            ]
    return []


def _inverted(twins: Twins) -> bool:
    return any(after[1] < before[1] for before, after in pairwise(twins))


def _short(call: EffectCall) -> str:
    if call.label == TOOL:
        return f"{tool_name(call)}({call.arguments.get('id', '')})"
    return f"{call.label}@{call.site}"


def tool_name(call: EffectCall) -> str:
    """Return the name of the tool a call runs."""
    return str(call.arguments.get("name", "?"))


def _text(args: bytes) -> str:
    return shortened(args.decode("utf-8", "replace"))
