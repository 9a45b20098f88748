"""A decision as a page, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

import msgspec

from contract.errors import visible
from evidence.decision import Check, Decision, StackFigure, Verdict
from evidence.gate import MEASURES, change_text, plain_text
from evidence.pages.templates import SHARED, PageTemplates

TONES: Final[dict[Verdict, str]] = {
    "promote": "good",
    "hold": "unknown",
    "rollback": "bad",
    "cannot_tell": "unknown",
}
WORDS: Final[dict[Verdict, str]] = {
    "promote": "promote",
    "hold": "hold",
    "rollback": "roll back",
    "cannot_tell": "cannot tell",
}
_TITLES: Final = {
    "rows": "figures are numbers",
    "sample_ratio": "split between the stacks",
    "requests": "requests that were compared",
    "findings": "differences between pairs of runs",
    "losses": "pairs that were lost",
    "selftest": "self-test of the comparison",
    "noise": "noise of live shadows",
    "load": "load runs",
}
_EVERYTHING: Final = 100.0


class CheckView(NamedTuple):
    """A check as a row: both figures, how they differ, and what is allowed; "" is no such value."""

    check: Check
    title: str
    legacy: str
    graph: str
    change: str
    interval: str
    allowed: str

    @property
    def named(self) -> tuple[StackFigure, ...]:
        """The figures that name rows."""
        return tuple(one for one in self.check.figures if one.exchanges)


def headline(decision: Decision) -> str:
    """Write what to do in a few words."""
    match decision.verdict:
        case "promote" if decision.to >= _EVERYTHING:
            return "Promote"
        case "promote":
            return f"Promote to {decision.to:g} %"
        case "hold":
            return f"Hold at {decision.percent:g} %"
        case "rollback":
            return "Roll back"
        case _:
            return "Cannot tell"


def reasons(decision: Decision) -> tuple[str, ...]:
    """Return the reasons that count: of a promotion, those of the critical checks."""
    if decision.verdict == "promote":
        return tuple(one.reason for one in decision.checks if one.critical)
    if decision.verdict == "cannot_tell":
        found = [one for one in decision.checks if one.critical and one.verdict == "cannot_tell"]
        return tuple(one.reason for one in found) or ("no check is critical",)
    return decision.reasons


def view(check: Check) -> CheckView:
    """Write a check as a row."""
    name = check.name.removeprefix("load_").removeprefix("objective_")
    measure = MEASURES.get(name)
    title = _TITLES.get(name, name) if measure is None else measure.title
    if check.name != name:
        title = f"{title}, {check.name.partition('_')[0]}"
    control = candidate = change = interval = ""
    allowed = "" if check.bound is None else plain_text(check.bound, check.unit)
    if check.figures or check.name.startswith("load_"):
        change = "" if check.value is None else change_text(check, check.value)
        allowed = change_text(check, check.bound)
    elif check.value is not None:
        candidate = plain_text(check.value, check.unit)
    if check.figures:
        control, candidate = (plain_text(one.value, check.figure_unit) for one in check.figures)
    if check.low is not None and check.high is not None:
        interval = f"{change_text(check, check.low)} … {change_text(check, check.high)}"
    return CheckView(check, title, control, candidate, change, interval, allowed)


def gate_page(decision: Decision, span: str) -> str:
    """Render a decision as one HTML file that needs nothing but itself; `span` says when it was."""
    views = [view(one) for one in decision.checks]
    return _templates().render(
        "gate.html.j2",
        decision=decision,
        span=span,
        headline=headline(decision),
        reasons=reasons(decision),
        tone=TONES[decision.verdict],
        words=WORDS,
        groups=(
            ("Critical", [one for one in views if one.check.critical]),
            ("Further checks", [one for one in views if not one.check.critical]),
        ),
        views=views,
    )


@cache
def _templates() -> PageTemplates:
    return PageTemplates(SHARED, filters={"plain": plain_text})


def gate_markdown(decision: Decision, span: str) -> str:
    """Write a decision as Markdown."""
    return "\n".join([*_lines(decision, span)]) + "\n"


def _lines(decision: Decision, span: str) -> Iterator[str]:
    yield f"# {headline(decision)}"
    yield ""
    yield f"`cutover gate` of the flow {decision.flow}, at {decision.percent:g} % of {span}."
    yield ""
    yield from (f"- {_text(one)}" for one in reasons(decision))
    yield ""
    yield "| check | says | legacy | graph | change | allowed | n |"
    yield "|---|---|--:|--:|--:|--:|--:|"
    for row in map(view, decision.checks):
        title = f"**{row.title}**" if row.check.critical else row.title
        change = f"{row.change} ({row.interval})" if row.interval else row.change
        cells = (title, WORDS[row.check.verdict], row.legacy, row.graph, change, row.allowed)
        yield f"| {' | '.join(map(_text, cells))} | {row.check.n:,} |"
    yield ""
    yield "Critical checks are bold."
    yield ""
    yield "## What rollback cannot undo"
    yield ""
    if not decision.lasting:
        yield "No write of graph is on record."
    for one in decision.lasting:
        doubt = f", {one.in_doubt:,} of which may not have happened" if one.in_doubt else ""
        yield f"- {one.count:,} × {_text(f'{one.store}: {one.what}')}{doubt}"


def _text(text: str) -> str:
    return visible(text).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def encode_decision(decision: Decision) -> bytes:
    """Write a decision as JSON."""
    return msgspec.json.format(msgspec.json.encode(decision), indent=2) + b"\n"


def decision_schema() -> bytes:
    """Write the JSON schema of a decision."""
    schema = msgspec.json.schema(Decision)
    return msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"
