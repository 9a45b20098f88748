"""Matching: which calls of two runs stand for each other, in whatever order they were made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import pairwise

from compare.findings import (
    CallChanged,
    CallExtra,
    CallSkipped,
    CallUnplayed,
    EffectFinding,
    SiteChanged,
    ToolAdded,
    ToolArguments,
    ToolDropped,
    ToolOrder,
    WriteChanged,
    WriteOrder,
    shortened,
    signature_of,
)
from compare.input.calls import Call
from compare.input.pairing import Pair
from compare.layers.model_calls import MODEL, Prompts
from compare.layers.values import changes
from contract.operations import TOOLS_RUN, WRITES


@dataclass(frozen=True, slots=True)
class Matched:
    """Indices into both runs' lists of calls: those that match, and those that do not."""

    pairs: tuple[tuple[int, int], ...]
    skipped: tuple[int, ...]
    extra: tuple[int, ...]


def match_calls(legacy: list[Call], graph: list[Call]) -> Matched:
    """Match calls: by the entry that answered both, then by what was asked, then by place.

    A call answered by the nearest entry comes after the ones that asked exactly for it. What is
    asked under another site is matched last, if it is the same question.
    """
    matching = _Matching(legacy, graph)
    matching.pass_by(lambda call: call.entry, lambda call: call.how in {"live", "exact"})
    matching.pass_by(lambda call: call.entry, lambda call: call.entry is not None)
    matching.pass_by(lambda call: (call.port, call.op, call.site, call.args), _any)
    matching.pass_by(lambda call: (call.port, call.op, call.site), _any)
    matching.pass_by(lambda call: (call.port, call.op, call.args), _any)
    return Matched(tuple(sorted(matching.pairs)), tuple(matching.legacy), tuple(matching.graph))


def _any(_: Call) -> bool:
    return True


class _Matching:
    def __init__(self, legacy: list[Call], graph: list[Call]) -> None:
        self._calls = legacy, graph
        self.legacy = list(range(len(legacy)))
        self.graph = list(range(len(graph)))
        self.pairs: list[tuple[int, int]] = []

    def pass_by(self, key: Callable[[Call], Hashable], fit: Callable[[Call], bool]) -> None:
        """Match what is left and equal in key, in order; `fit` says which candidate calls may."""
        if not self.legacy or not self.graph:
            return
        old, new = self._calls
        waiting: dict[Hashable, list[int]] = defaultdict(list)
        for i in self.legacy:
            waiting[key(old[i])].append(i)
        waiting.pop(None, None)
        taken: set[int] = set()
        left: list[int] = []
        for j in self.graph:
            found = waiting.get(key(new[j])) if fit(new[j]) else None
            if found:
                taken.add(found[0])
                self.pairs.append((found.pop(0), j))
            else:
                left.append(j)
        self.graph = left
        self.legacy = [i for i in self.legacy if i not in taken]


def inverted(pairs: list[tuple[int, int]]) -> bool:
    """Whether pairs, ordered by the first run, stand in another order in the second."""
    return any(after[1] < before[1] for before, after in pairwise(pairs))


TOOL = TOOLS_RUN.label


def effect_findings(pair: Pair, legacy: list[Call], graph: list[Call]) -> list[EffectFinding]:
    """Compare the calls of both runs; tools first, for prompts of later rounds follow from them."""
    matched = match_calls(legacy, graph)
    found: list[EffectFinding] = _unmatched(pair, legacy, graph, matched)
    twins = [(legacy[i], graph[j]) for i, j in matched.pairs]
    for old, new in twins:
        found += _asked(pair, old, new)
    found += _orders(pair, legacy, graph, matched)
    found += Prompts(pair, _first_tool(found)).findings(twins)
    return found + _unplayed(pair, legacy, graph)


def _asked(pair: Pair, old: Call, new: Call) -> list[EffectFinding]:
    """Compare two calls that are no model calls."""
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
    return found + [
        kind(path=f"{old.place}{path}", exchange=pair.exchange, legacy=a, graph=b)
        for path, a, b in changes(old.args, new.args)
    ]


def _tool_arguments(pair: Pair, old: Call, new: Call) -> ToolArguments:
    tool = tool_name(old)
    before, after = old.arguments, new.arguments
    if (before.get("id"), before.get("name")) != (after.get("id"), after.get("name")):
        legacy, graph, path = _text(old.args), _text(new.args), ""
    else:
        legacy, graph = str(before.get("arguments", "")), str(after.get("arguments", ""))
        path = _narrowed(legacy, graph)
    return ToolArguments(
        path=f"{old.place}.{tool}{path}",
        exchange=pair.exchange,
        legacy=shortened(legacy),
        graph=shortened(graph),
        tool=tool,
    )


def _narrowed(legacy: str, graph: str) -> str:
    """Name the one argument that differs, if it is one."""
    paths = {path for path, _, _ in changes(legacy.encode(), graph.encode())}
    return paths.pop() if len(paths) == 1 else ""


def _unmatched(
    pair: Pair, legacy: list[Call], graph: list[Call], matched: Matched
) -> list[EffectFinding]:
    found: list[EffectFinding] = [_skipped(pair, legacy[i]) for i in matched.skipped]
    return found + [_extra(pair, graph[j]) for j in matched.extra]


def _skipped(pair: Pair, call: Call) -> EffectFinding:
    said = shortened(_text(call.args))
    if call.label == TOOL:
        tool = tool_name(call)
        path = f"{call.place}.{tool}"
        return ToolDropped(path=path, exchange=pair.exchange, legacy=said, tool=tool)
    return CallSkipped(path=call.place, exchange=pair.exchange, legacy=said)


def _extra(pair: Pair, call: Call) -> EffectFinding:
    said = shortened(_text(call.args))
    missed = call.how == "missed"
    if call.label == TOOL:
        tool = tool_name(call)
        path = f"{call.place}.{tool}"
        return ToolAdded(path=path, exchange=pair.exchange, graph=said, tool=tool, missed=missed)
    return CallExtra(path=call.place, exchange=pair.exchange, graph=said, missed=missed)


def _orders(
    pair: Pair, legacy: list[Call], graph: list[Call], matched: Matched
) -> list[EffectFinding]:
    """Compare the order of tool calls, and of writes among themselves and around the tools."""
    writes = [pair_ for pair_ in matched.pairs if legacy[pair_[0]].label in WRITES]
    tools = [pair_ for pair_ in writes if legacy[pair_[0]].label == TOOL]
    others = [pair_ for pair_ in writes if legacy[pair_[0]].label != TOOL]
    found: list[EffectFinding] = []
    if inverted(tools):
        found.append(_order(ToolOrder, pair, tools, (legacy, graph)))
    if inverted(others) or (inverted(writes) and not inverted(tools)):
        found.append(_order(WriteOrder, pair, writes, (legacy, graph)))
    return found


def _order(
    kind: type[ToolOrder | WriteOrder],
    pair: Pair,
    pairs: list[tuple[int, int]],
    calls: tuple[list[Call], list[Call]],
) -> EffectFinding:
    old = [calls[0][i] for i, _ in pairs]
    new = [calls[1][j] for j in sorted(j for _, j in pairs)]
    legacy, graph = " → ".join(map(_short, old)), " → ".join(map(_short, new))
    return kind(path="order", exchange=pair.exchange, legacy=legacy, graph=graph)


def _short(call: Call) -> str:
    if call.label == TOOL:
        return f"{tool_name(call)}({call.arguments.get('id', '')})"
    return f"{call.label}@{call.site}"


def _first_tool(found: list[EffectFinding]) -> str | None:
    kinds = ToolArguments, ToolDropped, ToolAdded, ToolOrder
    return next((signature_of(f) for f in found if isinstance(f, kinds)), None)


def _unplayed(pair: Pair, legacy: list[Call], graph: list[Call]) -> list[EffectFinding]:
    """Find recorded calls neither run asked for."""
    played = {call.entry for call in (*legacy, *graph)}
    return [
        CallUnplayed(
            path=f"{entry.port}.{entry.op}@{entry.site}",
            exchange=pair.exchange,
            legacy=shortened(_text(bytes(entry.args))),
        )
        for entry in pair.tape
        if entry.seq not in played
    ]


def tool_name(call: Call) -> str:
    """Name of the tool a call runs."""
    return str(call.arguments.get("name", "?"))


def _text(args: bytes) -> str:
    return args.decode("utf-8", "replace")
