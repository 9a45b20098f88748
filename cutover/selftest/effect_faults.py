"""Faults in code: the graph stack makes other calls than it should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from msgspec.structs import replace

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
from contract.ports import Effects
from contract.stores import Turn
from cutover.selftest.stream_faults import code_faults
from cutover.selftest.wrappers import FlowWrapper, ReplacedOperations, changing_calls, with_ports

FIRST, SECOND = "weather", "calendar"


def _operation(
    port: str, name: str, make: Callable[[Any, Effects], Callable[..., object]]
) -> FlowWrapper:
    """Replace one operation of a port; `make` gets the real one."""

    def port_of(real: object, effects: Effects) -> object:
        operation: Callable[..., Awaitable[object]] = make(getattr(real, name), effects)  # type: ignore[assignment]
        return ReplacedOperations(real, **{name: operation})

    return with_ports(**{port: port_of})


def _twice(port: str, name: str, when: Callable[..., bool] = lambda *_: True) -> FlowWrapper:
    def make(real: Any, _: Effects) -> Callable[..., object]:
        async def twice(*args: Any, **named: Any) -> object:
            first = await real(*args, **named)
            return await real(*args, **named) if when(*args) else first

        return twice

    return _operation(port, name, make)


def _never(port: str, name: str, answer: object, when: Callable[..., bool]) -> FlowWrapper:
    def make(real: Any, _: Effects) -> Callable[..., object]:
        async def never(*args: Any, **named: Any) -> object:
            return answer if when(*args) else await real(*args, **named)

        return never

    return _operation(port, name, make)


def _other(port: str, name: str, change: Callable[..., tuple[object, ...]]) -> FlowWrapper:
    """Call with other arguments."""

    def make(real: Any, _: Effects) -> Callable[..., object]:
        async def other(*args: Any, **named: Any) -> object:
            return await real(*change(*args), **named)

        return other

    return _operation(port, name, make)


def _answered(port: str, name: str, change: Callable[[Any], object]) -> FlowWrapper:
    """Call as it should be, and change the answer."""

    def make(real: Any, _: Effects) -> Callable[..., object]:
        async def answered(*args: Any, **named: Any) -> object:
            return change(await real(*args, **named))

        return answered

    return _operation(port, name, make)


def _messages(change: Callable[[Message], Message | None]) -> FlowWrapper:
    """Change the messages the model gets; None leaves one out."""

    def otherwise(call: ModelCall) -> ModelCall:
        shown = (change(message) for message in call.messages)
        return replace(call, messages=tuple(it for it in shown if it is not None))

    return changing_calls(otherwise)


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


def _tools_reversed(real: Any, _: Effects) -> Callable[..., object]:
    second_asked = asyncio.Event()

    async def run(site: str, call: ToolCall) -> object:
        if call.name == FIRST:
            await second_asked.wait()
        asked = asyncio.ensure_future(real(site, call))
        await asyncio.sleep(0)
        second_asked.set()
        return await asked

    return run


def _stored_first(real: Any, effects: Effects) -> Callable[..., object]:
    """Store the message before its lock is held."""

    async def acquire(site: str, key: str, ttl: float) -> object:
        turn = Turn(
            message_id="m-1",
            role="user",
            content="北京天气怎么样？我下午有空吗？",
            chat_id="c-1",
            user_id="u-1",
            user_name="小明",
        )
        await effects.conversations.put("message", turn)
        return await real(site, key, ttl)

    return acquire


def _write_order() -> FlowWrapper:
    early = _operation("locks", "acquire", _stored_first)
    once = _never("conversations", "put", answer=True, when=lambda site, _: site == "message")
    return lambda flow: early(once(flow))


class _CalledTwice:
    """A model called twice in the first or the last round; the first answer is discarded."""

    def __init__(self, model: Any, *, last: bool) -> None:
        self._model = model
        self._last = last

    async def stream(self, site: str, call: ModelCall) -> AsyncIterator[Chunk]:
        """Call once or twice."""
        if any(isinstance(message, ToolMessage) for message in call.messages) is self._last:
            async for _ in self._model.stream(site, call):
                pass
        async for chunk in self._model.stream(site, call):
            yield chunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class _ShortMemory:
    """A store read with a limit that is one too small."""

    def __init__(self, store: Any) -> None:
        self._store = store

    async def history(self, site: str, chat_id: str, *, before: str, limit: int) -> object:
        """Read one turn less."""
        return await self._store.history(site, chat_id, before=before, limit=limit - 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


EFFECT_FAULTS = code_faults(
    {
        ("effects", "prompt_changed"): {
            "white space in the prompt": _system(lambda it: f"{it} "),
            "line lost in the prompt": _system(lambda it: it.split("\n", 1)[1]),
            "no system prompt": _system(lambda _: ""),
            "name of the user lost": _user(_without_name),
            "a past turn lost": _messages(_no_past),
            "answer of a tool lost": _messages(_no_answer),
            "the last turn not used": _answered(
                "conversations", "history", lambda turns: turns[:-1]
            ),
        },
        ("effects", "parameter_changed"): {
            "temperature": changing_calls(lambda it: replace(it, temperature=0.2)),
            "temperature lost": changing_calls(lambda c: replace(c, temperature=None)),
            "model id": changing_calls(lambda it: replace(it, model_id="gpt-4o")),
            "token limit lost": changing_calls(lambda c: replace(c, max_tokens=None)),
            "JSON asked for": changing_calls(lambda it: replace(it, json_object=True)),
            "tool choice": changing_calls(lambda it: replace(it, tool_choice="required")),
            "a tool not offered": changing_calls(lambda c: replace(c, tools=c.tools[:1])),
        },
        ("effects", "call_extra"): {
            "model asked twice": with_ports(model=lambda it, _: _CalledTwice(it, last=True)),
            "model asked for tools twice": with_ports(
                model=lambda it, _: _CalledTwice(it, last=False)
            ),
            "reply stored twice": _twice("conversations", "put", _reply),
            "lock released twice": _twice("locks", "release"),
            "clock read twice": _twice("clock", "now"),
            "id drawn twice": _twice("ids", "new"),
            "tools listed twice": _twice("tools", "list"),
            "model looked up twice": _twice("model", "lookup"),
        },
        ("effects", "tool_added"): {"tool called twice": _twice("tools", "run", _first_tool)},
        ("effects", "tool_dropped"): {
            "tool not called": _never("tools", "run", ToolResult("晴"), _first_tool)
        },
        ("effects", "tool_arguments"): {
            "tool argument": _other(
                "tools",
                "run",
                lambda s, it: (
                    s,
                    replace(it, arguments='{"city":"天津"}') if it.name == FIRST else it,
                ),
            ),
            "tool argument lost": _other(
                "tools",
                "run",
                lambda s, it: (s, replace(it, arguments="{}") if it.name == FIRST else it),
            ),
        },
        ("effects", "tool_order"): {"tool order": _operation("tools", "run", _tools_reversed)},
        ("effects", "call_skipped"): {
            "reply not stored": _never("conversations", "put", answer=True, when=_reply),
            "lock not released": _never("locks", "release", None, lambda *_: True),
        },
        ("effects", "write_changed"): {
            "another reply stored": _other(
                "conversations",
                "put",
                lambda s, it: (s, replace(it, content="") if s == "reply" else it),
            ),
            "reply under an id of its own": _answered("ids", "new", lambda _: "mine"),
            "reply without reply_to": _other(
                "conversations", "put", lambda s, it: (s, replace(it, reply_to=None))
            ),
            "lock held for less": _other("locks", "acquire", lambda s, k, _: (s, k, 1.0)),
            "another lock": _other("locks", "acquire", lambda s, _, ttl: (s, "lock", ttl)),
        },
        ("effects", "write_order"): {"message stored before its lock": _write_order()},
        ("effects", "call_changed"): {
            "less of the past asked for": with_ports(conversations=lambda it, _: _ShortMemory(it)),
            "another model looked up": _other("model", "lookup", lambda s, _: (s, "gpt-4o")),
        },
        ("effects", "site_changed"): {"another site": _other("ids", "new", lambda _: ("answer",))},
    }
)
