"""What a configuration can do: fallback, takeover, shadow and replay, by serving stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from contract.wire import Dialect
from router.config.schema import FlowSettings, GatewaySettings, RemoteStackSettings, StackSettings
from router.stack import IN_PROCESS, Powers, StackName

Answer = Literal["yes", "no", "off"]

_ALL = 100_000
_LIVE = {
    False: ", and asks the model itself, told the answers that were served",
    True: ", and asks the model itself, told its own earlier answers",
}


@dataclass(frozen=True, slots=True)
class Capability:
    """Whether something works as configured, and how or why not; `off`: not switched on."""

    answer: Answer
    why: str


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """Who calls the model: remote stacks through the `gateway`, shadows themselves if `live`.

    `free`: a shadow reads its own earlier answers.
    """

    gateway: bool = False
    live: bool = False
    free: bool = False


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What can be done for requests of a flow that the stack `served` serves."""

    served: StackName
    fallback: Capability
    takeover: Capability
    shadow: Capability
    replay: Capability


def powers_at(place: str | RemoteStackSettings) -> Powers:
    """Return what can be done with a stack, by where it is."""
    if not isinstance(place, RemoteStackSettings):
        return IN_PROCESS
    return Powers(taped=False, shadows=place.shadow_safe, takes_over=place.resumable)


def powers_of(stacks: StackSettings) -> dict[StackName, Powers]:
    """Return what can be done with each stack."""
    return {"legacy": powers_at(stacks.place("legacy")), "graph": powers_at(stacks.place("graph"))}


def serving_stacks(flow: FlowSettings) -> tuple[StackName, ...]:
    """Return the stacks that serve some share of a flow."""
    if not flow.enable_langgraph or flow.graph_thousandths == 0:
        return ("legacy",)
    return ("graph",) if flow.graph_thousandths == _ALL else ("legacy", "graph")


def stacks_without(name: str, flow: FlowSettings, stacks: StackSettings) -> frozenset[StackName]:
    """Return the stacks without a flow, as far as the configuration shows."""
    return frozenset(one for one in powers_of(stacks) if _why_without(one, name, flow, stacks))


def is_offered(name: str, flow: FlowSettings, stacks: StackSettings) -> bool:
    """Whether a serving stack has the flow; a declared one is refused otherwise."""
    lacking = stacks_without(name, flow, stacks)
    return flow.declared is not None or not lacking >= set(serving_stacks(flow))


def service_gap(name: str, flow: FlowSettings, stacks: StackSettings) -> str | None:
    """Return why a flow cannot be served as configured: a serving stack does not have it.

    A built-in flow that is switched off and that no stack has is not offered: that is no gap.
    """
    if flow.declared is None and not flow.enable_langgraph:
        return None
    gaps = [_why_without(one, name, flow, stacks) for one in serving_stacks(flow)]
    return "; ".join(filter(None, gaps)) or None


def shadow_fault(
    flow: FlowSettings,
    powers: Mapping[StackName, Powers],
    lacks: frozenset[StackName] = frozenset(),
) -> str | None:
    """Return why a flow's shadow can never run though it is switched on."""
    shadows = [one.shadow for one in capabilities_of(flow, powers, lacks)]
    if any(shadow.answer != "no" for shadow in shadows):
        return None
    return "; ".join(shadow.why for shadow in shadows)


def resumable_fault(place: RemoteStackSettings, gateway: GatewaySettings) -> str | None:
    """Return why a stack that is declared resumable cannot be so here."""
    if not place.resumable or gateway.enabled:
        return None
    return "its model must be asked through the gateway ([gateway] enabled = true)"


def locates_text(dialect: Dialect) -> bool:
    """Whether a dialect declares where its text is, so that it can be followed."""
    return bool(dialect.text) and dialect.payload == "json"


def capabilities_of(
    flow: FlowSettings,
    powers: Mapping[StackName, Powers],
    lacks: frozenset[StackName] = frozenset(),
    access: ModelAccess = ModelAccess(),
) -> tuple[Capabilities, ...]:
    """Return what works for a flow, for each stack that serves some of it.

    `lacks` are the stacks that do not have it.
    """
    found = []
    for served in serving_stacks(flow):
        if served in lacks:
            continue
        other: StackName = "legacy" if served == "graph" else "graph"
        fallback = _fallback(other, flow)
        shadow = _shadow(served, other, flow, powers, access)
        takeover = fallback if fallback.answer == "off" else _takeover(served, other, powers)
        declared = flow.declared
        if takeover.answer == "yes" and declared and not locates_text(declared.dialect):
            takeover = Capability("no", "the flow's dialect does not say where its text is")
        if other in lacks:
            none = Capability("no", f"{other} does not have this flow")
            fallback, takeover, shadow = (
                one if one.answer == "off" else none for one in (fallback, takeover, shadow)
            )
        replay = (
            Capability("yes", "from the tape")
            if powers[served].taped
            else Capability("no", f"{served} is behind an address: its effects are on no tape")
        )
        found.append(Capabilities(served, fallback, takeover, shadow, replay))
    return tuple(found)


def _why_without(stack: StackName, name: str, flow: FlowSettings, stacks: StackSettings) -> str:
    place = stacks.place(stack)
    if isinstance(place, RemoteStackSettings):
        return "" if place.serves(name) else f"stacks.{stack}.flows does not name it"
    if flow.declared is None:
        return ""
    return (
        f"{stack} is in this process, and a declared flow is on the wire alone: "
        f"[stacks.{stack}] needs a url"
    )


def _fallback(other: StackName, flow: FlowSettings) -> Capability:
    if other == "legacy":
        key, on = "langgraph_fallback", flow.langgraph_fallback
    elif not flow.enable_langgraph:
        return Capability("off", "enable_langgraph = false")
    else:
        key, on = "fallback_to_graph", flow.fallback_to_graph
    if not on:
        return Capability("off", f"{key} = false")
    return Capability("yes", f"{other} answers, before the first event")


def _takeover(
    served: StackName, other: StackName, powers: Mapping[StackName, Powers]
) -> Capability:
    match powers[other].repeats(powers[served]):
        case "frames":
            return Capability("yes", f"{other} goes on from the tape")
        case "text":
            how = f"{other} goes on in the text, with what the model told {served} by the gateway"
            return Capability("yes", how)
        case None:
            if powers[served].taped == powers[other].taped:
                why = f"{other} is behind an address and not declared resumable"
            else:
                remote, near = (other, served) if powers[served].taped else (served, other)
                why = (
                    f"{remote} is behind an address: its calls are not those of {near}, "
                    "in this process"
                )
            return Capability("no", f"{why}: a broken stream ends in failure frames")


def _shadow(
    served: StackName,
    other: StackName,
    flow: FlowSettings,
    powers: Mapping[StackName, Powers],
    access: ModelAccess,
) -> Capability:
    if not flow.enable_langgraph:
        return Capability("off", "enable_langgraph = false")
    if not flow.shadow_thousandths:
        return Capability("off", "shadow_percent = 0")
    if not powers[other].shadows:
        return Capability(
            "no",
            f"{other} is behind an address and not declared shadow_safe "
            f"(stacks.{other}.shadow_safe = true says that, asked with x-cutover-role: shadow, "
            "it does nothing lasting)",
        )
    if not powers[other].shadows_beside(powers[served]):
        return Capability(
            "no",
            f"{served} is behind an address, so there is no tape for {other}, "
            "in this process, to play",
        )
    if powers[other].taped:
        how = "plays the tape" + (_LIVE[access.free] if access.live else "")
    elif not access.gateway or access.live:
        how = "is asked as well, with its own model"
    elif powers[served].taped:
        how = f"is asked as well, with its own model: {served}, in this process, asks no gateway"
    else:
        how = "is asked as well; what both ask the model through the gateway is asked once"
    return Capability("yes", f"{other} {how}")
