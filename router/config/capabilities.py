"""What a configuration can do: fallback, takeover, shadow and replay, by serving stack."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, get_args

from contract.flows.declared import DeclaredFlow
from router.config.schema import (
    SHADOW_SAFE,
    FlowSettings,
    RemoteStackSettings,
    Settings,
    StackSettings,
)
from router.stack import IN_PROCESS, Powers, StackName

Answer = Literal["yes", "no", "off"]

_ALL = 100
_IN_COMMON = "two formats, compared in what both can say"


@dataclass(frozen=True, slots=True)
class Capability:
    """Whether something works as configured, and how or why not; `off`: not switched on."""

    answer: Answer
    why: str


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
    return {"legacy": powers_at(stacks.legacy), "graph": powers_at(stacks.graph)}


def serving_stacks(flow: FlowSettings) -> tuple[StackName, ...]:
    """Return the stacks that serve some share of a flow."""
    if not flow.enable_langgraph or flow.langgraph_percent == 0:
        return ("legacy",)
    return ("graph",) if flow.langgraph_percent == _ALL else ("legacy", "graph")


def is_offered(name: str, settings: Settings) -> bool:
    """Whether a serving stack has the flow; a declared one is refused otherwise."""
    flow = settings.flows[name]
    return flow.declared is not None or any(
        not _why_without(one, name, settings) for one in serving_stacks(flow)
    )


def has_stack(name: str, settings: Settings) -> bool:
    """Whether some stack may have the flow, serving or not: then its path is taken."""
    return any(not _why_without(stack, name, settings) for stack in get_args(StackName))


def two_formats(flow: DeclaredFlow) -> str:
    """Return why neither stack can stand in for the other, where their services' formats differ."""
    graph = flow.graph_dialect.name if flow.graph_dialect is not None else ""
    return (
        f"clients read another format than graph streams ({graph}), and streams are passed on, not "
        "translated"
    )


def _served_by_graph(name: str, flow: FlowSettings) -> Iterator[str]:
    """Yield the keys by which graph would serve a flow."""
    keys = ("langgraph_percent", "force_graph", "fallback_to_graph")
    return (f"flows.{name}.{key}" for key in keys if getattr(flow, key))


def stack_faults(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield key and reason of what stacks are to do, and cannot as they are configured."""
    for stack in get_args(StackName):
        place = settings.stacks.place(stack)
        resumable = isinstance(place, RemoteStackSettings) and place.resumable
        if resumable and not settings.gateway.enabled:
            why = "its model must be called through the gateway ([gateway] enabled = true)"
            yield f"stacks.{stack}.resumable", why
    for name, flow in settings.flows.items():
        # A built-in flow that is switched off and that no stack has is not offered: no gap.
        if flow.declared is not None or flow.enable_langgraph:
            gaps = [_why_without(one, name, settings) for one in serving_stacks(flow)]
            if any(gaps):
                yield f"flows.{name}", "; ".join(filter(None, gaps))
        if flow.history == "own" and not (settings.stacks.legacy or settings.stacks.graph):
            why = "both stacks are built in, and store conversations in [stores]: they share them"
            yield f"flows.{name}.history", why
        if flow.declared is not None and flow.declared.graph_dialect is not None:
            for key in _served_by_graph(name, flow):
                why = "graph can be mirrored to, and cannot serve until graph_dialect is gone"
                yield key, f"{two_formats(flow.declared)}: {why}"
        shadows = [one.shadow for one in capabilities_of(name, settings)]
        if shadows and all(shadow.answer == "no" for shadow in shadows):
            yield f"flows.{name}.shadow_percent", "; ".join(shadow.why for shadow in shadows)


def capabilities_of(
    name: str, settings: Settings, without: Collection[StackName] = ()
) -> tuple[Capabilities, ...]:
    """Return what works for a flow, for each stack that serves some of it.

    `without` are stacks that turned out not to have the flow.
    """
    flow, powers = settings.flows[name], powers_of(settings.stacks)
    lacks = [one for one in powers if one in without or _why_without(one, name, settings)]
    found = []
    for served in serving_stacks(flow):
        if served in lacks:
            continue
        other: StackName = "legacy" if served == "graph" else "graph"
        fallback = _fallback(other, flow)
        shadow = _shadow(served, other, flow, settings)
        takeover = fallback if fallback.answer == "off" else _takeover(served, other, powers)
        declared = flow.declared
        if declared is not None and declared.graph_dialect is not None:
            no = Capability("no", two_formats(declared))
            kinds = fallback, takeover
            fallback, takeover = (one if one.answer == "off" else no for one in kinds)
            if shadow.answer == "yes":
                shadow = Capability("yes", f"{shadow.why}; {_IN_COMMON}")
        frames = powers[other].taped
        if takeover.answer == "yes" and declared and not (declared.dialect.locates_text or frames):
            takeover = Capability("no", "the flow's dialect does not say where its text is")
        if takeover.answer == "yes" and declared and declared.dialect.tools is not None:
            why = f"{takeover.why}; until the client has a piece of a tool call"
            takeover = Capability("yes", why)
        if other in lacks:
            none = Capability("no", f"{other} does not have this flow")
            fallback, takeover, shadow = (
                one if one.answer == "off" else none for one in (fallback, takeover, shadow)
            )
        if takeover.answer == "yes" and flow.history == "own":
            later = f"on a later turn if {other} has every earlier one"
            takeover = Capability("yes", f"{takeover.why}; {later}")
        replay = _replay(served, settings)
        found.append(Capabilities(served, fallback, takeover, shadow, replay))
    return tuple(found)


def history_cost(name: str, settings: Settings) -> str:
    """Return in a sentence what it costs where the conversations of a flow are stored.

    "" where that is in this process, or graph has no part in the flow.
    """
    flow, places = settings.flows[name], settings.stacks
    remote = any(isinstance(one, RemoteStackSettings) for one in (places.legacy, places.graph))
    if not flow.enable_langgraph or not (remote or flow.history == "own"):
        return ""
    if flow.history == "shared":
        return (
            "shared: both services read one store; a shadow reads it as it was before its message, "
            "and does not write to it"
        )
    if not flow.shadow_percent:
        return (
            "own: nothing is compared, and a move to the other stack (a rollback, a fallback) "
            "loses the history"
        )
    share = f"{flow.shadow_percent.normalize():f} % of conversations are"
    drawn = "every turn is" if flow.shadow_percent == _ALL else share
    return (
        f"own: {drawn} sent to both services; where one of them lacks a turn, what follows is not "
        "compared, and a move there (a rollback, a fallback) loses the history"
    )


def _why_without(stack: StackName, name: str, settings: Settings) -> str:
    """Return why a stack does not have a flow, as far as the configuration shows; "" if it may."""
    place = settings.stacks.place(stack)
    if isinstance(place, RemoteStackSettings):
        return "" if place.serves(name) else f"stacks.{stack}.flows does not name it"
    if settings.flows[name].declared is None or place:
        return ""
    return (
        f"{stack} is the built-in one, which has no declared flow: "
        f"[stacks] {stack} needs an address, or code of your own that has it"
    )


def _fallback(other: StackName, flow: FlowSettings) -> Capability:
    if other == "graph" and not flow.enable_langgraph:
        return Capability("off", "enable_langgraph = false")
    key = "langgraph_fallback" if other == "legacy" else "fallback_to_graph"
    if not getattr(flow, key):
        return Capability("off", f"{key} = false")
    return Capability("yes", f"{other} answers, before the first event")


def _takeover(
    served: StackName, other: StackName, powers: Mapping[StackName, Powers]
) -> Capability:
    match powers[other].repeats(powers[served]):
        case "frames":
            return Capability("yes", f"{other} continues from the tape")
        case "text":
            how = f"{other} continues the text, with the model's answers to {served} by the gateway"
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
    served: StackName, other: StackName, flow: FlowSettings, settings: Settings
) -> Capability:
    if not flow.enable_langgraph:
        return Capability("off", "enable_langgraph = false")
    if not flow.shadow_percent:
        return Capability("off", "shadow_percent = 0")
    powers, live = powers_of(settings.stacks), settings.shadow.mode == "live"
    if not powers[other].shadows:
        return Capability(
            "no",
            f"{other} is behind an address and not declared shadow_safe "
            f"(stacks.{other}.shadow_safe = true declares that {SHADOW_SAFE})",
        )
    if not powers[other].shadows_beside(powers[served]):
        return Capability(
            "no",
            f"{served} is behind an address, so there is no tape for {other}, "
            "in this process, to play",
        )
    if powers[other].taped:
        how = "plays the tape"
        if live:
            own = settings.shadow.history == "own"
            replies = "its own earlier replies" if own else "the replies that were served"
            how += f", and calls the model itself, after {replies}"
    elif not settings.gateway.enabled or live:
        how = "is called as well, with its own model"
    elif powers[served].taped:
        how = f"is called as well, with its own model: {served}, in this process, uses no gateway"
    else:
        how = "is called as well; equal model calls of both through the gateway are made once"
    return Capability("yes", f"{other} {how}")


def _replay(served: StackName, settings: Settings) -> Capability:
    """Return whether exchanges that a stack serves can be replayed, and on which stacks."""
    powers = powers_of(settings.stacks)
    if powers[served].taped:
        return Capability("yes", "from the tape")
    if not settings.gateway.enabled:
        why = "its model's answers are on no tape without gateway.enabled = true"
        return Capability("no", f"{served} is behind an address: {why}")
    able = [one for one, power in powers.items() if power.shadows and not power.taped]
    if not able:
        return Capability("no", "no service is declared shadow_safe: a replay sends requests again")
    return Capability(
        "yes", f"of {' and '.join(able)}, called again: the gateway answers from the tape"
    )


def default_models(settings: Settings) -> list[tuple[str, str]]:
    """Return which models flows use by default: the dotted key of the option, and the id.

    None where no stack is in this process: the others have models of their own.
    """
    if not any(powers.taped for powers in powers_of(settings.stacks).values()):
        return []
    return [
        (f"flows.{name}.options.{field}", model_id)
        for name, flow in settings.flows.items()
        for field in ("model_id", "vision_model_id")
        if (model_id := getattr(flow.options, field, None)) is not None
    ]


@dataclass(frozen=True, slots=True)
class Rung:
    """A step in adopting two services: what it still needs, and what it gives then."""

    name: str
    needs: tuple[str, ...]
    gives: Capability


_MIRROR = ("stacks.graph.shadow_safe", "flows.{}.enable_langgraph", "flows.{}.shadow_percent")
_SHARE = (
    "flows.{}.enable_langgraph",
    "flows.{}.langgraph_percent",
    "flows.{}.langgraph_fallback",
)
_GATEWAY = "gateway.enabled"
_RUNGS: tuple[tuple[str, StackName, str, tuple[str, ...]], ...] = (
    ("mirror", "legacy", "shadow", _MIRROR),
    ("gateway", "legacy", "shadow", (_GATEWAY, *_MIRROR)),
    ("replay", "legacy", "replay", (_GATEWAY, "stacks.graph.shadow_safe")),
    ("failover", "graph", "fallback", _SHARE),
    ("takeover", "graph", "takeover", (_GATEWAY, "stacks.legacy.resumable", *_SHARE)),
)
"""By name: who serves, what is asked of the other stack, and the keys that it takes."""
_SET = {"shadow_percent": Decimal(_ALL), "langgraph_percent": Decimal(1)}
"""What a key is set to, if not to true."""


def rungs_of(name: str, settings: Settings, *, called: bool = False) -> tuple[Rung, ...]:
    """Return what each step would give to a flow that both stacks serve behind an address.

    `called`: both are known to call their models through the gateway.
    """
    for stack in get_args(StackName):
        place = settings.stacks.place(stack)
        if not (isinstance(place, RemoteStackSettings) and place.serves(name)):
            return ()
    found = []
    for rung, served, kind, keys in _RUNGS:
        changed, needs = settings, []
        for key in (key.format(name) for key in keys):
            steps = tuple(key.split("."))
            if not _value_at(settings, steps):
                value = _SET.get(steps[-1], True)
                changed = _changed(changed, steps, value)
                needs.append(f"{key} = {str(value).lower()}")
        if _GATEWAY in keys and not called:
            needs.append("base_url of their OpenAI clients at the router (gateway.md)")
        declared = settings.flows[name].declared
        other_format = declared is not None and declared.graph_dialect is not None
        if kind not in {"shadow", "replay"} and other_format:
            needs = [f"a graph that streams as legacy does, and no flows.{name}.graph_dialect"]
        by_stack = {able.served: able for able in capabilities_of(name, changed)}
        if served in by_stack:
            found.append(Rung(rung, tuple(needs), getattr(by_stack[served], kind)))
    return tuple(found)


def _value_at(holder: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        holder = holder[step] if isinstance(holder, Mapping) else getattr(holder, step)
    return holder


def _changed(holder: Any, steps: Sequence[str], value: object) -> Any:
    """Return a section with one key set to a value, somewhere below it."""
    first, *rest = steps
    if rest:
        value = _changed(_value_at(holder, (first,)), rest, value)
    if isinstance(holder, Mapping):
        return {**holder, first: value}
    return holder.model_copy(update={first: value})
