"""Strangers: rules and waivers for flows nobody knows, which can never hit."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection

    from compare.report.document import Report
    from compare.rules import Rules
    from compare.waivers import Waivers


def with_strangers(
    report: Report, rules: Rules, waivers: Waivers, flows: Collection[str]
) -> Report:
    """Name among the reasons what is for a flow that is not among `flows`; changes no label."""
    named = (
        *((key, rule.flow) for key, rule in rules.numbered()),
        *((f"the waiver of {name}", held.flow) for name, held in sorted(waivers.by_id.items())),
    )
    said = tuple(
        f"{what} is for {stranger_said(flow, flows)}"
        for what, flow in named
        if flow and flow not in flows
    )
    if not said:
        return report
    verdict = msgspec.structs.replace(report.verdict, reasons=(*report.verdict.reasons, *said))
    return msgspec.structs.replace(report, verdict=verdict)


def stranger_said(flow: str, flows: Collection[str]) -> str:
    """Say of a flow that it is unknown, with the nearest one that is not."""
    near = get_close_matches(flow, flows, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(flows))}"
    return f"flow {flow!r}, which is unknown here; {hint}"
