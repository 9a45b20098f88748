"""From lines to rows: which two runs of an exchange are compared, and what its client had."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, Protocol, assert_never

import msgspec

from compare.difference import SLIGHT, Difference
from compare.pair import Pair
from compare.rows import End, ExchangeRow, PairRow
from cutover.errors import Completed, CutoverError, Failed, Left, Outcome, Pause, Refusal
from cutover.flow import Flow
from cutover.records import RunRecord, TapeRecord
from cutover.wire import ServiceFraming

WhyNot = Literal[
    "unknown_flow", "lines_missing", "client_left", "server_stopped", "not_played", "damaged"
]
"""Why an exchange was not compared.

`lines_missing`: those of the runs that served were not all found; `not_played`: no shadow and no
replay of the other stack was.
"""
LOST: Final[frozenset[str]] = frozenset({"lines_missing", "damaged"})
"""Reasons for which something that should be there is not."""
DAMAGED: Final = (msgspec.MsgspecError, CutoverError, LookupError, ValueError, RecursionError)
"""What the parts of a line raise that do not fit its flow, or each other."""
_USER, _CONVERSATION = ("user",), ("conversation", "session", "thread", "chat")


class Compared(Protocol):
    """What came of comparing a pair."""

    @property
    def differences(self) -> tuple[Difference, ...]:
        """In order of tape time."""

    @property
    def left_out(self) -> Iterable[str]:
        """What was not compared."""

    @property
    def folded(self) -> int:
        """Values equal but for a date or a generated id."""

    @property
    def pieces(self) -> tuple[int, int]:
        """Frames of text, legacy's and graph's."""

    @property
    def damage(self) -> str:
        """What could not be read: then nothing was compared."""


Compare = Callable[[Pair, Flow], Compared]


def gathered(
    lines: Iterable[RunRecord], counts: Mapping[str, int]
) -> Iterator[Sequence[RunRecord]]:
    """Yield the runs of each exchange once all its lines have come, of which there are `counts`.

    What is held are the exchanges that wait for a line; those whose lines do not come are last.
    """
    waiting: dict[str, list[RunRecord]] = {}
    for line in lines:
        runs = waiting.setdefault(line.exchange, [])
        runs.append(line)
        if len(runs) == counts.get(line.exchange):
            yield waiting.pop(line.exchange)
    yield from waiting.values()


def served_runs(runs: Iterable[RunRecord]) -> Sequence[RunRecord]:
    """Return the runs that served, in order; () where not all their lines are there."""
    those = [one for one in runs if one.role in {"serving", "fallback"}]
    those.sort(key=lambda one: (one.role == "fallback", one.stack == one.served))
    whole = those and those[0].role == "serving" and those[-1].stack == those[-1].served
    return those if whole else ()


def paired(runs: Sequence[RunRecord], *, baseline: bool = False) -> Pair | WhyNot:
    """Return the pair of an exchange, or why there is none; a replay counts before a shadow.

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
    played = [one for one in runs if one.role in {"shadow", "replay"}]
    wanted = last.stack if baseline else None
    fits = [one for one in played if (one.stack == wanted if wanted else one.stack != last.stack)]
    if not fits or (baseline and last.stack != "legacy"):
        return "not_played"
    best = max(fits, key=lambda one: one.role == "replay")
    return Pair(last, best, served[0].tape or TapeRecord())


def pair_row(
    runs: Sequence[RunRecord],
    flows: Mapping[str, Flow],
    compare: Compare,
    *,
    baseline: bool = False,
) -> PairRow:
    """Return the row of an exchange: compared, or why not."""
    first = runs[0]
    flow = flows.get(first.flow)
    pair = "unknown_flow" if flow is None else paired(runs, baseline=baseline)
    if flow is None or isinstance(pair, str):
        return _row(first, "not_compared", why_not=pair, baseline=baseline)
    try:
        found = compare(pair, flow)
    except DAMAGED:
        found = None
    if found is None or found.damage:
        return _row(first, "not_compared", why_not="damaged", baseline=baseline)
    serious = any(one.kind not in SLIGHT for one in found.differences)
    asked = bool(pair.legacy.plays), bool(pair.graph.plays)
    silent = asked[0] != asked[1] and isinstance(flow.framer(), ServiceFraming)
    return _row(
        msgspec.structs.replace(pair.played, at=first.at),
        "different" if serious else "equal",
        differences=found.differences,
        left_out=tuple(found.left_out),
        folded=found.folded,
        pieces=found.pieces,
        silent=silent,
        baseline=baseline,
    )


def _row(
    run: RunRecord, state: Literal["equal", "different", "not_compared"], **more: object
) -> PairRow:
    return PairRow(
        exchange=run.exchange,
        flow=run.flow,
        at=run.at,
        state=state,
        config=run.versions.get("config", ""),
        code_version=run.versions.get("code", ""),
        **more,  # type: ignore[arg-type]
    )


def exchange_rows(lines: Iterable[RunRecord], flows: Mapping[str, Flow]) -> Iterator[ExchangeRow]:
    """Yield what clients were served; lines of one exchange's serving runs stand together."""
    waiting: dict[str, list[RunRecord]] = {}
    for line in lines:
        if line.role in {"serving", "fallback"} and line.flow in flows:
            runs = waiting.setdefault(line.exchange, [])
            runs.append(line)
            if served_runs(runs):
                yield exchange_row(waiting.pop(line.exchange), flows[line.flow])


def exchange_row(served: Sequence[RunRecord], flow: Flow) -> ExchangeRow:
    """Return what an exchange was for its client, of the runs that served it, in order."""
    first, last = served[0], served[-1]
    failed = first.outcome if isinstance(first.outcome, Failed) else Failed("refused_late")
    unit, kind = _unit(first, flow)
    return ExchangeRow(
        exchange=last.exchange,
        flow=last.flow,
        at=last.at,
        assigned=last.assigned,
        served=last.served,
        why=last.why,
        end=_end(last.outcome),
        code=failed.code if first is not last else getattr(last.outcome, "code", ""),
        failed_behind=first.stack if first is not last else "",
        first_text_ms=None if last.first_text_us is None else last.first_text_us / 1e3,
        ended_ms=None if last.ended_us is None else last.ended_us / 1e3,
        unit=unit,
        unit_kind=kind,
        config=first.versions.get("config", ""),
        code_version=first.versions.get("code", ""),
    )


def _end(outcome: Outcome) -> End:
    match outcome:
        case Completed():
            return "completed"
        case Refusal():
            return "refused"
        case Pause():
            return "paused"
        case Left():
            return "left"
        case Failed():
            return "failed"
        case _:
            assert_never(outcome)


def _unit(line: RunRecord, flow: Flow) -> tuple[str, str]:
    """Return the user of a request and the key's name, else its conversation, else "" twice."""
    try:
        body = flow.stored(
            line.path, msgspec.json.decode(line.request), msgspec.json.decode(line.options)
        ).body
        for words in (_USER, _CONVERSATION):
            for name in flow.key_names:
                named = any(word in name.lower() for word in words)
                if named and (value := flow.key(body, name)):
                    return value, name
    except DAMAGED:
        pass  # a request that cannot be read has no known user
    return "", ""
