"""How each operation is performed on the live ports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contract import model, stores
from contract.human import OpenedQuestion

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    import msgspec

    from contract.human import AwaitAnswer, HumanAnswer, OpenQuestion
    from contract.model import Chunk, LookUp, ModelCall, ModelInfo
    from contract.ports import Effects

_EPOCH_US = 1_000_000


def stream_model(live: Effects, site: str, call: ModelCall) -> AsyncIterator[Chunk]:
    """Perform `model.stream`, the one operation that streams."""
    return live.model.stream(site, call)


async def _lookup(live: Effects, site: str, args: LookUp) -> ModelInfo:
    return await live.model.lookup(site, args.model_id)


async def _tools_list(live: Effects, site: str, _: model.NoArguments) -> model.OfferedTools:
    return model.OfferedTools(await live.tools.list(site))


async def _tools_run(live: Effects, site: str, args: model.ToolCall) -> model.ToolResult:
    return await live.tools.run(site, args)


async def _recall(live: Effects, site: str, args: stores.Recall) -> stores.Memories:
    return stores.Memories(await live.memory.recall(site, args))


async def _remember(live: Effects, site: str, args: stores.Remember) -> stores.Remembered:
    return stores.Remembered(await live.memory.write(site, args.entries))


async def _find(live: Effects, site: str, args: stores.FindTurn) -> stores.FoundTurn:
    return stores.FoundTurn(await live.conversations.find(site, args.message_id))


async def _put(live: Effects, site: str, args: stores.PutTurn) -> stores.StoredTurn:
    return stores.StoredTurn(await live.conversations.put(site, args.turn))


async def _history(live: Effects, site: str, args: stores.ReadHistory) -> stores.FoundTurns:
    return stores.FoundTurns(
        await live.conversations.history(site, args.chat_id, before=args.before, limit=args.limit)
    )


async def _acquire(live: Effects, site: str, args: stores.Acquire) -> stores.Acquired:
    return stores.Acquired(await live.locks.acquire(site, args.key, args.ttl))


async def _release(_live: Effects, _site: str, _args: stores.Release) -> stores.Released:
    # Only noted here: the exchange lets go of its locks when it ends.
    return stores.Released()


async def _now(live: Effects, site: str, _: model.NoArguments) -> stores.ClockReading:
    now = await live.clock.now(site)
    return stores.ClockReading(int(now.timestamp()) * _EPOCH_US + now.microsecond)


async def _new_id(live: Effects, site: str, _: model.NoArguments) -> stores.NewId:
    return stores.NewId(await live.ids.new(site))


async def _open(live: Effects, site: str, args: OpenQuestion) -> OpenedQuestion:
    return OpenedQuestion(await live.human.open(site, args))


async def _answer(live: Effects, site: str, args: AwaitAnswer) -> HumanAnswer:
    return await live.human.answer(site, args.hitl_id)


PERFORM: Mapping[str, Callable[[Effects, str, Any], Awaitable[msgspec.Struct]]] = {
    "model.lookup": _lookup,
    "tools.list": _tools_list,
    "tools.run": _tools_run,
    "memory.recall": _recall,
    "memory.write": _remember,
    "conversations.find": _find,
    "conversations.put": _put,
    "conversations.history": _history,
    "locks.acquire": _acquire,
    "locks.release": _release,
    "clock.now": _now,
    "ids.new": _new_id,
    "human.open": _open,
    "human.answer": _answer,
}
"""Every operation but the streaming one, by its label."""
