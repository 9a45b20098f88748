"""What a set-up can do: the design's table, for each place of each stack."""

from __future__ import annotations

from decimal import Decimal

import pytest

from router.abilities import Abilities, abilities, powers_of, shadow_fault
from router.flow_settings import FlowSettings
from router.sections import Address, Stacks

HERE = ""
FAR = Address(url="http://far")
SAFE = Address(url="http://far", shadow_safe=True)
KINDS = ("fallback", "takeover", "shadow", "replay")


def able(legacy: str | Address, graph: str | Address, percent: int) -> dict[str, str]:
    """Say what works where everything is asked for, for the one stack that serves all."""
    flow = FlowSettings(
        enable_langgraph=True,
        langgraph_percent=Decimal(percent),
        fallback_to_graph=True,
        shadow_percent=Decimal(1),
    )
    (found,) = abilities(flow, powers_of(Stacks(legacy=legacy, graph=graph)))
    assert found.served == ("graph" if percent else "legacy")
    return said(found)


def said(found: Abilities) -> dict[str, str]:
    """Give the answers alone."""
    return {kind: getattr(found, kind).answer for kind in KINDS}


@pytest.mark.parametrize(
    ("served", "other", "answers"),
    [
        (HERE, HERE, "yes yes yes yes"),
        (HERE, FAR, "yes no no yes"),
        (HERE, SAFE, "yes no yes yes"),
        (FAR, HERE, "yes no no no"),
        (FAR, FAR, "yes no no no"),
        (SAFE, FAR, "yes no no no"),
        (FAR, SAFE, "yes no yes no"),
    ],
)
def test_each_pair_has_its_row(served: str | Address, other: str | Address, answers: str) -> None:
    """Whichever of the two serves."""
    expected = dict(zip(KINDS, answers.split(), strict=True))
    assert able(served, other, 0) == expected
    assert able(other, served, 100) == expected


def test_what_nobody_asked_for_is_off() -> None:
    """With the key that says so."""
    powers = powers_of(Stacks())
    (found,) = abilities(FlowSettings(), powers)
    assert said(found) == {"fallback": "off", "takeover": "off", "shadow": "off", "replay": "yes"}
    assert found.shadow.why == found.fallback.why == "enable_langgraph = false"
    (found,) = abilities(FlowSettings(enable_langgraph=True), powers)
    assert (found.shadow.why, found.fallback.why) == (
        "shadow_percent = 0",
        "fallback_to_graph = false",
    )


def test_a_ramp_is_refused_only_where_no_shadow_can_run() -> None:
    """Half of the requests can be mirrored: that is what there is."""
    ramp = FlowSettings(
        enable_langgraph=True, langgraph_percent=Decimal(10), shadow_percent=Decimal(100)
    )
    assert shadow_fault(ramp, powers_of(Stacks(legacy=FAR, graph=SAFE))) is None
    assert shadow_fault(ramp, powers_of(Stacks(legacy=FAR, graph=HERE))) == (
        "legacy is behind an address, so there is no tape for graph, in this process, to play; "
        "legacy is behind an address and not declared shadow_safe (stacks.legacy.shadow_safe = "
        "true says that, asked with x-cutover-role: shadow, it does nothing lasting)"
    )
