"""Grammar: whether each stream is one its flow allows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compare.findings import GrammarBroken, Side
from compare.input.pairing import Pair
from compare.streams.events import EventStream, PayloadFault
from contract.errors import GrammarViolated
from contract.grammar import Grammar, GrammarCheck
from contract.records import RunRecord

BEHIND_END = "*: behind the end"


@dataclass(frozen=True, slots=True)
class Violation:
    """The first place where a stream leaves its grammar; `name` "" when it ends too early.

    `fault` is what is wrong with the event's payload, where that is what is wrong.
    """

    at: int
    name: str
    expected: tuple[str, ...] = ()
    shrank: bool = False
    fault: PayloadFault | None = None

    @property
    def behind_end(self) -> bool:
        """Whether the stream was whole before it: whatever follows, its end is not the last."""
        return bool(self.name) and not (self.expected or self.shrank or self.fault)

    @property
    def sentence(self) -> str:
        """What happened, for people."""
        if self.fault is not None:
            place = f" {self.fault.path}" if self.fault.path else ""
            return f"{self.name}{place}: {self.fault.why}"
        if self.shrank:
            return f"{self.name}: its text took back what had been shown"
        due = " or ".join(self.expected)
        return f"{self.name or 'the end'} where {due or 'nothing more'} was due"


def violation_of(
    grammar: Grammar, run: RunRecord, stream: EventStream, *, ends: bool
) -> Violation | None:
    """Find where a run left its grammar; a frame that was refused as it came is on the record.

    `ends`: the stream is to be held to the grammar's end, too.
    """
    broken = _walked(grammar, run, stream, ends=ends)
    if broken is None and run.error is not None and run.error.code == "grammar":
        return Violation(len(stream.events), run.error.kind)
    return broken


def _walked(
    grammar: Grammar, run: RunRecord, stream: EventStream, *, ends: bool
) -> Violation | None:
    check = GrammarCheck(grammar)
    for index, event in enumerate(stream.events):
        if event.fault is not None:
            return Violation(index, event.name, fault=event.fault)
        if run.sent and index == run.sent:
            # Another stack has taken over here: it may begin its text anew.
            check.forget_texts()
        try:
            check.event(event.name, event.text)
        except GrammarViolated as broken:
            return Violation(index, event.name, broken.expected, stream.shrank == index)
    if ends and not check.complete:
        return Violation(len(stream.events), "", check.expected)
    return None


def grammar_findings(
    pair: Pair, legacy: Violation | None, graph: Violation | None
) -> list[GrammarBroken]:
    """Name the side that broke the grammar; the same breach on both is one finding."""
    if legacy and graph and _same(legacy, graph):
        return [_finding(pair, "both", graph, legacy.sentence, graph.sentence)]
    found: list[GrammarBroken] = []
    if legacy:
        found.append(_finding(pair, "legacy", legacy, legacy.sentence, None))
    if graph:
        found.append(_finding(pair, "graph", graph, None, graph.sentence))
    return found


def _same(legacy: Violation, graph: Violation) -> bool:
    """Whether both are one breach, wherever in each stream it stands, or lack an end alike."""
    early = not (legacy.name or graph.name)
    return early or replace(legacy, at=0) == replace(graph, at=0)


def _finding(
    pair: Pair, side: Side, broken: Violation, legacy: str | None, graph: str | None
) -> GrammarBroken:
    place = broken.name or "end"
    if broken.fault is not None:
        place += broken.fault.path
    elif broken.behind_end:
        place = BEHIND_END
    return GrammarBroken(
        path=f"{side}.frames[{broken.at}].{place}",
        exchange=pair.exchange,
        legacy=legacy,
        graph=graph,
        side=side,
        at=broken.at,
        shrank=broken.shrank,
    )
