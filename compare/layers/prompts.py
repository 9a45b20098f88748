"""Prompts: the messages and parameters of two model calls that stand for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from compare.alignment import align
from compare.values import written

if TYPE_CHECKING:
    from collections.abc import Sequence


class MessageChange(NamedTuple):
    """One message that differs; None where one side has none."""

    at: int
    role: str
    legacy: str | None
    graph: str | None


class ParameterChange(NamedTuple):
    """One parameter that differs; None where one side does not set it."""

    path: str
    legacy: str | None
    graph: str | None


def message_changes(legacy: dict[str, Any], graph: dict[str, Any]) -> list[MessageChange]:
    """Align the messages of two calls and list those that differ."""
    old, new = _messages(legacy), _messages(graph)
    left = [msgspec.json.encode(message) for message in old]
    right = [msgspec.json.encode(message) for message in new]
    found: list[MessageChange] = []
    for block in align(left, right):
        if not block.equal:
            found += _block([(k, old[k]) for k in block.left], [(k, new[k]) for k in block.right])
    return found


def roles_of(changed: Sequence[MessageChange]) -> str:
    """Name the roles of messages that differ, each once, in order."""
    return "+".join(dict.fromkeys(change.role for change in changed))


def _messages(call: dict[str, Any]) -> list[dict[str, Any]]:
    messages = call.get("messages")
    return [m for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []


def _block(
    left: list[tuple[int, dict[str, Any]]], right: list[tuple[int, dict[str, Any]]]
) -> list[MessageChange]:
    """Pair messages of one role in order; the rest is missing or new."""
    found: list[MessageChange] = []
    for index, message in left:
        role = _role(message)
        other = next((item for item in right if _role(item[1]) == role), None)
        if other is None:
            found.append(_change(index, role, message, None))
        else:
            right.remove(other)
            found.append(_change(index, role, message, other[1]))
    return found + [_change(index, _role(message), None, message) for index, message in right]


def _role(message: dict[str, Any]) -> str:
    return str(message.get("role", "?"))


def _change(
    index: int, role: str, legacy: dict[str, Any] | None, graph: dict[str, Any] | None
) -> MessageChange:
    plain = all(_is_plain(m) for m in (legacy, graph) if m is not None)
    return MessageChange(
        index,
        role,
        None if legacy is None else _said(legacy, plain=plain),
        None if graph is None else _said(graph, plain=plain),
    )


def _is_plain(message: dict[str, Any]) -> bool:
    """Whether a message is nothing but its role and a text."""
    return isinstance(message.get("content"), str) and len(message) == 2  # noqa: PLR2004


def _said(message: dict[str, Any], *, plain: bool) -> str:
    return str(message["content"]) if plain else written(message)


def parameter_changes(legacy: dict[str, Any], graph: dict[str, Any]) -> list[ParameterChange]:
    """List the parameters that differ, messages apart."""
    names = sorted((legacy.keys() | graph.keys()) - {"messages"})
    return [
        ParameterChange(name, _value(legacy, name), _value(graph, name))
        for name in names
        if legacy.get(name) != graph.get(name)
    ]


def _value(call: dict[str, Any], name: str) -> str | None:
    return written(call[name]) if name in call else None
