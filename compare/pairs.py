"""From lines to rows: which two runs of an exchange are compared, and what its client had."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, cast

import msgspec

from compare.differences import Comparison, Pair
from compare.report.streams import Exemplar, exemplar
from compare.rows import End, ExchangeRow, PairRow, State
from cutover.errors import Failed, Left
from cutover.flow import Flow
from cutover.records import DAMAGED, RunRecord, TapeRecord
from cutover.wire import ServiceFraming

WhyNot = Literal[
    "unknown_flow", "lines_missing", "client_left", "server_stopped", "not_played", "damaged"
]
"""Why an exchange was not compared.

`lines_missing`: those of the runs that served were not all found; `not_played`: no shadow and no
replay of the other stack was.
"""
EXEMPLARS: Final = 3
"""Pairs that are kept of a cause."""


Compare = Callable[[Pair, Flow], Comparison]


class Rows(msgspec.Struct):
    """The rows of some exchanges, and by cause the first pairs that show it."""

    pairs: list[PairRow] = []
    exchanges: list[ExchangeRow] = []
    exemplars: dict[str, list[Exemplar]] = {}

    def show(self, row: PairRow, pair: Pair, flow: Flow) -> None:
        """Keep a pair for the causes that have few yet."""
        for cause in {one.cause(row.flow) for one in row.causes}:
            kept = self.exemplars.setdefault(cause, [])
            if len(kept) < EXEMPLARS:
                kept.append(exemplar(pair, row, flow))

    def add(self, other: Rows) -> None:
        """Add those of other exchanges."""
        self.pairs += other.pairs
        self.exchanges += other.exchanges
        for cause, shown in other.exemplars.items():
            kept = [*self.exemplars.get(cause, ()), *shown]
            self.exemplars[cause] = sorted(kept, key=lambda one: one.at)[:EXEMPLARS]


def rows_of(
    lines: Iterable[RunRecord], flows: Mapping[str, Flow], compare: Compare, *, aa: bool = False
) -> Rows:
    """Return the rows of the exchanges of lines, which may come in any order and are held.

    `aa`: of legacy's pairs with itself, too.
    """
    rows, exchanges = Rows(), dict[str, list[RunRecord]]()
    for line in lines:
        exchanges.setdefault(line.exchange, []).append(line)
    for runs in sorted(exchanges.values(), key=lambda runs: runs[0].at):
        flow, served = flows.get(runs[0].flow), served_runs(runs)
        if flow is None:
            rows.pairs.append(_row(runs[0], "not_compared", why_not="unknown_flow"))
            continue
        if served:
            rows.exchanges.append(exchange_row(served, flow))
        row = pair_row(pair := paired(runs), runs[0], flow, compare)
        rows.pairs.append(row)
        if isinstance(pair, Pair):
            rows.show(row, pair, flow)
        if aa and isinstance(pair := paired(runs, baseline=True), Pair):
            again = pair_row(pair, runs[0], flow, compare)
            rows.pairs.append(msgspec.structs.replace(again, baseline=True))
    return rows


def served_runs(runs: Iterable[RunRecord]) -> Sequence[RunRecord]:
    """Return the runs that served, in order; () where not all their lines are there."""
    those = [one for one in runs if one.role in {"serving", "fallback"}]
    those.sort(key=lambda one: (one.role == "fallback", one.stack == one.served))
    whole = those and those[0].role == "serving" and those[-1].stack == those[-1].served
    return those if whole else ()


def paired(runs: Sequence[RunRecord], *, baseline: bool = False) -> Pair | WhyNot:
    """Return the pair of an exchange, or why there is none; a replay counts before a shadow.

    A fork counts before both, also one of the stack that served.
    `baseline`: legacy's run with one of legacy, too.
    """
    served = served_runs(runs)
    if not served:
        return "lines_missing"
    last = served[-1]
    if last.outcome == Left():
        return "client_left"
    if getattr(last.outcome, "code", "") == "server_stopped":
        return "server_stopped"
    if not baseline and (fork := next((one for one in runs if one.role == "fork"), None)):
        return Pair(last, fork, fork.tape or TapeRecord())
    played = [one for one in runs if one.role in {"shadow", "replay"}]
    wanted = last.stack if baseline else None
    others = [one for one in played if (one.stack == wanted if wanted else one.stack != last.stack)]
    if not others or (baseline and last.stack != "legacy"):
        return "not_played"
    best = max(others, key=lambda one: one.role == "replay")
    return Pair(last, best, served[0].tape or TapeRecord())


def pair_row(pair: Pair | WhyNot, first: RunRecord, flow: Flow, compare: Compare) -> PairRow:
    """Return the row of an exchange, of which `first` is a line: compared, or why not."""
    if isinstance(pair, str):
        return _row(first, "not_compared", why_not=pair)
    if (found := compare(pair, flow)).damage:
        return _row(first, "not_compared", why_not="damaged")
    asked = bool(pair.legacy.plays), bool(pair.graph.plays)
    codes = (getattr(one.outcome, "code", "") for one in (pair.served, pair.played))
    reached = "service_unavailable" not in codes  # else it could not have asked
    silent = asked[0] != asked[1] and reached and isinstance(flow.framer(), ServiceFraming)
    return _row(
        pair.served,
        "equal" if found.equal else "different",
        differences=found.differences,
        left_out=found.left_out,
        folded=found.folded,
        pieces=found.pieces,
        silent=silent,
        fork=pair.played.versions.get("fork", ""),
    )


def _row(run: RunRecord, state: State, **more: Any) -> PairRow:
    return PairRow(exchange=run.exchange, flow=run.flow, at=run.at, state=state, **more)


def exchange_rows(
    lines: Iterable[RunRecord], flows: Mapping[str, Flow], drawn_by: Mapping[str, str] | None = None
) -> Iterator[ExchangeRow]:
    """Yield what clients were served, of exchanges whose serving runs all have their lines.

    A unit is what was drawn by the route key that `drawn_by` names for its flow, or by the first.
    """
    waiting: dict[str, list[RunRecord]] = {}
    for line in lines:
        if line.role in {"serving", "fallback"} and line.flow in flows:
            runs = waiting.setdefault(line.exchange, [])
            runs.append(line)
            if served := served_runs(runs):
                del waiting[line.exchange]
                yield exchange_row(served, flows[line.flow], (drawn_by or {}).get(line.flow, ""))


def exchange_row(served: Sequence[RunRecord], flow: Flow, drawn_by: str = "") -> ExchangeRow:
    """Return what an exchange was for its client, of the runs that served it, in order."""
    first, last = served[0], served[-1]
    failed = first.outcome if isinstance(first.outcome, Failed) else Failed("refused_late")
    kind = drawn_by or next(iter(flow.key_names), "")
    unit = _unit(first, flow, kind)
    return ExchangeRow(
        exchange=last.exchange,
        flow=last.flow,
        at=last.at,
        assigned=last.assigned,
        served=last.served,
        why=last.why,
        end=cast("End", last.outcome.__struct_config__.tag),
        code=failed.code if first is not last else getattr(last.outcome, "code", ""),
        failed_behind=first.stack if first is not last else "",
        first_text_ms=None if last.first_text_us is None else last.first_text_us / 1e3,
        ended_ms=None if last.ended_us is None else last.ended_us / 1e3,
        unit=unit,
        unit_kind=kind if unit else "",
        config=first.versions.get("config", ""),
        code_version=first.versions.get("code", ""),
    )


def _unit(line: RunRecord, flow: Flow, key: str) -> str:
    """Return the value of a route key, "" where it is not known."""
    try:
        body = flow.stored(
            line.path, msgspec.json.decode(line.request), msgspec.json.decode(line.options)
        ).body
        return flow.key(body, key) or ""
    except DAMAGED:  # a request that cannot be read
        return ""
