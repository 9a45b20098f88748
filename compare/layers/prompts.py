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


class PromptChange(NamedTuple):
    """Messages of one prompt that differ, as one text a side; None where one side has none."""

    path: str
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


def told_as_one(changed: Sequence[MessageChange]) -> PromptChange:
    """Tell the messages of one prompt that differ as one change; several are each headed.

    The path says where the first stands and which roles there are: what is accepted of the system
    prompt is not accepted of the user's.
    """
    first, *others = changed
    roles = dict.fromkeys(change.role for change in changed)
    path = f"messages[{first.at}].{'+'.join(roles)}"
    if not others:
        return PromptChange(path, first.legacy, first.graph)
    legacy = [(change, change.legacy) for change in changed if change.legacy is not None]
    graph = [(change, change.graph) for change in changed if change.graph is not None]
    return PromptChange(path, _headed(legacy), _headed(graph))


def _headed(texts: Sequence[tuple[MessageChange, str]]) -> str | None:
    said = (f"messages[{change.at}].{change.role}:\n{text}" for change, text in texts)
    return "\n\n".join(said) or None


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
