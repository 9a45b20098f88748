"""The thread of a graph: a copy of what its checkpointer has, in memory, for one run."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver

from cutover_client.calls import GatewayError
from cutover_client.effect import effect
from cutover_client.exchange import bound

STATE: Final = "cutover.state"
"""The effect by which a stack reads, and writes, what it alone stores: it is not compared."""

_NOTHING: Final[Mapping[str, str]] = {}
_UNNAMED: Final = "run"
_NOT_ON_TAPE: Final = frozenset({"tape_miss", "resume_mismatch"})
_MSGPACK: Final = "msgpack"
_OPTIONS: Final = ormsgpack.OPT_NON_STR_KEYS


@dataclass(frozen=True, slots=True)
class GraphThread:
    """A thread as it was when the exchange began; the run's checkpoints are in its `saver`.

    The checkpointer itself is written once, at the end. So a run that fails, is a shadow, or waits
    for a person leaves no trace in it, and another one on the same tape begins alike.
    """

    saver: InMemorySaver
    config: RunnableConfig
    own: BaseCheckpointSaver[Any] | None
    before: str | None

    @classmethod
    async def opened(cls, checkpointer: Any, name: str) -> GraphThread:
        """Read a thread, or the recording of it; "" is a new one that is not stored."""
        own = checkpointer if isinstance(checkpointer, BaseCheckpointSaver) and name else None
        config = _config(name or _UNNAMED)
        if own is None:
            return cls(InMemorySaver(), config, None, None)
        saver = InMemorySaver(serde=own.serde)
        saver.get_next_version = own.get_next_version  # type: ignore[method-assign]
        try:
            stored = await _read(own, name)
        except GatewayError as error:
            if error.code not in _NOT_ON_TAPE:
                raise
            with bound(None):  # the other stack has served, which has no such thread
                stored = await _read(own, name)
        before = None
        if stored is not None:
            checkpoint, metadata = own.serde.loads_typed(_from_tree(stored))
            versions = checkpoint["channel_versions"]
            await saver.aput(config, checkpoint, metadata, versions)
            before = checkpoint["id"]
        return cls(saver, config, own, before)

    async def store(self) -> None:
        """Write the thread as it is now to the checkpointer, once in an exchange."""
        last = await self.saver.aget_tuple(self.config)
        if self.own is not None and last is not None:
            await _write(self.own, self.config["configurable"]["thread_id"], last, self.before)


@effect(STATE, read_only=True, ignore=("saver",))
async def _read(saver: BaseCheckpointSaver[Any], thread: str) -> Any:
    """Return a thread's last checkpoint as JSON; None where there is none."""
    last = await saver.aget_tuple(_config(thread))
    if last is None:
        return None
    return _tree(*saver.serde.dumps_typed((last.checkpoint, last.metadata)))


@effect(STATE, ignore=("saver", "last", "before"), key=lambda *_: STATE)
async def _write(
    saver: BaseCheckpointSaver[Any], thread: str, last: CheckpointTuple, before: str | None
) -> None:
    """Write a thread's last checkpoint, which comes after the one it had before."""
    parent = {} if before is None else {"checkpoint_id": before}
    versions = last.checkpoint["channel_versions"]
    await saver.aput(_config(thread, parent), last.checkpoint, last.metadata, versions)


def _config(thread: str, more: Mapping[str, str] = _NOTHING) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **more}}


def _tree(kind: str, data: bytes) -> Any:
    """Return what a serialiser has written as JSON whose texts can be read, and so redacted."""
    if kind != _MSGPACK:
        return {"$kind": [kind, base64.b64encode(data).decode()]}
    return _as_json(_unpacked(data))


def _from_tree(tree: Any) -> tuple[str, bytes]:
    if isinstance(tree, Mapping) and "$kind" in tree:
        kind, data = tree["$kind"]
        return kind, base64.b64decode(data)
    return _MSGPACK, _packed(_from_json(tree))


def _unpacked(data: bytes) -> Any:
    return ormsgpack.unpackb(data, ext_hook=_Extension, option=_OPTIONS)


def _packed(value: Any) -> bytes:
    return ormsgpack.packb(value, option=_OPTIONS)


@dataclass(frozen=True, slots=True)
class _Extension:
    """A value of a type that MessagePack does not have: the type's code, and what it is made of."""

    code: int
    data: bytes


def _as_json(value: Any) -> Any:
    """Return JSON for a value of MessagePack; what JSON lacks is an object with one `$` key."""
    match value:
        case _Extension():
            return {"$ext": [value.code, _as_json(_unpacked(value.data))]}
        case bytes():
            return {"$bytes": base64.b64encode(value).decode()}
        case float() if not float("-inf") < value < float("inf"):
            return {"$float": repr(value)}
        case list() | tuple():
            return [_as_json(one) for one in value]
        case dict() if all(isinstance(key, str) and key[:1] != "$" for key in value):
            return {key: _as_json(one) for key, one in value.items()}
        case dict():
            return {"$map": [[_as_json(key), _as_json(one)] for key, one in value.items()]}
        case _:
            return value


def _from_json(value: Any) -> Any:
    match value:
        case {"$ext": [code, data]}:
            return ormsgpack.Ext(code, _packed(_from_json(data)))
        case {"$bytes": str(text)}:
            return base64.b64decode(text)
        case {"$float": str(text)}:
            return float(text)
        case {"$map": list(pairs)}:
            return {_key(key): _from_json(one) for key, one in pairs}
        case dict():
            return {key: _from_json(one) for key, one in value.items()}
        case list():
            return [_from_json(one) for one in value]
        case _:
            return value


def _key(key: Any) -> Any:
    read = _from_json(key)
    return tuple(read) if isinstance(read, list) else read
