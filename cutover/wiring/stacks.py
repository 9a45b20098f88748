"""The two stacks: the only place that names both. Retiring one means deleting its line."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from contract.errors import CutoverError
from contract.flow import FlowSpec, OpenedFlows
from contract.threads import ReadThreads
from cutover.own_modules import refuse_hidden
from effects.circuit_breaker import CircuitBreaker, after_each_failure
from router.config.capabilities import serving_stacks
from router.config.schema import RemoteStackSettings, Settings, StackSettings
from router.remote import RemoteStack
from router.serving.stack import Bind, LocalStack, Stack
from router.stack import StackName
from rules.prompts import PromptRefused

DEFAULTS: Mapping[StackName, str] = {
    "legacy": "legacy:FLOWS",
    "graph": "graph_impl:FLOWS",
}
"""Where each stack's flows are: `package:NAME`, a mapping from flow name to flow."""

REST_SECONDS = 30.0
"""How long a stack skips its own store after a call of it hung."""

NO_PROMPTS: Mapping[str, Path] = {}

_CODE = frozenset({".py", ".j2", ".md"})

log = logging.getLogger(__name__)


class StackNotLoaded(CutoverError):
    """A stack's flows are not where the configuration says."""

    def __init__(self, name: str, where: str, why: str) -> None:
        super().__init__(f"stack {name!r} cannot be loaded from {where!r}: {why}")


class FlowMissing(CutoverError):
    """A stack is to serve a flow it does not have."""

    def __init__(self, stack: str, flow: str) -> None:
        super().__init__(f"stack {stack!r} is to serve flow {flow!r}, and does not have it")


def refuse_missing_flows(
    settings: Settings, flows: Mapping[str, FlowSpec], stacks: Mapping[StackName, Stack]
) -> None:
    """Raise `FlowMissing` where a flow that is enabled is to be served by a stack without it."""
    for name, flow in settings.flows.items():
        if not flow.enable_langgraph and flow.declared is None:
            continue  # not offered if no stack has it
        left = next(iter(stacks))  # serves in the place of a retired stack
        for stack in (one if one in stacks else left for one in serving_stacks(flow)):
            if not stacks[stack].serves(flows[name]):
                raise FlowMissing(stack, name)


def places(stacks: StackSettings) -> dict[StackName, str | RemoteStackSettings]:
    """Return where each stack is: as configured, or by default in this process."""
    return {name: stacks.place(name) or default for name, default in DEFAULTS.items()}


def prompt_folders(settings: Settings) -> dict[str, Path]:
    """Return the folders of prompts that a configuration names, by flow."""
    return {name: Path(flow.prompts) for name, flow in settings.flows.items() if flow.prompts}


async def open_stacks(
    stacks: StackSettings,
    opened: AsyncExitStack,
    checkpoints: str = "",
    prompts: Mapping[str, Path] = NO_PROMPTS,
) -> dict[StackName, Stack]:
    """Import the stacks of this process and open the others.

    Raises `StackNotLoaded` and `ModuleHidden`.

    `checkpoints` is where stacks that store copies of conversations do so; "" is nowhere. `prompts`
    are folders by flow.
    """
    found: dict[StackName, Stack] = {}
    for name, place in places(stacks).items():
        if isinstance(place, RemoteStackSettings):
            found[name] = await opened.enter_async_context(RemoteStack.open(name, place))
            continue
        if stacks.place(name):
            refuse_hidden(place)
        stack = load_stack(name, place, prompts)
        flows = await _open_flows(place, checkpoints, opened, prompts)
        if flows:
            stack = replace(stack, flows=flows.flows, forget=flows.forget)
        await opened.enter_async_context(stack.opened())
        found[name] = stack
    return found


async def open_stored_flows(
    stacks: StackSettings, opened: AsyncExitStack, checkpoints: str
) -> list[OpenedFlows]:
    """Open the stacks of this process that store copies of conversations."""
    local = [one for one in places(stacks).values() if isinstance(one, str)]
    flows = [await _open_flows(place, checkpoints, opened) for place in local]
    return [one for one in flows if one is not None]


async def _open_flows(
    place: str,
    checkpoints: str,
    opened: AsyncExitStack,
    prompts: Mapping[str, Path] = NO_PROMPTS,
) -> OpenedFlows | None:
    """Call the `opened` hook of a stack's module; None where it has none or stores nothing.

    A module that has the hook `with_prompts` takes `prompts` in this one, too.
    """
    module = import_module(place.partition(":")[0])
    hook = getattr(module, "opened", None)
    if hook is None or not checkpoints:
        return None
    breaker = CircuitBreaker(after_each_failure(REST_SECONDS))
    own = {"prompts": prompts} if prompts and hasattr(module, "with_prompts") else {}
    flows: OpenedFlows = await opened.enter_async_context(hook(checkpoints, breaker, **own))
    return flows


class NoReaderOfThreads(CutoverError):
    """No stack can read the checkpoints of an application's own graph."""

    def __init__(self) -> None:
        super().__init__("no stack of this process reads saved threads (hook saved_threads)")


def reader_of_threads() -> ReadThreads:
    """Return the built-in stack's hook that reads saved threads; raises `NoReaderOfThreads`."""
    for place in DEFAULTS.values():
        hook = getattr(import_module(place.partition(":")[0]), "saved_threads", None)
        if hook is not None:
            read: ReadThreads = hook
            return read
    raise NoReaderOfThreads


class NoDiagram(CutoverError):
    """A stack has no diagram of a flow."""

    def __init__(self, where: str, flow: str) -> None:
        super().__init__(f"{where!r} has no diagram of flow {flow!r}")


def diagrams_of(where: str, flow: str) -> Mapping[str, str]:
    """Return the Mermaid diagrams of a flow, by title, from a stack's hook `describe(flow)`.

    Raises `NoDiagram` or `StackNotLoaded`.
    """
    module_name = where.partition(":")[0]
    try:
        describe = getattr(import_module(module_name), "describe", None)
    except ImportError as error:
        raise StackNotLoaded(module_name, where, str(error)) from error
    diagrams: Mapping[str, str] = describe(flow) if describe else {}
    if not diagrams:
        raise NoDiagram(where, flow)
    return diagrams


def load_stacks() -> dict[StackName, LocalStack]:
    """Import the built-in stacks; raises `StackNotLoaded`."""
    return {name: load_stack(name, where) for name, where in DEFAULTS.items()}


def load_stack(name: StackName, where: str, prompts: Mapping[str, Path] = NO_PROMPTS) -> LocalStack:
    """Import one stack from `package:NAME`; raises `StackNotLoaded`.

    `prompts` are folders by flow, for the module's hook `with_prompts(prompts)`.
    """
    module_name, _, attribute = where.partition(":")
    try:
        module = import_module(module_name)
        flows = getattr(module, attribute or "FLOWS")
    except (ImportError, AttributeError) as error:
        raise StackNotLoaded(name, where, str(error)) from error
    if not isinstance(flows, Mapping) or not all(map(callable, flows.values())):
        why = "that is no mapping from the names of flows to flows"
        raise StackNotLoaded(name, where, why)
    if prompts and not hasattr(module, "with_prompts"):
        log.warning("stack %r reads no prompts of %s: no with_prompts", name, ", ".join(prompts))
        prompts = NO_PROMPTS
    for flow, folder in prompts.items():
        if not folder.is_dir():
            raise StackNotLoaded(name, where, f"flows.{flow}.prompts: no folder {str(folder)!r}")
    if prompts:
        try:
            flows = {**flows, **module.with_prompts(prompts)}
        except PromptRefused as refused:
            raise StackNotLoaded(name, where, str(refused)) from refused
    stack = LocalStack(name, flows, fingerprint(module_name, prompts))
    return stack if where in DEFAULTS.values() else _with_client(stack)


def _with_client(stack: LocalStack) -> LocalStack:
    """Bind the client to the runs of a stack; where it is not installed, it is not used."""
    if find_spec("cutover_client") is None:
        return stack
    bind: Bind = import_module("router.gateway.in_process").client_bound
    stack = replace(stack, bind=bind)
    bound: LocalStack = import_module("router.remote.applications").with_applications(stack)
    return bound


def fingerprint(module_name: str, prompts: Mapping[str, Path] = NO_PROMPTS) -> str:
    """Return a digest of a stack's code and prompts and of the rules: 12 hex digits.

    `prompts` are folders by flow; of each the files count whose names begin with the flow's.
    """
    digest = blake2b(digest_size=6)
    files = [path for package in (module_name, "rules") for path in sorted(_files(package))]
    for flow, folder in sorted(prompts.items()):
        found = (one for path in folder.glob(f"{flow}_*") for one in (path, *path.glob("*")))
        files += sorted(path for path in found if path.is_file())
    for path in files:
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
