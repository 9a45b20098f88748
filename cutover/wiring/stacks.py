"""The two stacks: the only place that names both. Retiring one is deleting its line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from contract.errors import CutoverError
from effects.circuit_breaker import CircuitBreaker, after_each_failure
from router.config import RemoteStackSettings, serving_stacks
from router.remote import RemoteStack
from router.serving.stack import LocalStack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AsyncExitStack

    from contract.flow import FlowSpec, OpenedFlows
    from router.config import Settings, StackSettings
    from router.stack import Stack, StackName

DEFAULTS: Mapping[StackName, str] = {
    "legacy": "legacy:FLOWS",
    "graph": "graph_impl:FLOWS",
}
"""Where each stack's flows are: `package:NAME`, a mapping from flow name to flow."""

REST_SECONDS = 30.0
"""How long a stack skips its own store after a call of it hung."""

_CODE = frozenset({".py", ".j2", ".md"})


class StackNotLoaded(CutoverError):
    """A stack's flows are not where they were said to be."""

    def __init__(self, name: str, where: str, why: str) -> None:
        super().__init__(f"stack {name!r} cannot be loaded from {where!r}: {why}")


class FlowNotHad(CutoverError):
    """A stack is to serve a flow it does not have."""

    def __init__(self, stack: str, flow: str) -> None:
        super().__init__(f"stack {stack!r} is to serve flow {flow!r}, and does not have it")


def refuse_gaps(
    settings: Settings, flows: Mapping[str, FlowSpec], stacks: Mapping[StackName, Stack]
) -> None:
    """Raise `FlowNotHad` where a flow that is switched on is to be served by who has it not."""
    for name, flow in settings.flows.items():
        if not flow.enable_langgraph and flow.declared is None:
            continue  # not offered where nobody has it
        for stack in serving_stacks(flow):
            if not stacks[stack].serves(flows[name]):
                raise FlowNotHad(stack, name)


async def open_stacks(
    stacks: StackSettings, opened: AsyncExitStack, checkpoints: str = ""
) -> dict[StackName, Stack]:
    """Import the stacks in this process and open the others; raises `StackNotLoaded`.

    `checkpoints` is where stacks that keep something of their own keep it; "" is nowhere.
    """
    found: dict[StackName, Stack] = {}
    for name, default in DEFAULTS.items():
        place = stacks.place(name) or default
        if isinstance(place, RemoteStackSettings):
            found[name] = await opened.enter_async_context(RemoteStack.open(name, place))
        else:
            found[name] = await _keeping(load_stack(name, place), place, checkpoints, opened)
    return found


async def _keeping(
    stack: LocalStack, place: str, checkpoints: str, opened: AsyncExitStack
) -> LocalStack:
    """Open a stack that keeps something by its module's `opened`; any other stays as it is."""
    kept = await _opened(place, checkpoints, opened)
    return stack if kept is None else replace(stack, flows=kept.flows, forget=kept.forget)


async def open_keepers(
    stacks: StackSettings, opened: AsyncExitStack, checkpoints: str
) -> list[OpenedFlows]:
    """Open what the stacks in this process keep of their own there; raises what they raise."""
    places = [stacks.place(name) or default for name, default in DEFAULTS.items()]
    kept = [
        await _opened(place, checkpoints, opened)
        for place in places
        if not isinstance(place, RemoteStackSettings)
    ]
    return [one for one in kept if one is not None]


async def _opened(place: str, checkpoints: str, opened: AsyncExitStack) -> OpenedFlows | None:
    hook = getattr(import_module(place.partition(":")[0]), "opened", None)
    if hook is None or not checkpoints:
        return None
    breaker = CircuitBreaker(after_each_failure(REST_SECONDS))
    kept: OpenedFlows = await opened.enter_async_context(hook(checkpoints, breaker))
    return kept


def load_stacks() -> dict[StackName, LocalStack]:
    """Import the built-in stacks; raises `StackNotLoaded`."""
    return {name: load_stack(name, where) for name, where in DEFAULTS.items()}


def load_stack(name: StackName, where: str) -> LocalStack:
    """Import one stack from `package:NAME`; raises `StackNotLoaded`."""
    module_name, _, attribute = where.partition(":")
    try:
        module = import_module(module_name)
        flows = getattr(module, attribute or "FLOWS")
    except (ImportError, AttributeError) as error:
        raise StackNotLoaded(name, where, str(error)) from error
    if not isinstance(flows, Mapping) or not all(map(callable, flows.values())):
        why = "that is no mapping from the names of flows to flows"
        raise StackNotLoaded(name, where, why)
    return LocalStack(name, flows, fingerprint(module_name))


def fingerprint(module_name: str) -> str:
    """Digest a stack's code, its prompts and the rules it follows: 12 hex digits."""
    digest = blake2b(digest_size=6)
    for package in (module_name, "rules"):
        for path in sorted(_files(package)):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _files(module_name: str) -> Iterator[Path]:
    origin = import_module(module_name).__file__
    if origin is None:
        return
    place = Path(origin)
    if place.name != "__init__.py":
        yield place
        return
    yield from (path for path in place.parent.rglob("*") if path.suffix in _CODE)
