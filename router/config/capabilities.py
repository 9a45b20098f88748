"""What a set-up can do: fallback, takeover, shadow and replay, by who serves and who stands by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from router.config.sections import RemoteStackSettings
from router.stack import IN_PROCESS, Powers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.wire.dialect import Dialect
    from router.config.flow_settings import FlowSettings
    from router.config.sections import GatewaySettings, StackSettings
    from router.stack import StackName

Answer = Literal["yes", "no", "off"]

_FULL = 100_000
_LIVE = {
    False: ", and asks the model itself, told the answers that were served",
    True: ", and asks the model itself, told its own earlier answers",
}


@dataclass(frozen=True, slots=True)
class Capability:
    """Whether something works as configured, and how or why not; `off` is not asked for."""

    answer: Answer
    why: str


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """How models are asked here: through the gateway, and by shadows for themselves.

    `free`: those are told their own earlier answers.
    """

    gateway: bool = False
    live: bool = False
    free: bool = False


_PLAINLY = ModelAccess()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What can be done for requests of a flow that one stack serves."""

    served: StackName
    fallback: Capability
    takeover: Capability
    shadow: Capability
    replay: Capability


def powers_at(place: str | RemoteStackSettings) -> Powers:
    """Give what can be done with a stack by where it is."""
    if not isinstance(place, RemoteStackSettings):
        return IN_PROCESS
    return Powers(taped=False, shadows=place.shadow_safe, takes_over=place.resumable)


def powers_of(stacks: StackSettings) -> dict[StackName, Powers]:
    """Give what can be done with each stack."""
    return {"legacy": powers_at(stacks.place("legacy")), "graph": powers_at(stacks.place("graph"))}


def stacks_without(name: str, flow: FlowSettings, stacks: StackSettings) -> frozenset[StackName]:
    """Name the stacks that do not have a flow, as far as the configuration can tell."""
    return frozenset(one for one in powers_of(stacks) if _lack(one, name, flow, stacks))


def is_offered(name: str, flow: FlowSettings, stacks: StackSettings) -> bool:
    """Whether somebody who is to serve a flow has it; a declared one is refused otherwise."""
    return flow.declared is not None or not stacks_without(name, flow, stacks) >= set(
        serving_stacks(flow)
    )


def _lack(stack: StackName, name: str, flow: FlowSettings, stacks: StackSettings) -> str:
    """Say why a stack does not have a flow, "" if it may have it."""
    place = stacks.place(stack)
    if isinstance(place, RemoteStackSettings):
        return "" if place.serves(name) else f"stacks.{stack}.flows does not name it"
    if flow.declared is None:
        return ""
    return (
        f"{stack} is in this process, and a declared flow is on the wire alone: "
        f"[stacks.{stack}] needs a url"
    )


def service_gap(name: str, flow: FlowSettings, stacks: StackSettings) -> str | None:
    """Say why a flow cannot be served as configured: whoever is to serve it does not have it.

    A built-in flow that nobody has switched on and nobody has is none: it is not offered.
    """
    if flow.declared is None and not flow.enable_langgraph:
        return None
    gaps = [_lack(one, name, flow, stacks) for one in serving_stacks(flow)]
    return "; ".join(filter(None, gaps)) or None


def capabilities_of(
    flow: FlowSettings,
    powers: Mapping[StackName, Powers],
    lacks: frozenset[StackName] = frozenset(),
    asking: ModelAccess = _PLAINLY,
) -> tuple[Capabilities, ...]:
    """Say what works for a flow, for each stack that serves some of it.

    `lacks` are the stacks that do not have it.
    """
    return tuple(
        _abilities(one, flow, powers, lacks, asking)
        for one in serving_stacks(flow)
        if one not in lacks
    )


def shadow_fault(
    flow: FlowSettings,
    powers: Mapping[StackName, Powers],
    lacks: frozenset[StackName] = frozenset(),
) -> str | None:
    """Say why a flow's shadow can never run though it is asked for."""
    shadows = [one.shadow for one in capabilities_of(flow, powers, lacks)]
    if any(shadow.answer != "no" for shadow in shadows):
        return None
    return "; ".join(shadow.why for shadow in shadows)


def resumable_fault(place: RemoteStackSettings, gateway: GatewaySettings) -> str | None:
    """Say why a stack declared resumable cannot be so here."""
    if not place.resumable or gateway.enabled:
        return None
    return "its model must be asked through the gateway ([gateway] enabled = true)"


def serving_stacks(flow: FlowSettings) -> tuple[StackName, ...]:
    """Name the stacks that serve some of a flow."""
    if not flow.enable_langgraph or flow.graph_thousandths == 0:
        return ("legacy",)
    return ("graph",) if flow.graph_thousandths == _FULL else ("legacy", "graph")


def _abilities(
    served: StackName,
    flow: FlowSettings,
    powers: Mapping[StackName, Powers],
    lacks: frozenset[StackName],
    asking: ModelAccess,
) -> Capabilities:
    other: StackName = "legacy" if served == "graph" else "graph"
    none = Capability("no", f"{other} does not have this flow") if other in lacks else None
    fallback = _fallback(other, flow)
    shadow = _shadow(served, other, flow, powers, asking)
    takeover = fallback if fallback.answer == "off" else _takeover(served, other, powers)
    if takeover.answer == "yes" and flow.declared is not None and not told(flow.declared.dialect):
        takeover = Capability("no", "the flow's dialect does not say where its text is")
    return Capabilities(
        served,
        fallback if fallback.answer == "off" else none or fallback,
        takeover if takeover.answer == "off" else none or takeover,
        shadow if shadow.answer == "off" else none or shadow,
        Capability("yes", "from the tape")
        if powers[served].taped
        else Capability("no", f"{served} is behind an address: its effects are on no tape"),
    )


def told(dialect: Dialect) -> bool:
    """Whether a dialect says where its text is, so that it can be followed."""
    return bool(dialect.text) and dialect.payload == "json"


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
            why = _no_takeover(served, other, powers)
            return Capability("no", f"{why}: a broken stream ends in failure frames")


def _no_takeover(served: StackName, other: StackName, powers: Mapping[StackName, Powers]) -> str:
    if powers[served].taped == powers[other].taped:
        return f"{other} is behind an address and not declared resumable"
    remote, near = (other, served) if powers[served].taped else (served, other)
    return f"{remote} is behind an address: its calls are not those of {near}, in this process"


def _shadow(
    served: StackName,
    other: StackName,
    flow: FlowSettings,
    powers: Mapping[StackName, Powers],
    asking: ModelAccess,
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
    if powers[other].shadows_beside(powers[served]):
        how = _mirrors(served, other, powers, asking)
        return Capability("yes", f"{other} {how}")
    return Capability(
        "no",
        f"{served} is behind an address, so there is no tape for {other}, in this process, to play",
    )


def _mirrors(
    served: StackName, other: StackName, powers: Mapping[StackName, Powers], asking: ModelAccess
) -> str:
    """Say how a stack runs in the shadow of another, and whose model it asks."""
    if powers[other].taped:
        return "plays the tape" + (_LIVE[asking.free] if asking.live else "")
    if not asking.gateway or asking.live:
        return "is asked as well, with its own model"
    if powers[served].taped:
        return f"is asked as well, with its own model: {served}, in this process, asks no gateway"
    return "is asked as well; what both ask the model through the gateway is asked once"
