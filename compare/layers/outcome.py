"""Outcome: how each run ended."""

from __future__ import annotations

from compare.findings import CodeChanged, OutcomeChanged, OutcomeFinding
from compare.input.pairing import Pair
from contract.records import RunRecord


def outcome_findings(pair: Pair) -> list[OutcomeFinding]:
    """Compare endings; at most one finding."""
    control, candidate = pair.control, pair.candidate
    legacy, graph = _ending(control), _ending(candidate)
    if control.outcome != candidate.outcome:
        path = f"{control.outcome}→{candidate.outcome}"
        return [OutcomeChanged(path=path, exchange=pair.exchange, legacy=legacy, graph=graph)]
    if _code(control) != _code(candidate):
        path = f"{control.outcome}.code"
        return [CodeChanged(path=path, exchange=pair.exchange, legacy=legacy, graph=graph)]
    return []


def _code(run: RunRecord) -> str:
    return run.error.code if run.error else ""


def _ending(run: RunRecord) -> str:
    if run.error is None:
        return run.outcome
    kind = f", {run.error.kind}" if run.error.kind else ""
    return f"{run.outcome} ({run.error.code}{kind})"
