"""Scope: which values of a run a rule is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compare.calls import Call
    from compare.rules.table import Rule


def for_event(rule: Rule, event: str) -> bool:
    """Whether a rule is for what events of a name carry."""
    return rule.layer in {None, "frames"} and not rule.call and rule.event in {"", event}


def for_call(rule: Rule, call: Call) -> bool:
    """Whether a rule is for the arguments of a call."""
    named = {"", call.label, f"{call.label}@{call.site}"}
    return rule.layer in {None, "effects"} and not rule.event and rule.call in named


def for_text(rule: Rule) -> bool:
    """Whether a rule is for the final text and the reasoning."""
    return rule.layer in {None, "text"} and not (rule.event or rule.call or rule.path)
