"""What a set-up can do: the design's table, for each place of each stack."""

from __future__ import annotations

from decimal import Decimal

import pytest

from router.config import (
    Capabilities,
    FlowSettings,
    GatewaySettings,
    ModelAccess,
    RemoteStackSettings,
    StackSettings,
    capabilities_of,
    powers_of,
    resumable_fault,
    shadow_fault,
)

HERE = ""
FAR = RemoteStackSettings(url="http://far")
SAFE = RemoteStackSettings(url="http://far", shadow_safe=True)
AGAIN = RemoteStackSettings(url="http://far", resumable=True)
KINDS = ("fallback", "takeover", "shadow", "replay")


ALL = FlowSettings(enable_langgraph=True, fallback_to_graph=True, shadow_percent=Decimal(1))


def able(
    legacy: str | RemoteStackSettings, graph: str | RemoteStackSettings, percent: int
) -> dict[str, str]:
    """Say what works where everything is asked for, for the one stack that serves all."""
    flow = FlowSettings(
        enable_langgraph=True,
        langgraph_percent=Decimal(percent),
        fallback_to_graph=True,
        shadow_percent=Decimal(1),
    )
    (found,) = capabilities_of(flow, powers_of(StackSettings(legacy=legacy, graph=graph)))
    assert found.served == ("graph" if percent else "legacy")
    return said(found)


def said(found: Capabilities) -> dict[str, str]:
    """Return the answers alone."""
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
        (FAR, AGAIN, "yes yes no no"),
        (AGAIN, FAR, "yes no no no"),
        (HERE, AGAIN, "yes no no yes"),
        (AGAIN, HERE, "yes no no no"),
    ],
)
def test_each_pair_has_its_row(
    served: str | RemoteStackSettings, other: str | RemoteStackSettings, answers: str
) -> None:
    """Whichever of the two serves."""
    expected = dict(zip(KINDS, answers.split(), strict=True))
    assert able(served, other, 0) == expected
    assert able(other, served, 100) == expected


def test_why_nobody_takes_over() -> None:
    """In one sentence each, with the key that would change it where there is one."""

    def why(legacy: str | RemoteStackSettings, graph: str | RemoteStackSettings) -> str:
        (found,) = capabilities_of(ALL, powers_of(StackSettings(legacy=legacy, graph=graph)))
        said, _, end = found.takeover.why.rpartition(": ")
        assert end == "a broken stream ends in failure frames"
        return said

    assert why(FAR, FAR) == "graph is behind an address and not declared resumable"
    near = "is behind an address: its calls are not those of"
    assert why(HERE, AGAIN) == f"graph {near} legacy, in this process"
    assert why(AGAIN, HERE) == f"legacy {near} graph, in this process"


OWN = "is asked as well, with its own model"
ITSELF = "plays the tape, and asks the model itself"


@pytest.mark.parametrize(
    ("stacks", "asking", "how"),
    [
        ((FAR, SAFE), ModelAccess(), OWN),
        (
            (FAR, SAFE),
            ModelAccess(gateway=True),
            "is asked as well; what both ask the model through the gateway is asked once",
        ),
        ((FAR, SAFE), ModelAccess(gateway=True, live=True), OWN),
        (
            (HERE, SAFE),
            ModelAccess(gateway=True),
            f"{OWN}: legacy, in this process, asks no gateway",
        ),
        ((HERE, HERE), ModelAccess(), "plays the tape"),
        ((HERE, HERE), ModelAccess(live=True), f"{ITSELF}, told the answers that were served"),
        (
            (HERE, HERE),
            ModelAccess(live=True, free=True),
            f"{ITSELF}, told its own earlier answers",
        ),
    ],
)
def test_whose_model_a_shadow_asks(
    stacks: tuple[str | RemoteStackSettings, str | RemoteStackSettings],
    asking: ModelAccess,
    how: str,
) -> None:
    """As it is configured: its own, or the one the serving stack has asked."""
    legacy, graph = stacks
    (found,) = capabilities_of(
        ALL, powers_of(StackSettings(legacy=legacy, graph=graph)), access=asking
    )
    assert found.shadow.why == f"graph {how}"


def test_resumable_needs_the_gateway() -> None:
    """Elsewhere the model's answers are on no tape that could be found again."""
    assert resumable_fault(FAR, GatewaySettings()) is None
    assert resumable_fault(AGAIN, GatewaySettings(enabled=True)) is None
    assert "[gateway] enabled = true" in str(resumable_fault(AGAIN, GatewaySettings()))


def test_what_nobody_asked_for_is_off() -> None:
    """With the key that says so."""
    powers = powers_of(StackSettings())
    (found,) = capabilities_of(FlowSettings(), powers)
    assert said(found) == {"fallback": "off", "takeover": "off", "shadow": "off", "replay": "yes"}
    assert found.shadow.why == found.fallback.why == "enable_langgraph = false"
    (found,) = capabilities_of(FlowSettings(enable_langgraph=True), powers)
    assert (found.shadow.why, found.fallback.why) == (
        "shadow_percent = 0",
        "fallback_to_graph = false",
    )


def test_a_ramp_is_refused_only_where_no_shadow_can_run() -> None:
    """Half of the requests can be mirrored: that is what there is."""
    ramp = FlowSettings(
        enable_langgraph=True, langgraph_percent=Decimal(10), shadow_percent=Decimal(100)
    )
    assert shadow_fault(ramp, powers_of(StackSettings(legacy=FAR, graph=SAFE))) is None
    assert shadow_fault(ramp, powers_of(StackSettings(legacy=FAR, graph=HERE))) == (
        "legacy is behind an address, so there is no tape for graph, in this process, to play; "
        "legacy is behind an address and not declared shadow_safe (stacks.legacy.shadow_safe = "
        "true says that, asked with x-cutover-role: shadow, it does nothing lasting)"
    )
