"""The gate: everything measured of a flow, as one decision."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from compare.captures import KnownParts
from compare.input.pairing import CONTROL
from compare.input.selection import Selection
from compare.noise import LegacyAgain, Study
from compare.noise.messages import OTHER_CODE
from compare.noise.study import Reading, study_text
from compare.report import Report
from compare.rules import Rules
from compare.sharing import Workers
from compare.tally import Tally
from compare.waivers import Waivers
from contract.errors import CutoverError
from cutover.flows import flows_of, rules_at
from cutover.judge.judgements import (
    QUALITY_FILE,
    JudgementsUnreadable,
    read_judged,
    read_judged_beside,
)
from cutover.load_checks import LoadRuns
from cutover.reports import CaptureComparison, report_on, waivers_at
from cutover.selftest.trials import self_test
from evidence.decision import Check, Decision, Verdict
from evidence.gate import (
    GateEvidence,
    GateRules,
    PairFindings,
    decision_of,
)
from evidence.in_force import CodeInForce, PairRow, code_in_force
from evidence.outcomes import ExchangeOutcome
from evidence.preferences import quality_check
from loadtests.requests import FlowUnknown
from router.config.schema import FlowSettings, GateSettings, Settings

EVERYTHING: Final = 100.0
"""Percent."""
SELFTEST_PAIRS: Final = 20
_READINGS: Final[Mapping[Reading, Verdict]] = {
    "exceeds": "hold",
    "within noise": "promote",
    "cannot tell": "cannot_tell",
}


@dataclass(frozen=True, slots=True)
class GateResult:
    """A decision, the outcomes behind it and the comparison of pairs behind its findings."""

    decision: Decision
    outcomes: Sequence[ExchangeOutcome]
    report: Report


def decide(
    captures: str,
    settings: Settings,
    flow: str,
    *,
    to: float | None,
    load: Path | None = None,
    noise: Sequence[str] = (),
    since: int | None = None,
    known_parts: KnownParts | None = None,
) -> Decision:
    """Decide whether a flow's candidate may serve `to` percent, everything if that is None.

    The flags of the settings are those that routers read: assignments have to show them.
    `since`, in microseconds since the epoch, leaves out what began earlier; `load` is a folder of
    `cutover load`, `noise` are places where legacy answered the same messages again. What the last
    decision read of captures that have not changed since is in `known_parts`. No data
    is a decision that cannot tell. Raises `FlowUnknown`, `LoadUnreadable`,
    `CapturesUnreadable` and what reading rules and waivers raises.
    """
    found = evaluate(
        captures,
        settings,
        flow,
        to=to,
        load=load,
        noise=noise,
        since=since,
        in_force=True,
        known_parts=known_parts,
    )
    return found.decision


def evaluate(
    captures: str,
    settings: Settings,
    flow: str,
    *,
    to: float | None = None,
    load: Path | None = None,
    quality: Path | None = None,
    noise: Sequence[str] = (),
    since: int | None = None,
    rules: Rules | None = None,
    waivers: Waivers | None = None,
    processes: int | None = 1,
    on_bytes: Callable[[int], None] = lambda _: None,
    in_force: bool = False,
    known_parts: KnownParts | None = None,
) -> GateResult:
    """Decide as `decide` does, and return what the decision rests on.

    `in_force`: the flags of the settings are those that routers read. `rules` and `waivers` are
    those of the working folder where none are given, `quality` the judgements beside the captures.
    `noise` are places where legacy answered the same messages again.
    Raises `JudgementsUnreadable`, too.
    """
    specs = flows_of(settings)
    if flow not in specs:
        raise FlowUnknown(flow)
    known, needs, configured = {flow: specs[flow]}, settings.gate_of(flow), settings.flows[flow]
    selection = Selection(since=since, flow=flow)
    comparison = CaptureComparison(
        captures,
        rules=rules_at(None, settings) if rules is None else rules,
        waivers=waivers_at(None) if waivers is None else waivers,
        workers=Workers(count=processes),
        known=known,
        # Why a stack failed that another one saved is no difference on equal terms: it is counted.
        selection=msgspec.structs.replace(selection, fallbacks=False),
        served=selection,
        noise="joined" if noise else "alone" if settings.shadow.mode == "live" else "",
    )
    # What it is asked with is read first: it may be refused, and captures take long.
    loaded = None if load is None else LoadRuns.read(load, flow)
    again = LegacyAgain.read(noise, known, comparison.workers)
    tally = comparison.tally(on_bytes, known_parts)
    outcomes = [*tally.served.outcomes.values()]
    pairs = [row for row in tally.compared if not row.of_one_stack]
    code = code_in_force(outcomes, tally.compared)
    counted = [row for row in pairs if code.counts_pair(row)]
    checks = [] if loaded is None else [*loaded.checks(needs, code.codes, time.time())]
    if noise or (comparison.noise and tally.own_answers):
        found = again.noise(
            tally.noise,
            tally.control,
            counts=_exchanges_of(code, outcomes, pairs).__contains__,
            code=code.codes.get(CONTROL, ""),
        )
        checks.append(_noise_check(found.study))
    compared = frozenset(row.exchange for row in counted)
    captured = compared.union(
        (row.exchange for row in outcomes), (row.exchange for row in tally.compared)
    )
    checks += [*_quality_checks(captures, quality, flow, (captured, compared), needs)]
    if needs.selftest:
        checks.append(_self_test())
    evidence = GateEvidence(
        flow=flow,
        percent=configured.configured_share,
        to=EVERYTHING if to is None else to,
        in_force=in_force,
        code=code,
        outcomes=outcomes,
        findings=pair_findings(
            tally, (pairs, counted), comparison.waivers, flow, configured, settings
        ),
        checks=checks,
        lasting=tally.served.lasting(),
        live=configured.stage != "shadow",
        captures=captures,
    )
    decision = decision_of(evidence, gate_rules(needs))
    return GateResult(decision, outcomes, report_on(comparison, tally))


def gate_rules(needs: GateSettings) -> GateRules:
    """Return what the gate asks for, from the configuration."""
    return GateRules(
        margins=needs.margins.model_dump(),
        critical=frozenset(needs.critical),
        objectives={str(name): limit for name, limit in needs.objectives.items()},
        requests=needs.requests,
        pairs=needs.pairs,
        losses=needs.losses,
    )


def pair_findings(
    tally: Tally,
    pairs: tuple[Sequence[PairRow], Sequence[PairRow]],
    waivers: Waivers,
    flow: str,
    configured: FlowSettings,
    settings: Settings,
) -> PairFindings:
    """Sum up what comparing all pairs of a flow found, and those of them that count.

    The others have runs of other code.
    """
    every, counted = pairs
    unwaived: dict[str, float] = {}
    for cause, found in Counter(cause for row in counted for cause in row.causes).items():
        cluster = tally.clusters.by_key.get((flow, cause))
        if cluster is None:
            unwaived["others"] = 1.0  # beyond the most that are told apart
        elif not waivers.accepts(replace(cluster, exchanges=found), len(counted)):
            unwaived[cause] = found / len(counted)
    control = tally.control
    dropped = sum(n for state, n in tally.unshadowed.items() if state.startswith("dropped"))
    # A torn batch holds any number of exchanges up to that of a whole one; a file, all there are.
    damaged = tally.runs_damaged + tally.damage["torn"] * (settings.captures.batch - 1)
    lost = tally.missing + dropped + damaged
    due = len(every) + lost
    return PairFindings(
        pairs=len(counted),
        other_code=len(every) - len(counted),
        unwaived=unwaived,
        noise=control.differing / control.checked if control.checked else 0.0,
        replayed=sum(row.replayed for row in counted),
        due=due,
        lost=due if tally.damage["unreadable"] else lost,
        expected=configured.shadow_percent > 0 or bool(counted),
    )


# Noise and the comparison itself -----------------------------------------------------------------


def _exchanges_of(
    code: CodeInForce, outcomes: Iterable[ExchangeOutcome], pairs: Iterable[PairRow]
) -> frozenset[str]:
    """Return the exchanges of which every run that is known is of the code in force."""
    every = [(row.exchange, code.counts(row)) for row in outcomes]
    every += [(row.exchange, code.counts_pair(row)) for row in pairs]
    others = {exchange for exchange, counts in every if not counts}
    return frozenset(exchange for exchange, _ in every if exchange not in others)


def _noise_check(study: Study) -> Check:
    """Ask whether live runs differ from legacy by more than legacy does from itself."""
    other = study.left_out.get(OTHER_CODE, 0)
    return Check(
        name="noise",
        verdict=_READINGS[study.reading],
        reason=study_text(study) + (f"; {other:,} of other code are left out" if other else ""),
        n=study.messages,
        rows="report.html",
    )


def _quality_checks(
    captures: str,
    file: Path | None,
    flow: str,
    exchanges: tuple[frozenset[str], frozenset[str]],
    needs: GateSettings,
) -> Iterator[Check]:
    """Ask which answers people or a judge model prefer, where that was asked or is critical.

    `exchanges` are those in the captures, and those of pairs that count: judgements of others are
    counted alone. What a judge makes of legacy against itself is of any exchange in the captures.
    """
    if file is not None and not file.is_file():
        raise JudgementsUnreadable(str(file), "there is no such file")
    stored = read_judged_beside(captures) if file is None else read_judged(file)
    captured, compared = exchanges
    of_flow = [one for one in stored if one.flow == flow]
    judged = [one for one in of_flow if one.exchange in (captured if one.itself else compared)]
    left_out = sum(one.exchange not in compared for one in of_flow if not one.itself)
    critical = "quality" in needs.critical
    rows = f"{captures.rstrip('/')}/{QUALITY_FILE}" if file is None else str(file)
    check = quality_check(
        judged, flow, needs.quality, critical=critical, rows=rows, left_out=left_out
    )
    if check is not None:
        yield check


@cache
def _self_test() -> Check:
    """Test the comparison once a process, in a thread of its own: it runs event loops."""
    check = Check(
        name="selftest",
        verdict="promote",
        reason="the comparison finds every seeded fault, and no difference in equal pairs",
        n=SELFTEST_PAIRS,
        critical=True,
        rows="cutover selftest",
    )
    try:
        with ThreadPoolExecutor(1) as thread:
            reasons = thread.submit(_unsound).result()
    except CutoverError as error:
        reasons = [str(error)]
    if not reasons:
        return check
    reason = f"the comparison cannot be relied on: {'; '.join(reasons)}"
    return msgspec.structs.replace(check, verdict="cannot_tell", reason=reason)


def _unsound() -> list[str]:
    tested = self_test(lambda _what, _total: lambda _n: None, SELFTEST_PAIRS, drawn=0)
    return [*tested.reasons()]
