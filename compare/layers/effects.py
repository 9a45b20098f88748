"""Effects: what both runs asked of the world: prompts, parameters, tools, writes, their order."""

from __future__ import annotations

from collections.abc import Mapping

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
from compare.input.pairing import Pair
from compare.layers.groups import grouped
from compare.layers.model_calls import MODEL, model_call_findings
from compare.layers.values import changes, unset_text
from contract.calls import CallMatch, EffectCall, reordered, same_json
from contract.equality import EventStream, moved_past_frame, unplayed
from contract.grammar import Grammar
from contract.operations import (
    CLOCK_NOW,
    IDS_NEW,
    LASTING,
    LOCK_RELEASE,
    TOOLS_RUN,
    WRITES,
)

TOOL = TOOLS_RUN.label
RELEASE_ORDER = "order.release"
_LAST = frozenset({CLOCK_NOW.label, IDS_NEW.label})
"""Calls that ask for nothing a lock protects."""


def effect_findings(pair: Pair, match: CallMatch) -> list[EffectFinding]:
    """Compare the calls of both runs; tools first, for prompts of later rounds follow from them."""
    twins = match.twins
    found = [_one_sided(pair, match.legacy[i], skipped=True) for i in match.skipped]
    found += [_one_sided(pair, match.graph[j], skipped=False) for j in match.extra]
    for old, new in twins:
        if old.args != new.args or old.site != new.site:
            found += _changed(pair, old, new)
    found += _orders(pair, match) or _released_early(pair, match)
    kinds = ToolArguments, ToolDropped, ToolAdded, ToolOrder
    tool = next((signature_of(finding) for finding in found if isinstance(finding, kinds)), None)
    found += model_call_findings(pair, twins, tool)
    return found + [
        CallUnplayed(
            path=f"{entry.port}.{entry.op}@{entry.site}",
            exchange=pair.exchange,
            legacy=_text(bytes(entry.args)),
        )
        for entry in unplayed(pair, match)
    ]


def _changed(pair: Pair, old: EffectCall, new: EffectCall) -> list[EffectFinding]:
    """Compare two calls, the arguments of model calls apart."""
    found: list[EffectFinding] = []
    if old.site != new.site:
        path = f"{old.label}@{old.site}→{new.site}"
        found.append(
            SiteChanged(path=path, exchange=pair.exchange, legacy=old.site, graph=new.site)
        )
    if old.label == MODEL or same_json(old.args, new.args):
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


_ORDERS: Mapping[str, type[ToolOrder | WriteOrder | ReadOrder]] = {
    "tools": ToolOrder,
    "writes": WriteOrder,
    "lasting": WriteOrder,
    "reads": ReadOrder,
}


def _orders(pair: Pair, match: CallMatch) -> list[EffectFinding]:
    """Name the orders in which calls were made that stand for each other."""
    legacy, graph, *_ = match
    found: list[EffectFinding] = []
    for change in reordered(match):
        path = RELEASE_ORDER if change.what == "lasting" else "order"
        old = ARROW.join(_short(legacy[i]) for i, _ in change.twins)
        new = ARROW.join(_short(graph[j]) for j in sorted(j for _, j in change.twins))
        found.append(
            _ORDERS[change.what](
                path=path if change.read is None else f"{path}.{_short(change.read)}",
                exchange=pair.exchange,
                legacy=old,
                graph=new,
            )
        )
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
    """Name the effects that stand on another side of a frame; at most one finding."""
    past = moved_past_frame(pair, match, streams, grammar)
    if past is None:
        return []
    before = [_short(call) for call, _ in past.moved if call.frames <= past.at]
    behind = [_short(call) for call, _ in past.moved if call.frames > past.at]
    return [
        FrameOrder(
            path=f"order.{past.name}.{_short(past.moved[0][0])}",
            exchange=pair.exchange,
            legacy=ARROW.join([*before, past.name, *behind]),
            graph=ARROW.join([*behind, past.name, *before]),
        )
    ]


def _short(call: EffectCall) -> str:
    if call.label == TOOL:
        return f"{tool_name(call)}({call.arguments.get('id', '')})"
    return f"{call.label}@{call.site}"


def tool_name(call: EffectCall) -> str:
    """Return the name of the tool a call runs."""
    return str(call.arguments.get("name", "?"))


def _text(args: bytes) -> str:
    return shortened(args.decode("utf-8", "replace"))
