"""What a set-up can do: the design's table, for each place of each stack."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from contract.flows.chat import CHAT
from router.config.capabilities import Capabilities, capabilities_of, history_cost, rungs_of
from router.config.errors import ConfigRefused
from router.config.loader import parse_settings
from router.config.schema import (
    FlowSettings,
    GatewaySettings,
    RemoteStackSettings,
    Settings,
    ShadowSettings,
    StackSettings,
)

Place = str | RemoteStackSettings

HERE = ""
FAR = RemoteStackSettings(url="http://far")
SAFE = RemoteStackSettings(url="http://far", shadow_safe=True)
AGAIN = RemoteStackSettings(url="http://far", resumable=True)
KINDS = ("fallback", "takeover", "shadow", "replay")
GATEWAY = GatewaySettings(enabled=True)
ALL = FlowSettings(enable_langgraph=True, fallback_to_graph=True, shadow_percent=Decimal(1))


def found(
    flow: FlowSettings, legacy: Place = HERE, graph: Place = HERE, **sections: Any
) -> Capabilities:
    """Return what works for a flow that one stack serves."""
    stacks = StackSettings(legacy=legacy, graph=graph)
    (only,) = capabilities_of("chat", Settings(flows={"chat": flow}, stacks=stacks, **sections))
    return only


def answers_of(found: Capabilities) -> str:
    """Return the answers alone."""
    return " ".join(getattr(found, kind).answer for kind in KINDS)


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
def test_each_pair_has_its_row(served: Place, other: Place, answers: str) -> None:
    """Whichever of the two serves."""
    legacy = found(ALL, served, other)
    graph = found(ALL.model_copy(update={"langgraph_percent": Decimal(100)}), other, served)
    assert (legacy.served, graph.served) == ("legacy", "graph")
    assert answers_of(legacy) == answers_of(graph) == answers


@pytest.mark.parametrize(
    ("legacy", "graph", "how"),
    [
        (FAR, SAFE, "yes of graph"),
        (SAFE, SAFE, "yes of legacy and graph"),
        (SAFE, HERE, "yes of legacy"),
        (FAR, HERE, "no no service is declared shadow_safe"),
        (HERE, SAFE, "yes from the tape"),
    ],
)
def test_with_the_gateway_services_are_replayed(legacy: Place, graph: Place, how: str) -> None:
    """Those that have promised to do nothing on a request that is no user's."""
    replay = found(ALL, legacy, graph, gateway=GATEWAY).replay
    assert f"{replay.answer} {replay.why}".startswith(how)


@pytest.mark.parametrize(
    ("legacy", "graph", "why"),
    [
        (FAR, FAR, "graph is behind an address and not declared resumable"),
        (
            HERE,
            AGAIN,
            "graph is behind an address: its calls are not those of legacy, in this process",
        ),
        (
            AGAIN,
            HERE,
            "legacy is behind an address: its calls are not those of graph, in this process",
        ),
    ],
)
def test_why_nobody_takes_over(legacy: Place, graph: Place, why: str) -> None:
    """In one sentence each, with the key that would change it where there is one."""
    told = found(ALL, legacy, graph).takeover.why
    assert told == f"{why}: a broken stream ends in failure frames"


OWN = "is called as well, with its own model"
ITSELF = "plays the tape, and calls the model itself"
LIVE = ShadowSettings(mode="live")


@pytest.mark.parametrize(
    ("legacy", "graph", "sections", "how"),
    [
        (FAR, SAFE, {}, OWN),
        (
            FAR,
            SAFE,
            {"gateway": GATEWAY},
            "is called as well; equal model calls of both through the gateway are made once",
        ),
        (FAR, SAFE, {"gateway": GATEWAY, "shadow": LIVE}, OWN),
        (HERE, SAFE, {"gateway": GATEWAY}, f"{OWN}: legacy, in this process, uses no gateway"),
        (HERE, HERE, {}, "plays the tape"),
        (HERE, HERE, {"shadow": LIVE}, f"{ITSELF}, after the replies that were served"),
        (
            HERE,
            HERE,
            {"shadow": LIVE.model_copy(update={"history": "own"})},
            f"{ITSELF}, after its own earlier replies",
        ),
    ],
)
def test_whose_model_a_shadow_asks(
    legacy: Place, graph: Place, sections: dict[str, Any], how: str
) -> None:
    """As it is configured: its own, or the one the serving stack has asked."""
    assert found(ALL, legacy, graph, **sections).shadow.why == f"graph {how}"


@pytest.mark.parametrize(
    ("history", "percent", "cost"),
    [
        ("shared", 1, "shared: both services read one store; a shadow reads it as it was"),
        ("own", 100, "own: every turn is sent to both services; where one of them lacks a turn"),
        ("own", 2.5, "own: 2.5 % of conversations are sent to both services"),
        ("own", 0, "own: nothing is compared, and a move to the other stack"),
    ],
)
def test_what_the_place_of_histories_costs_is_a_sentence(
    history: str, percent: float, cost: str
) -> None:
    """None is needed where the router stores the conversations, or where the flow is off."""
    flow = ALL.model_copy(update={"history": history, "shadow_percent": Decimal(str(percent))})
    stacks = StackSettings(legacy=FAR, graph=SAFE)
    settings = Settings(flows={"chat": flow}, stacks=stacks)
    assert history_cost("chat", settings).startswith(cost)
    off = flow.model_copy(update={"enable_langgraph": False})
    assert not history_cost("chat", Settings(flows={"chat": off}, stacks=stacks))
    assert bool(history_cost("chat", Settings(flows={"chat": flow}))) == (history == "own")


def test_a_takeover_needs_the_earlier_turns_where_each_stack_stores_its_own() -> None:
    """A first turn has none."""
    flow = ALL.model_copy(update={"history": "own"})
    takeover = found(flow, FAR, AGAIN, gateway=GATEWAY).takeover
    assert takeover.answer == "yes"
    assert takeover.why.endswith("; on a later turn if graph has every earlier one")


def test_what_nobody_asked_for_is_off() -> None:
    """With the key that says so."""
    off = found(FlowSettings())
    assert answers_of(off) == "off off off yes"
    assert off.shadow.why == off.fallback.why == "enable_langgraph = false"
    on = found(FlowSettings(enable_langgraph=True))
    assert (on.shadow.why, on.fallback.why) == ("shadow_percent = 0", "fallback_to_graph = false")


def test_a_ramp_is_refused_only_where_no_shadow_can_run() -> None:
    """Half of the requests can be mirrored: that is what there is."""
    ramp = "[flows.chat]\nenable_langgraph = true\nlanggraph_percent = 10\nshadow_percent = 100\n"
    far = '[stacks]\nlegacy = "http://far"\n'
    safe = f'{far}[stacks.graph]\nurl = "http://far"\nshadow_safe = true\n'
    parse_settings(ramp + safe, "file", {"chat": CHAT})
    with pytest.raises(ConfigRefused) as refused:
        parse_settings(ramp + far, "file", {"chat": CHAT})
    assert refused.value.key == "flows.chat.shadow_percent"
    assert refused.value.why == (
        "legacy is behind an address, so there is no tape for graph, in this process, to play; "
        "legacy is behind an address and not declared shadow_safe (stacks.legacy.shadow_safe = "
        "true declares that on a request with x-cutover-role: shadow it sends nothing, charges "
        "nothing and changes no store that another service reads)"
    )


@pytest.mark.parametrize(("dialect", "limited"), [("openai", True), ("text", False)])
def test_a_takeover_ends_with_a_tool_call_where_the_dialect_names_them(
    dialect: str, limited: bool
) -> None:
    """The limit is named where it can be met."""
    stack = '[stacks.{}]\nurl = "http://far"\nresumable = true\nflows = ["support"]\n'
    text = f"""
{stack.format("legacy")}{stack.format("graph")}
[gateway]
enabled = true
[flows.support]
path = "/api/support"
dialect = "{dialect}"
enable_langgraph = true
langgraph_percent = 100
"""
    settings = parse_settings(text, "file", {})
    (able,) = capabilities_of("support", settings)
    assert able.takeover.answer == "yes"
    assert able.takeover.why.endswith("; until the client has a piece of a tool call") == limited


def rungs(legacy: Place, graph: Place, **flow: Any) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return what each step would give, and what it takes, by name."""
    settings = Settings(
        flows={"chat": FlowSettings(**flow)}, stacks=StackSettings(legacy=legacy, graph=graph)
    )
    return {one.name: (one.gives.answer, one.needs) for one in rungs_of("chat", settings)}


def test_each_step_says_what_it_takes_from_here() -> None:
    """Of two services of which nothing is declared: all can be had, and nothing is in force."""
    on, share = "flows.chat.enable_langgraph = true", "flows.chat.langgraph_percent = 1"
    shadow = ("stacks.graph.shadow_safe = true", on, "flows.chat.shadow_percent = 100")
    gateway = "gateway.enabled = true"
    clients = "base_url of their OpenAI clients at the router (gateway.md)"
    assert rungs(FAR, FAR) == {
        "mirror": ("yes", shadow),
        "gateway": ("yes", (gateway, *shadow, clients)),
        "replay": ("yes", (gateway, shadow[0], clients)),
        "failover": ("yes", (on, share)),
        "takeover": ("yes", (gateway, "stacks.legacy.resumable = true", on, share, clients)),
    }


def test_what_is_in_force_takes_nothing_more() -> None:
    """Whatever the shares are."""
    flow = {"enable_langgraph": True, "shadow_percent": Decimal(5)}
    found = rungs(FAR, SAFE, langgraph_percent=Decimal(2), **flow)
    assert (found["mirror"], found["failover"]) == (("yes", ()), ("yes", ()))


def test_steps_are_those_of_two_services() -> None:
    """A stack of this process, or a service without the flow, has no such ladder."""
    other = RemoteStackSettings(url="http://far", flows=frozenset({"other"}))
    assert rungs(HERE, FAR) == rungs(FAR, HERE) == rungs(FAR, other) == {}
