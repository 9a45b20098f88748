"""Probing the flows of a configuration: each service behind an address is asked once a flow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import get_args

from contract.errors import CutoverError
from contract.flow import FlowSpec
from contract.flows import SPECS
from cutover.flows import flows_of
from cutover.probe import NoAnswer, ProbeRequest, ask
from cutover.recognition import NoStream, Recognised, read_as, recognise
from router.config.capabilities import Capabilities, capabilities_of
from router.config.schema import RemoteStackSettings, Settings
from router.remote import endpoint_url
from router.stack import StackName

Found = Recognised | NoStream | NoAnswer


class NoSuchFlow(CutoverError):
    """A flow is to be asked that no service behind an address has."""

    def __init__(self, name: str, known: Mapping[str, object]) -> None:
        listed = ", ".join(known) or "none"
        super().__init__(f"no service behind an address has flow {name!r}; known: {listed}")


class WhichFlow(CutoverError):
    """A body is given, and there are several flows that it may be for."""

    def __init__(self, known: Mapping[str, object]) -> None:
        super().__init__(f"the body is for one flow: --flow {'|'.join(known)}")


@dataclass(frozen=True, slots=True)
class Seen:
    """What one service answered; `fits` is whether that is a stream of its dialect there."""

    stack: StackName
    found: Found
    fits: bool


@dataclass(frozen=True, slots=True)
class Promise:
    """Something that works as configured, and whether what was seen bears it out."""

    kind: str
    served: StackName
    holds: bool
    why: str


def probed_flows(settings: Settings) -> dict[str, tuple[StackName, ...]]:
    """Return the flows that services behind addresses have, with these services."""
    found: dict[str, tuple[StackName, ...]] = {}
    for name in settings.flows:
        stacks = tuple(stack for stack in get_args(StackName) if _address(stack, name, settings))
        if stacks:
            found[name] = stacks
    return found


def requests_for(
    settings: Settings, request: ProbeRequest | None, flow: str, template: ProbeRequest
) -> dict[str, ProbeRequest | None]:
    """Return what is sent for each flow: the given request, or its example; None without either.

    `flow` names the one that is probed, "" is all; `template` has headers and limit. Raises
    `NoSuchFlow` and `WhichFlow`.
    """
    known = probed_flows(settings)
    if flow and flow not in known:
        raise NoSuchFlow(flow, known)
    wanted = [flow] if flow else list(known)
    if request is not None:
        if len(wanted) > 1:
            raise WhichFlow(known)
        return dict.fromkeys(wanted, request)
    specs = flows_of(settings)
    return {
        name: replace(template, body=specs[name].example.encode()) if specs[name].example else None
        for name in wanted
    }


async def see(stack: StackName, name: str, settings: Settings, request: ProbeRequest) -> Seen:
    """Ask one service for a flow, and hold its answer against its dialect there."""
    spec, address = flows_of(settings)[name].sent_by(stack), _address(stack, name, settings)
    if address is None:
        raise AssertionError
    try:
        answer = await ask(address, endpoint_url(address, spec), request)
    except NoAnswer as error:
        return Seen(stack, error, fits=False)
    own = read_as(spec.dialect, answer, _strictly(spec))
    if own is not None:
        return Seen(stack, own, fits=True)
    return Seen(stack, recognise(answer, SPECS, request.value), fits=False)


def promises_of(name: str, settings: Settings, seen: Mapping[StackName, Seen]) -> Iterator[Promise]:
    """Yield what works as configured between two services, held against what was seen."""
    for able in capabilities_of(name, settings):
        other: StackName = "legacy" if able.served == "graph" else "graph"
        if other not in seen or able.served not in seen:
            continue
        for kind in ("fallback", "takeover", "shadow"):
            if getattr(able, kind).answer == "yes":
                yield _promise(kind, able, seen[able.served], seen[other])


def _promise(kind: str, able: Capabilities, served: Seen, other: Seen) -> Promise:
    wrong = [one.stack for one in (served, other) if not one.fits]
    if wrong:
        why = f"{' and '.join(wrong)} did not answer in the configured format"
        return Promise(kind, able.served, holds=False, why=why)
    mute = [
        one.stack
        for one in (served, other)
        if isinstance(one.found, Recognised) and not one.found.reading.text
    ]
    if kind == "takeover" and mute:
        why = f"no text was found in the answer of {' and '.join(mute)}"
        return Promise(kind, able.served, holds=False, why=why)
    seen = {
        "fallback": f"{other.stack} answers in the format that clients of {served.stack} read",
        "takeover": "both have a text at the place that the dialect names; that it is the same, "
        "with the same answers of the model, is what resumable promises",
        "shadow": f"{other.stack} answers a shadow's request; no request shows that shadow_safe is "
        "true of it",
    }
    return Promise(kind, able.served, holds=True, why=seen[kind])


def _address(stack: StackName, name: str, settings: Settings) -> RemoteStackSettings | None:
    place = settings.stacks.place(stack)
    return place if isinstance(place, RemoteStackSettings) and place.serves(name) else None


def _strictly(spec: FlowSpec) -> FlowSpec | None:
    """Return the flow whose events are all that may come; None of a declared one."""
    return None if spec.declared else spec
