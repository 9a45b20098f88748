"""The table of rules: `diff.toml`, read into frozen values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias, assert_never

import msgspec
import regex

from compare.input.files import read_text
from compare.rules.texts import check_replacement, expression_of
from contract.calls import EffectCall
from contract.declarations import DeclarationRefused, convert_to_struct, parse_toml
from contract.wire.paths import path_fault

MISSING_AT_MOST = 0.01
RuleLayer = Literal["frames", "text", "effects"]


class Scope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a rule holds; what is left out does not restrict it.

    `event` is the name of an event, `call` is `port.operation` or `port.operation@site`; `path`
    leads from there to a value. `name` and `reason` are for people.
    """

    name: str = ""
    reason: str = ""
    flow: str = ""
    layer: RuleLayer | None = None
    event: str = ""
    call: str = ""


class Ignore(Scope, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands at `path` does not count."""

    path: str


class Replace(Scope, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What matches `pattern` is read as `with` on both sides; without a path in every text."""

    pattern: str
    replacement: str = msgspec.field(name="with")
    path: str = ""


class Tolerance(Scope, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers at `path` may be apart by `absolute`, or by `relative` times the greater one."""

    path: str
    absolute: float = 0.0
    relative: float = 0.0


class Unordered(Scope, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The list at `path` is a bag: its order does not count."""

    path: str


Rule: TypeAlias = Ignore | Replace | Tolerance | Unordered


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All rules of a file; they are applied kind by kind, in this order.

    `missing` is the share of the pairs that should be there which may be missing, unreadable or
    duplicated in captures that pass. `normalise`: what client libraries do to calls that passed
    the gateway is no difference.
    """

    ignore: tuple[Ignore, ...] = ()
    replace: tuple[Replace, ...] = ()
    unordered: tuple[Unordered, ...] = ()
    tolerance: tuple[Tolerance, ...] = ()
    missing: float = MISSING_AT_MOST
    normalise: bool = True

    def numbered(self) -> Iterator[tuple[str, Rule]]:
        """Yield every rule with its key in the file: `ignore[0]` and so on."""
        for kind in ("ignore", "replace", "unordered", "tolerance"):
            rules: tuple[Rule, ...] = getattr(self, kind)
            for index, rule in enumerate(rules):
                yield f"{kind}[{index}]", rule


NO_RULES = Rules()


def read_rules(path: Path) -> Rules:
    """Read a file of rules; raises `DeclarationRefused`."""
    return rules_of(read_text(path), str(path))


def rules_of(text: str, file: str) -> Rules:
    """Read rules from TOML; raises `DeclarationRefused` naming file and key."""
    rules = convert_to_struct(parse_toml(text, file), Rules, file)
    if not 0 <= rules.missing <= 1:
        raise DeclarationRefused(file, "missing", f"{rules.missing!r} is no share from 0 to 1")
    for key, rule in rules.numbered():
        for name, why in _faults(rule):
            raise DeclarationRefused(file, f"{key}.{name}", why)
    return rules


def _faults(rule: Rule) -> Iterator[tuple[str, str]]:
    yield from _scope_faults(rule)
    if isinstance(rule, Replace):
        yield from _pattern_faults(rule)
    if rule.path or not isinstance(rule, Replace):
        astray = path_fault(rule.path)
        if astray:
            yield "path", astray
    if isinstance(rule, Tolerance):
        yield from _tolerance_faults(rule)


def _scope_faults(rule: Rule) -> Iterator[tuple[str, str]]:
    if rule.event and rule.call:
        yield "call", "a rule is for an event or for a call, not for both"
    if rule.event and rule.layer not in {None, "frames"}:
        yield "layer", f"an event is in layer 'frames', not {rule.layer!r}"
    if rule.call and rule.layer not in {None, "effects"}:
        yield "layer", f"a call is in layer 'effects', not {rule.layer!r}"
    if rule.call and "." not in rule.call:
        yield "call", f"{rule.call!r} is not 'port.operation' or 'port.operation@site'"
    if rule.path and rule.layer == "text":
        yield "path", "the final text has no paths"


def _pattern_faults(rule: Replace) -> Iterator[tuple[str, str]]:
    try:
        expression_of(rule.pattern)
    except (regex.error, RecursionError, OverflowError) as trouble:
        yield "pattern", f"{rule.pattern!r} is no regular expression: {trouble}"
        return
    try:
        check_replacement(rule.pattern, rule.replacement)
    except (regex.error, IndexError) as trouble:
        yield "with", f"{rule.replacement!r} cannot stand for a match: {trouble}"


def _tolerance_faults(rule: Tolerance) -> Iterator[tuple[str, str]]:
    for name, value in (("absolute", rule.absolute), ("relative", rule.relative)):
        if not math.isfinite(value) or value < 0:
            yield name, f"{value!r} is not a finite number of at least 0"
    if not rule.absolute and not rule.relative:
        yield "absolute", "say how far apart: absolute, relative or both"


def rule_text(rule: Rule) -> str:
    """Describe what a rule does."""
    match rule:
        case Ignore():
            return f"ignore {rule.path}"
        case Replace():
            place = f" in {rule.path}" if rule.path else ""
            return f"read /{rule.pattern}/ as {rule.replacement!r}{place}"
        case Unordered():
            return f"order of {rule.path} does not count"
        case Tolerance():
            absolute = [f"{rule.absolute:g}"] if rule.absolute else []
            relative = [f"{rule.relative * 100:g} %"] if rule.relative else []
            return f"{rule.path} may be apart by {' or '.join(absolute + relative)}"
        case _:
            assert_never(rule)


def scope_text(rule: Rule) -> str:
    """Describe what a rule is restricted to; "everywhere" when it is not."""
    named = ((name, getattr(rule, name)) for name in ("flow", "layer", "event", "call"))
    return ", ".join(f"{name} {value}" for name, value in named if value) or "everywhere"


def for_event(rule: Rule, event: str) -> bool:
    """Whether a rule is for what events of a name carry."""
    return rule.layer in {None, "frames"} and not rule.call and rule.event in {"", event}


def for_call(rule: Rule, call: EffectCall) -> bool:
    """Whether a rule is for the arguments of a call."""
    named = {"", call.label, f"{call.label}@{call.site}"}
    return rule.layer in {None, "effects"} and not rule.event and rule.call in named


def for_text(rule: Rule) -> bool:
    """Whether a rule is for the final text and the reasoning."""
    return rule.layer in {None, "text"} and not (rule.event or rule.call or rule.path)
