"""Flags in the place of the file's values: what may stand there, and what is refused."""

from __future__ import annotations

from decimal import Decimal

import pytest

from router.config.schema import FLAG_KINDS, FlowSettings
from router.routing.flags import RefusedFlag, apply, defaults

FILE = FlowSettings(
    enable_langgraph=True,
    langgraph_percent=Decimal("10.125"),
    force_graph=frozenset({"b", "a"}),
)


def test_the_file_s_values_as_flags_are_the_file_s_values() -> None:
    """Written down and read again nothing has changed."""
    asked = defaults(FILE, tuple(FLAG_KINDS))
    assert asked["langgraph_percent"] == 10.125
    assert asked["force_graph"] == ["a", "b"]
    applied = apply("chat", FILE, asked)
    assert (applied.flow, applied.changed, applied.refused) == (FILE, {}, {})


@pytest.mark.parametrize(
    ("flag", "value", "taken"),
    [
        ("enable_langgraph", False, False),
        ("langgraph_fallback", False, False),
        ("fallback_to_graph", True, True),
        ("langgraph_percent", 25, Decimal(25)),
        ("langgraph_percent", 0.001, Decimal("0.001")),
        ("shadow_percent", 100.0, Decimal(100)),
        ("force_graph", ["x"], frozenset({"x"})),
        ("force_legacy", (), frozenset()),
    ],
)
def test_a_flag_takes_the_place_of_the_file_s_value(
    flag: str, value: object, taken: object
) -> None:
    """And of no other."""
    applied = apply("chat", FILE, {flag: value})
    assert getattr(applied.flow, flag) == taken
    assert not applied.refused
    for other in set(FLAG_KINDS) - {flag}:
        assert getattr(applied.flow, other) == getattr(FILE, other)


@pytest.mark.parametrize(
    ("flag", "value", "why"),
    [
        ("langgraph_percent", 101, "= 101: allowed: 0 to 100"),
        ("langgraph_percent", -0.5, "= -0.5: allowed: 0 to 100"),
        ("langgraph_percent", 10.0001, "= 10.0001: allowed: steps of 0.001"),
        ("langgraph_percent", True, "= true: must be a number"),
        ("langgraph_percent", "10", "= '10': must be a number"),
        ("shadow_percent", float("nan"), "= nan: must be a finite number"),
        ("shadow_percent", float("inf"), "= inf: must be a finite number"),
        ("enable_langgraph", 1, "= 1: must be a valid boolean"),
        ("enable_langgraph", "true", "= 'true': must be a valid boolean"),
        ("force_graph", "a", "= 'a': must be a valid frozenset"),
        ("force_graph", [1], "= 1: must be a valid string"),
        ("force_legacy", ["a"], "also in force_legacy"),
        ("langgraph_fallback", RefusedFlag("PARSE_ERROR"), "the provider reports PARSE_ERROR"),
    ],
)
def test_what_cannot_be_used_leaves_the_file_s_value(flag: str, value: object, why: str) -> None:
    """Its fault is told by name; a good flag beside it counts."""
    applied = apply("chat", FILE, {flag: value, "fallback_to_graph": True})
    assert getattr(applied.flow, flag) == getattr(FILE, flag)
    assert applied.flow.fallback_to_graph
    ((key, told),) = applied.refused.items()
    assert key.startswith("chat.")
    assert why in told
