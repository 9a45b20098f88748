"""Wording: a rule as people read it in a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from compare.rules.table import Ignore, Replace, Tolerance, Unordered

if TYPE_CHECKING:
    from compare.rules.table import Rule


def says(rule: Rule) -> str:
    """Say what a rule does."""
    match rule:
        case Ignore():
            return f"ignore {rule.path}"
        case Replace():
            place = f" in {rule.path}" if rule.path else ""
            return f"read /{rule.pattern}/ as {rule.replacement!r}{place}"
        case Unordered():
            return f"order of {rule.path} does not count"
        case Tolerance():
            return f"{rule.path} may be apart by {_apart(rule)}"
        case _:
            assert_never(rule)


def _apart(rule: Tolerance) -> str:
    absolute = [f"{rule.absolute:g}"] if rule.absolute else []
    relative = [f"{rule.relative * 100:g} %"] if rule.relative else []
    return " or ".join(absolute + relative)


def where(rule: Rule) -> str:
    """Say what a rule is restricted to; "everywhere" when it is not."""
    parts = [
        f"{name} {value}"
        for name, value in (
            ("flow", rule.flow),
            ("layer", rule.layer),
            ("event", rule.event),
            ("call", rule.call),
        )
        if value
    ]
    return ", ".join(parts) or "everywhere"
