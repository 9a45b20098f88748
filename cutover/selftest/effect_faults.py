"""Faults in code: the graph stack makes other calls than it should."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from contract.flow import Event, Flow, Request
from contract.model import (
    Chunk,
    Message,
    ModelCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from contract.operations import Operation
from contract.ports import Effects
from contract.stores import Turn
from cutover.selftest.stream_faults import FlowWrapper, code_faults
from rules.chat import lock_key

FIRST = "weather"


class _Port:
    """A port with some operations replaced."""

    def __init__(self, real: object, replaced: Mapping[str, Callable[..., object]]) -> None:
        self._real = real
        self._replaced = replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced.get(name) or getattr(self._real, name)


def replacing(port: str, **operations: Callable[..., object]) -> FlowWrapper:
    """Replace operations of a port; each is called with the real one, then the arguments."""

    def wrap(flow: Flow) -> Flow:
        def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
            real = getattr(effects, port)
            replaced = {
                name: partial(made, getattr(real, name)) for name, made in operations.items()
            }
            changed: dict[str, Any] = {port: _Port(real, replaced)}
            return flow(request, dataclasses.replace(effects, **changed))

        return wrapped

    return wrap


def replacing_calls(operation: Operation, made: Callable[..., object]) -> FlowWrapper:
    """Replace one operation, wherever its port is."""
    return replacing(operation.port, **{operation.name: made})


async def _twice(real: Any, *args: Any, **named: Any) -> object:
    await real(*args, **named)
    return await real(*args, **named)


def _where(fits: Callable[..., bool], replaced: Callable[..., Any]) -> Callable[..., object]:
    """Replace the calls whose arguments fit."""

    async def called(real: Any, *args: Any, **named: Any) -> object:
        return await (replaced(real, *args, **named) if fits(*args) else real(*args, **named))

    return called


def _answering(answer: object) -> Callable[..., object]:
    """Answer without a call."""

    async def answered(*_: object) -> object:
        return answer

    return answered


def _asking(change: Callable[..., tuple[object, ...]]) -> Callable[..., object]:
    """Call with other arguments."""

    async def asked(real: Any, *args: Any) -> object:
        return await real(*change(*args))

    return asked


def _changing(change: Callable[[Any], object]) -> Callable[..., object]:
    """Call as it should be, and change the answer."""

    async def answered(real: Any, *args: Any, **named: Any) -> object:
        return change(await real(*args, **named))

    return answered


def changed_model_calls(change: Callable[[ModelCall], ModelCall]) -> FlowWrapper:
    """Change what the model is asked."""
    return replacing("model", stream=lambda real, site, call: real(site, change(call)))


def _messages(change: Callable[[Message], Message | None]) -> FlowWrapper:
    """Change the messages the model gets; None leaves one out."""

    def otherwise(call: ModelCall) -> ModelCall:
        shown = (change(message) for message in call.messages)
        return replace(call, messages=tuple(it for it in shown if it is not None))

    return changed_model_calls(otherwise)


def _system(change: Callable[[str], str]) -> FlowWrapper:
    return _messages(
        lambda it: SystemMessage(change(it.content)) if isinstance(it, SystemMessage) else it
    )


def _user(change: Callable[[str], str]) -> FlowWrapper:
    return _messages(
        lambda it: UserMessage(change(str(it.content))) if isinstance(it, UserMessage) else it
    )


def _no_past(message: Message) -> Message | None:
    old = isinstance(message, UserMessage) and "你好" in str(message.content)
    return None if old else message


def _no_answer(message: Message) -> Message:
    first = isinstance(message, ToolMessage) and "晴" in message.content
    return replace(message, content="") if first else message


def _without_name(text: str) -> str:
    return text.removeprefix("[小明]: ") if "北京" in text else text


def _first_tool(_: str, call: ToolCall) -> bool:
    return call.name == FIRST


def _reply(site: str, *_: object) -> bool:
    return site == "reply"


def _with_tool_arguments(arguments: str) -> FlowWrapper:
    asked = _asking(lambda site, call: (site, replace(call, arguments=arguments)))
    return replacing("tools", run=_where(_first_tool, asked))


def _tools_reversed(flow: Flow) -> Flow:
    """Call the first tool after the second."""

    def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        second_asked = asyncio.Event()

        async def run(real: Any, site: str, call: ToolCall) -> object:
            if call.name == FIRST:
                await second_asked.wait()
            asked = asyncio.ensure_future(real(site, call))
            await asyncio.sleep(0)
            second_asked.set()
            return await asked

        return replacing("tools", run=run)(flow)(request, effects)

    return wrapped


def _stored_first(flow: Flow) -> Flow:
    """Store the message before its lock is held."""

    def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        body = request.body
        turn = Turn(
            message_id=body.message_id,
            role="user",
            content=body.content,
            chat_id=body.chat_id,
            user_id=body.user_id,
            user_name=body.user_name,
        )

        async def acquire(real: Any, *args: Any) -> object:
            await effects.conversations.put("message", turn)
            return await real(*args)

        again = _where(lambda site, _: site == "message", _answering(answer=True))
        once = replacing("conversations", put=again)
        return replacing("locks", acquire=acquire)(once(flow))(request, effects)

    return wrapped


def _stored_behind_end(flow: Flow) -> Flow:
    """Store the reply when the stream has ended."""

    async def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        late: list[Callable[[], Awaitable[object]]] = []

        async def put(real: Any, *args: Any) -> bool:
            late.append(partial(real, *args))
            return True

        changed = replacing("conversations", put=_where(_reply, put))(flow)
        async for event in changed(request, effects):
            yield event
        for call in late:
            await call()

    return wrapped


def _released_first(flow: Flow) -> Flow:
    """Release the lock before the reply is stored."""

    def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        async def put(real: Any, *args: Any) -> object:
            await effects.locks.release("message", lock_key(request.body.message_id))
            return await real(*args)

        once = replacing("locks", release=_answering(None))
        return replacing("conversations", put=_where(_reply, put))(once(flow))(request, effects)

    return wrapped


def _read_first(flow: Flow) -> Flow:
    """Read the history before the message is stored."""

    def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        late: list[Callable[[], Awaitable[object]]] = []

        async def put(real: Any, *args: Any) -> bool:
            late.append(partial(real, *args))
            return True

        async def history(real: Any, *args: Any, **named: Any) -> object:
            found = await real(*args, **named)
            await late.pop()()
            return found

        stored = _where(lambda site, *_: site == "message", put)
        return replacing("conversations", put=stored, history=history)(flow)(request, effects)

    return wrapped


def _asked_twice(*, last: bool) -> FlowWrapper:
    """Call the model twice in the first or the last round, and discard the first answer."""

    async def stream(real: Any, site: str, call: ModelCall) -> AsyncIterator[Chunk]:
        if any(isinstance(message, ToolMessage) for message in call.messages) is last:
            async for _ in real(site, call):
                pass
        async for chunk in real(site, call):
            yield chunk

    return replacing("model", stream=stream)


async def _one_turn_less(real: Any, *args: Any, limit: int, **named: Any) -> object:
    return await real(*args, limit=limit - 1, **named)


EFFECT_FAULTS = code_faults(
    {
        ("effects", "prompt_changed"): {
            "white space in the prompt": _system(lambda it: f"{it} "),
            "line lost in the prompt": _system(lambda it: it.split("\n", 1)[1]),
            "no system prompt": _system(lambda _: ""),
            "name of the user lost": _user(_without_name),
            "a past turn lost": _messages(_no_past),
            "answer of a tool lost": _messages(_no_answer),
            "the last turn not used": replacing(
                "conversations", history=_changing(lambda turns: turns[:-1])
            ),
        },
        ("effects", "parameter_changed"): {
            "temperature": changed_model_calls(lambda it: replace(it, temperature=0.2)),
            "temperature lost": changed_model_calls(lambda c: replace(c, temperature=None)),
            "model id": changed_model_calls(lambda it: replace(it, model_id="gpt-4o")),
            "token limit lost": changed_model_calls(lambda c: replace(c, max_tokens=None)),
            "JSON asked for": changed_model_calls(lambda it: replace(it, json_object=True)),
            "tool choice": changed_model_calls(lambda it: replace(it, tool_choice="required")),
            "a tool not offered": changed_model_calls(lambda c: replace(c, tools=c.tools[:1])),
        },
        ("effects", "call_extra"): {
            "model asked twice": _asked_twice(last=True),
            "model asked for tools twice": _asked_twice(last=False),
            "reply stored twice": replacing("conversations", put=_where(_reply, _twice)),
            "lock released twice": replacing("locks", release=_twice),
            "clock read twice": replacing("clock", now=_twice),
            "id drawn twice": replacing("ids", new=_twice),
            "tools listed twice": replacing("tools", list=_twice),
            "model looked up twice": replacing("model", lookup=_twice),
        },
        ("effects", "tool_added"): {
            "tool called twice": replacing("tools", run=_where(_first_tool, _twice))
        },
        ("effects", "tool_dropped"): {
            "tool not called": replacing(
                "tools", run=_where(_first_tool, _answering(ToolResult("晴")))
            )
        },
        ("effects", "tool_arguments"): {
            "tool argument": _with_tool_arguments('{"city":"天津"}'),
            "tool argument lost": _with_tool_arguments("{}"),
        },
        ("effects", "tool_order"): {"tool order": _tools_reversed},
        ("effects", "call_skipped"): {
            "reply not stored": replacing(
                "conversations", put=_where(_reply, _answering(answer=True))
            ),
            "lock not released": replacing("locks", release=_answering(None)),
        },
        ("effects", "write_changed"): {
            "another reply stored": replacing(
                "conversations",
                put=_where(_reply, _asking(lambda s, it: (s, replace(it, content="")))),
            ),
            "reply under an id of its own": replacing("ids", new=_changing(lambda _: "mine")),
            "reply without reply_to": replacing(
                "conversations", put=_asking(lambda s, it: (s, replace(it, reply_to=None)))
            ),
            "lock held for less": replacing(
                "locks", acquire=_asking(lambda s, key, _: (s, key, 1.0))
            ),
            "another lock": replacing("locks", acquire=_asking(lambda s, _, ttl: (s, "lock", ttl))),
        },
        ("effects", "write_order"): {
            "message stored before its lock": _stored_first,
            "lock released before the reply is stored": _released_first,
        },
        ("effects", "read_order"): {"history read before the message is stored": _read_first},
        ("effects", "frame_order"): {"reply stored behind the end": _stored_behind_end},
        ("effects", "call_changed"): {
            "less of the past asked for": replacing("conversations", history=_one_turn_less),
            "another model looked up": replacing(
                "model", lookup=_asking(lambda s, _: (s, "gpt-4o"))
            ),
        },
        ("effects", "site_changed"): {
            "another site": replacing("ids", new=_asking(lambda _: ("answer",)))
        },
    }
)
