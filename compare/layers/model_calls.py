"""Prompts: the messages and parameters of two model calls that stand for each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from compare.findings import (
    EffectFinding,
    ParameterChanged,
    PromptChanged,
    excerpts,
    shortened,
    signature_of,
)
from compare.input.calls import Call
from compare.input.pairing import Pair
from compare.layers.values import written
from compare.streams.alignment import align
from contract.operations import MODEL_STREAM


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


MODEL = MODEL_STREAM.label
_TOOL_TURNS = frozenset({"assistant", "tool"})


class Prompts:
    """Compares model calls in order: what a later round merely repeats follows from the first."""

    def __init__(self, pair: Pair, tool: str | None) -> None:
        self._pair = pair
        self._tool = tool
        self._seen: dict[tuple[str, str | None, str | None], str] = {}

    def findings(self, twins: list[tuple[Call, Call]]) -> list[EffectFinding]:
        """Compare the model calls among calls that stand for each other."""
        found: list[EffectFinding] = []
        for old, new in twins:
            if old.label == MODEL and old.args != new.args:
                found += self._call(old, old.arguments, new.arguments)
        return found

    def _call(
        self, old: Call, legacy: dict[str, Any], graph: dict[str, Any]
    ) -> list[EffectFinding]:
        found: list[EffectFinding] = []
        new: list[MessageChange] = []
        for change in message_changes(legacy, graph):
            cause = self._cause(change)
            if cause is None:
                new.append(change)
            else:
                found.append(self._message(old, change, change.role, cause))
        found += self._new(old, new)
        for name, before, after in parameter_changes(legacy, graph):
            finding = ParameterChanged(
                path=f"{old.place}.{name}",
                exchange=self._pair.exchange,
                legacy=before,
                graph=after,
                after=self._seen.get((name, before, after)),
            )
            self._seen.setdefault((name, before, after), signature_of(finding))
            found.append(finding)
        return found

    def _cause(self, change: MessageChange) -> str | None:
        """Name what a changed message follows from, if from anything found before."""
        cause = self._seen.get(change[1:])
        return self._tool if cause is None and change.role in _TOOL_TURNS else cause

    def _new(self, old: Call, changed: list[MessageChange]) -> list[PromptChanged]:
        """Tell what nothing explains: one finding for the prompt, whatever else differs after it.

        Its path names every role, for what is accepted of one is not accepted of the others.
        """
        if not changed:
            return []
        first, *others = changed
        cause = self._message(old, first, roles_of(changed), None)
        signature = signature_of(cause)
        for change in changed:
            self._seen[change[1:]] = signature
        return [cause, *(self._message(old, change, change.role, signature) for change in others)]

    def _message(
        self, old: Call, change: MessageChange, roles: str, after: str | None
    ) -> PromptChanged:
        legacy, graph = _both(change.legacy, change.graph)
        return PromptChanged(
            path=f"{old.place}.messages[{change.at}].{roles}",
            exchange=self._pair.exchange,
            legacy=legacy,
            graph=graph,
            after=after,
        )


def _both(legacy: str | None, graph: str | None) -> tuple[str | None, str | None]:
    if legacy is None or graph is None:
        return legacy and shortened(legacy), graph and shortened(graph)
    return excerpts(legacy, graph)
