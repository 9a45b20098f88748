"""The report as a document: everything the pages show, and what report.json holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Literal

import msgspec

from compare.clusters import Cluster, Exemplar
from compare.findings import Finding, Layer, PromptChanged, PromptSource
from compare.input.damage import Damage
from compare.input.pairing import STACKS, Sides
from compare.input.selection import EVERYTHING, Selection
from compare.layers.prompt_sources import PromptMap, source_of
from compare.layers.text import WENT_ON
from compare.noise import Noise
from compare.noise.control import NO_CHECK, ControlCheck, control_text
from compare.noise.study import study_text
from compare.report.advice import Facts, FirstCause, FirstWaiver, NextStep, next_step
from compare.report.latency import INTERVAL, METHOD, Latency, latencies
from compare.report.outcomes import OutcomeRow, outcome_rows
from compare.rules import NO_RULES, Rules
from compare.rules.table import rule_text, scope_text
from compare.tally import Drift, Tally, drift_of
from compare.verdict import FlowBound, Verdict, bounds_of, verdict_on
from compare.waivers import NO_WAIVERS, Standing, Waiver, Waivers, lapse
from contract.equality import Chunking

TITLES: Mapping[str, str] = {
    "outcome_changed": "Another outcome",
    "code_changed": "Another error code",
    "refusal_changed": "Another refusal",
    "grammar_broken": "Stream breaks its grammar",
    "frame_dropped": "Frame missing in {candidate}",
    "frame_added": "Frame only in {candidate}",
    "frame_replaced": "Frame replaced",
    "frame_moved": "Frame at another place",
    "frame_changed": "Frame changed",
    "event_line_changed": "Other `event:` lines",
    "chunks_moved": "Text cut elsewhere",
    "cadence": "Text sent in other pieces",
    "text_changed": "Final text differs",
    "reasoning_changed": "Reasoning differs",
    "refusal_as_text": "Refusal of the model told as text",
    "text_late": "Text comes at another time",
    "text_shrank": "Text took back what was shown",
    "prompt_changed": "Prompt differs",
    "parameter_changed": "Model parameter differs",
    "tool_dropped": "Tool not called by {candidate}",
    "tool_added": "Tool called by {candidate} only",
    "tool_arguments": "Tool called with other arguments",
    "tool_order": "Tools called in another order",
    "write_changed": "Something else is written",
    "write_order": "Writes in another order",
    "read_order": "Read on the other side of a write",
    "frame_order": "Write on the other side of a frame",
    "call_changed": "Call with other arguments",
    "call_skipped": "Call not made by {candidate}",
    "call_extra": "Call made by {candidate} only",
    "site_changed": "Call made under another site",
    "call_unplayed": "Recorded call that was not played",
}


_ENDINGS: Mapping[str, str] = {
    "completed": "completed",
    "refused": "refused",
    "failed": "failed",
    "truncated": "broke off",
    "timeout": "ran out of time",
    "paused": "paused for an answer",
    "cancelled": "was cancelled",
}


def title_of(kind: str, sides: Sides = STACKS, path: str = "") -> str:
    """Return the title of a kind of finding, naming the stacks as their columns do.

    Of an outcome it tells which stack ended how.
    """
    control, _, candidate = path.partition("→")
    if kind in {"outcome_changed", "code_changed"} and candidate:
        if control:
            return f"{_ending(sides[0], control)}, {sides[1]} {WENT_ON}"
        return f"{_ending(sides[1], candidate)}, {sides[0]} did not"
    return TITLES[kind].format(candidate=sides[1])


def _ending(stack: str, ended: str) -> str:
    outcome, _, code = ended.partition(".")
    return f"{stack} {_ENDINGS.get(outcome, outcome)}{f' `{code}`' if code else ''}"


Severity = Literal["severe", "serious", "slight"]
SEVERITIES: tuple[Severity, ...] = ("severe", "serious", "slight")
_SEVERE = frozenset({"outcome_changed", "grammar_broken"})
_SLIGHT = frozenset(
    {
        "prompt_changed",
        "parameter_changed",
        "call_changed",
        "site_changed",
        "call_unplayed",
        "chunks_moved",
        "cadence",
        "text_late",
    }
)


def severity_of(kind: str) -> Severity:
    """Return how bad a kind of cause is, whatever its share.

    `severe`: a run ends otherwise, or its stream is none of its flow. `serious`: the user is told,
    or something is done or stored, otherwise. `slight`: something is asked, timed or cut otherwise.
    """
    if kind in _SEVERE:
        return "severe"
    return "slight" if kind in _SLIGHT else "serious"


VERSION = 3


class PairCounts(msgspec.Struct, frozen=True):
    """How many of everything; `not_comparable` and `damaged` by reason.

    Of the `equal` pairs, `equal_by_rules` are so only under the rules, and both runs of the
    `unsound` break their grammar alike. In `own_answers` of the pairs a shadow asked the model
    itself: what may follow from its answers is not counted. In `untaped` pairs there was no tape:
    each stack asked the model, and all that differs counts. `missing` exchanges lack a run they
    must have; `by_flow` are the pairs of each flow; `folds` those in which client libraries wrote
    the calls in different forms, by what was folded. `unshadowed` are exchanges without a second
    run, by the state and reason that the ledger has for it: `dropped(queue_full)`.
    """

    exchanges: int
    pairs: int
    equal: int
    different: int
    not_comparable: dict[str, int]
    damaged: dict[str, int]
    equal_by_rules: int = 0
    unsound: int = 0
    own_answers: int = 0
    missing: int = 0
    by_flow: dict[str, int] = {}
    folds: dict[str, int] = {}
    unshadowed: dict[str, int] = {}
    untaped: int = 0

    def of_flow(self, flow: str) -> int:
        """Return the pairs of a flow; those of all flows where a report does not say."""
        return self.by_flow.get(flow) or self.pairs


class ClusterReport(msgspec.Struct, frozen=True):
    """One cause: findings of one layer, path (without indices) and kind, in one flow.

    `share` is that of the `pairs` of its flow; times are microseconds since the Unix epoch.
    `waived` is false of a waiver that has expired.
    """

    id: str
    flow: str
    layer: Layer
    kind: str
    path: str
    title: str
    exchanges: int
    findings: int
    share: float
    first_seen: int
    last_seen: int
    exemplars: tuple[Exemplar, ...]
    waiver: Waiver | None = None
    waived: bool = False
    classes: dict[str, int] = {}
    severity: Severity = "serious"
    pairs: int = 0


class RuleReport(msgspec.Struct, frozen=True):
    """One rule; `hits` counts the pairs in which it took other things from one run than the other.

    `key` is its place in the file, `says` what it does, `where` what it is restricted to.
    """

    key: str
    says: str
    where: str
    hits: int
    name: str = ""
    reason: str = ""


class WaiverReport(msgspec.Struct, frozen=True):
    """One waiver of the file; `exchanges` counts those with a finding it is for.

    `lapsed` is why it no longer covers its cause.
    """

    id: str
    waiver: Waiver
    standing: Standing
    exchanges: int
    lapsed: str = ""


class SelectionReport(msgspec.Struct, frozen=True):
    """Which exchanges were compared, in words, too, and how many others were `left_out`."""

    selection: Selection
    text: str
    left_out: int


class Report(msgspec.Struct, frozen=True):
    """A comparison of captures, legacy against graph, or one stack with what it did before.

    `sides` are what control and candidate are called; of mixed pairs, the stacks.
    `findings_left_out` counts findings of clusters beyond the most that are kept. `damage` names
    the first things passed over; `counts.damaged` counts all of them. `control` holds legacy
    against legacy on one tape; `noise` is put in where it was asked for. `drift` is that of shadows
    with conversations of their own: what follows from it is no finding. `bounds` are what an equal
    result proves of each flow, the least proved first; `next_step` is None in earlier reports.
    `selection` is None where all exchanges were compared. `outcomes` are those of all exchanges
    that were read, compared or not.
    """

    v: int
    captures: str
    chunking: Chunking
    verdict: Verdict
    counts: PairCounts
    clusters: tuple[ClusterReport, ...]
    findings_left_out: int
    damage: tuple[Damage, ...]
    latency: tuple[Latency, ...]
    percentile_method: str
    interval_method: str
    first_seen: int
    last_seen: int
    rules: tuple[RuleReport, ...] = ()
    waivers: tuple[WaiverReport, ...] = ()
    control: ControlCheck = NO_CHECK
    noise: Noise | None = None
    sides: Sides = STACKS
    drift: tuple[Drift, ...] = ()
    bounds: tuple[FlowBound, ...] = ()
    next_step: NextStep | None = None
    selection: SelectionReport | None = None
    outcomes: tuple[OutcomeRow, ...] = ()


def report_of(
    tally: Tally,
    captures: str,
    chunking: Chunking,
    rules: Rules = NO_RULES,
    waivers: Waivers = NO_WAIVERS,
    noise: Noise | None = None,
) -> Report:
    """Write a tally up; equal arguments give equal reports.

    Causes that are not waived come first, then by severity, then by share. What live model calls
    differ by is among the reasons; it changes no label.
    """
    counts = PairCounts(
        tally.exchanges,
        tally.pairs,
        tally.equal,
        tally.different,
        dict(sorted(tally.not_comparable.items())),
        dict(sorted(tally.damage.items())),
        tally.equal_by_rules,
        tally.unsound,
        tally.own_answers,
        tally.missing,
        dict(sorted(tally.by_flow.items())),
        dict(sorted(tally.folds.items())),
        dict(sorted(tally.unshadowed.items())),
        tally.untaped,
    )
    verdict = verdict_on(tally, waivers, rules.missing)
    if noise is not None:
        reasons = (*verdict.reasons, study_text(noise.study))
        if not tally.control.checked and noise.control.checked:
            reasons = (*reasons, control_text(noise.control))
        verdict = msgspec.structs.replace(verdict, reasons=reasons)
    clusters = [_cluster(c, counts.of_flow(c.flow), waivers) for c in tally.clusters.ordered()]
    clusters.sort(key=lambda c: (c.waived, SEVERITIES.index(c.severity), -c.share))
    return Report(
        v=VERSION,
        captures=captures,
        chunking=chunking,
        verdict=verdict,
        counts=counts,
        clusters=tuple(clusters),
        findings_left_out=tally.clusters.overflow,
        damage=tuple(tally.named),
        latency=latencies(tally.times),
        percentile_method=METHOD,
        interval_method=INTERVAL,
        first_seen=tally.first_seen,
        last_seen=tally.last_seen,
        rules=tuple(
            RuleReport(
                key, rule_text(rule), scope_text(rule), tally.rule_hits[key], rule.name, rule.reason
            )
            for key, rule in rules.numbered()
        ),
        waivers=tuple(_waiver(name, tally, waivers) for name in sorted(waivers.by_id)),
        control=tally.control,
        noise=noise,
        sides=tally.sides,
        drift=drift_of(tally.drift),
        selection=None if tally.selection == EVERYTHING else _selection(tally),
        outcomes=outcome_rows(tally.outcomes),
        bounds=bounds_of(tally) if verdict.label == "equal" else (),
        next_step=next_step(
            Facts(captures, verdict.label, tally, _first(clusters), _first_to_end(clusters), noise)
        ),
    )


def _selection(tally: Tally) -> SelectionReport:
    return SelectionReport(tally.selection, tally.selection.text, tally.left_out.exchanges)


def _first(clusters: Sequence[ClusterReport]) -> FirstCause | None:
    """Return the first cause that is not waived; one whose waiver has lapsed comes last."""
    open_ones = sorted((c for c in clusters if not c.waived), key=lambda c: c.waiver is not None)
    return next(
        (FirstCause(c.id, c.flow, c.title, c.layer, c.waiver is not None) for c in open_ones), None
    )


def _first_to_end(clusters: Sequence[ClusterReport]) -> FirstWaiver | None:
    held = [(c.waiver.until, c.id, c.waiver.owner) for c in clusters if c.waived and c.waiver]
    until, name, owner = min(held, default=(None, "", ""))
    return FirstWaiver(name, owner, str(until)) if until else None


def _waiver(name: str, tally: Tally, waivers: Waivers) -> WaiverReport:
    waiver = waivers.by_id[name]
    held = [
        cluster
        for cluster in tally.clusters.by_key.values()
        if cluster.id == name and waivers.of(name, cluster.flow)
    ]
    exchanges = sum(cluster.exchanges for cluster in held)
    whys = (lapse(waiver, cluster, tally.by_flow[cluster.flow]) for cluster in held)
    why = next(filter(None, whys), "")
    return WaiverReport(
        name, waiver, waivers.standing(waiver, exchanges, lapsed=bool(why)), exchanges, why
    )


def _cluster(cluster: Cluster, pairs: int, waivers: Waivers) -> ClusterReport:
    waiver = waivers.of(cluster.id, cluster.flow)
    shown = {exemplar.sides for exemplar in cluster.exemplars}
    sides = shown.pop() if len(shown) == 1 else STACKS
    return ClusterReport(
        id=cluster.id,
        flow=cluster.flow,
        layer=cluster.layer,
        kind=cluster.kind,
        path=cluster.path,
        title=title_of(cluster.kind, sides, cluster.path),
        exchanges=cluster.exchanges,
        findings=cluster.findings,
        share=cluster.exchanges / pairs if pairs else 0.0,
        first_seen=cluster.first_seen,
        last_seen=cluster.last_seen,
        exemplars=tuple(cluster.exemplars),
        waiver=waiver,
        waived=waivers.accepts(cluster, pairs),
        classes=dict(sorted(cluster.classes.items())),
        severity=severity_of(cluster.kind),
        pairs=pairs,
    )


def encode_report(report: Report) -> bytes:
    """Write the report as JSON."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def report_schema() -> bytes:
    """Write the JSON schema of the report."""
    return msgspec.json.format(msgspec.json.encode(msgspec.json.schema(Report)), indent=2) + b"\n"


def with_sources(report: Report, known: PromptMap) -> Report:
    """Name the sources of prompts that differ, where templates of a map fit them."""
    replace = msgspec.structs.replace

    def sourced(finding: Finding) -> Finding:
        if not isinstance(finding, PromptChanged):
            return finding
        return replace(finding, source=source_of(known, finding.legacy, finding.graph))

    def shown(exemplar: Exemplar) -> Exemplar:
        return replace(exemplar, findings=tuple(map(sourced, exemplar.findings)))

    clusters = tuple(
        replace(cluster, exemplars=tuple(map(shown, cluster.exemplars)))
        for cluster in report.clusters
    )
    return replace(report, clusters=clusters)


def source_text(source: PromptSource) -> str:
    """Describe where a difference comes from, in a line."""
    drawn = "" if source.file == source.template else f" (in {source.template})"
    if source.variable:
        what = f"the variable {source.variable!r}"
    elif source.computed:
        what = f"what is computed there ({source.computed})"
    else:
        what = "the template's own text"
    return f"{source.file}:{source.line}{drawn}: {what}"


def finding_source(finding: Finding) -> str:
    """Describe where a finding comes from; "" where it is unknown."""
    source = finding.source if isinstance(finding, PromptChanged) else None
    return "" if source is None else source_text(source)


def with_unknown_flows(
    report: Report, rules: Rules, waivers: Waivers, flows: Collection[str]
) -> Report:
    """Name among the reasons what is for a flow that is not among `flows`; changes no label."""
    named = (
        *((key, rule.flow) for key, rule in rules.numbered()),
        *((f"the waiver of {name}", held.flow) for name, held in sorted(waivers.by_id.items())),
    )
    said = tuple(
        f"{what} is for {unknown_flows_text(flow, flows)}"
        for what, flow in named
        if flow and flow not in flows
    )
    if not said:
        return report
    verdict = msgspec.structs.replace(report.verdict, reasons=(*report.verdict.reasons, *said))
    return msgspec.structs.replace(report, verdict=verdict)


def unknown_flows_text(flow: str, flows: Collection[str]) -> str:
    """Name an unknown flow, with the nearest one that is known."""
    near = get_close_matches(flow, flows, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(flows))}"
    return f"flow {flow!r}, which is unknown here; {hint}"
