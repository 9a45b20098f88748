"""Grammar: whether each stream is one its flow allows."""

from __future__ import annotations

from compare.findings import GrammarBroken, Side
from compare.input.pairing import Pair
from contract.equality import Violation

BEHIND_END = "*: behind the end"


def grammar_findings(
    pair: Pair, legacy: Violation | None, graph: Violation | None
) -> list[GrammarBroken]:
    """Name the side that broke the grammar; the same breach on both is one finding."""
    if legacy and graph and legacy.same_as(graph):
        return [_finding(pair, "both", graph, legacy.sentence, graph.sentence)]
    found: list[GrammarBroken] = []
    if legacy:
        found.append(_finding(pair, "legacy", legacy, legacy.sentence, None))
    if graph:
        found.append(_finding(pair, "graph", graph, None, graph.sentence))
    return found


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
