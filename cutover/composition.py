"""The composition root: from settings to a router that stands on real adapters."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contract.ports import Effects
from cutover.flows import SPECS
from cutover.models import KEY, model_entries, prices
from cutover.stacks import DEFAULTS, load_stacks
from cutover.stores import open_conversations, open_locks, open_memory
from effects.clock import SystemClock
from effects.human import NobodyThere
from effects.ids import RandomIds
from effects.model import ModelRegistry, OpenAIModel
from effects.ports import NodeTimes
from effects.tools import ToolRegistry, builtin_tools
from router.addresses import address
from router.capture import CaptureWriter
from router.dispatch import Parts, Router

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    import msgspec

    from contract.ports import Memory
    from router.rollout import Stack as StackName
    from router.settings import Settings
    from router.stacks import Stack

log = logging.getLogger(__name__)


@dataclass(slots=True)
class House:
    """A router and what it stands on."""

    router: Router
    models: ModelRegistry
    tools: ToolRegistry
    captures: CaptureWriter
    faults: dict[str, str]


@asynccontextmanager
async def opened(
    settings: Callable[[], Settings],
    environ: Mapping[str, str],
    stacks: Mapping[StackName, Stack] | None = None,
) -> AsyncIterator[House]:
    """Open everything a router needs, and close it in the right order.

    `settings` gives those in force now; stores, locks and captures are those of the first call.
    """
    first = settings()
    async with AsyncExitStack() as stack:
        entries = model_entries(first, environ)
        models = ModelRegistry(entries)
        stack.push_async_callback(models.aclose)
        memory = await open_memory(address(first.stores.memory, environ), stack)
        tools = _tools(memory, first, stack)
        live = await _live(first, environ, models, tools, memory, stack)
        captures = await stack.enter_async_context(CaptureWriter.open(first, SPECS, environ))
        router = Router(
            Parts(
                specs=SPECS,
                stacks=stacks or load_stacks(_places(first)),
                live=live,
                captures=captures,
                settings=settings,
                qa_key=environ.get(first.server.qa_key_env, "").encode(),
                price=prices(entries),
            )
        )
        faults = {} if entries else {"models": f"none is configured, and {KEY} is not set"}
        try:
            yield House(router, models, tools, captures, faults)
        finally:
            await router.aclose(settings().server.drain_seconds)


def _tools(memory: Memory, settings: Settings, stack: AsyncExitStack) -> ToolRegistry:
    tools = ToolRegistry(builtin_tools(SystemClock(), memory))
    stack.push_async_callback(tools.aclose)
    return tools


async def _live(  # noqa: PLR0913 - every kind of effect is one of its own
    settings: Settings,
    environ: Mapping[str, str],
    models: ModelRegistry,
    tools: ToolRegistry,
    memory: Memory,
    stack: AsyncExitStack,
) -> Callable[[msgspec.Struct], Effects]:
    stores = settings.stores
    conversations = await open_conversations(address(stores.conversations, environ), stack)
    locks = open_locks(address(stores.locks, environ), stack)
    model, clock, ids = OpenAIModel(models), SystemClock(), RandomIds()

    def live(body: Any) -> Effects:  # noqa: ANN401 - any flow's request
        return Effects(
            model=model,
            tools=tools.for_user(getattr(body, "user_id", None)),
            memory=memory,
            conversations=conversations,
            locks=locks.for_exchange(),
            clock=clock,
            ids=ids,
            human=NobodyThere(),
            trace=NodeTimes(),
        )

    return live


def _places(settings: Settings) -> dict[StackName, str]:
    return {
        "legacy": settings.stacks.legacy or DEFAULTS["legacy"],
        "graph": settings.stacks.graph or DEFAULTS["graph"],
    }
