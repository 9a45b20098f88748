"""Model calls: what two runs asked the model for, in order: prompts and parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from compare.content import NOT_SET
from compare.findings import (
    EffectFinding,
    ParameterChanged,
    PromptChanged,
    change_of,
    excerpts,
    shortened,
    signature_of,
)
from compare.input.calls import EffectCall
from compare.input.pairing import Pair
from compare.layers.values import unset_text, written
from compare.streams.alignment import align
from contract.operations import MODEL_STREAM

MODEL = MODEL_STREAM.label
SETTINGS = "parameters"
_TOOL_TURNS = frozenset({"assistant", "tool"})


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


def model_call_findings(
    pair: Pair, twins: Sequence[tuple[EffectCall, EffectCall]], tool: str | None
) -> list[EffectFinding]:
    """Compare the model calls among calls that stand for each other.

    What a later call merely repeats follows from the first: a message that differs in the same way,
    a setting that graph gives the same value. `tool` is the signature of the first difference in
    tools, from which other turns of tools follow.
    """
    found: list[EffectFinding] = []
    seen: dict[tuple[str, str | None, str | None], str] = {}
    given: dict[tuple[str, str | None], str] = {}
    for old, new in twins:
        if old.label != MODEL or old.args == new.args:
            continue
        legacy, graph = old.arguments, new.arguments
        unexplained: list[MessageChange] = []
        for change in message_changes(legacy, graph):
            cause = seen.get(change[1:])
            if cause is None and change.role in _TOOL_TURNS:
                cause = tool
            if cause is None:
                unexplained.append(change)
            else:
                found.append(_message(pair, old, change, cause))
        found += _unexplained(pair, old, unexplained)
        if unexplained:
            signature = signature_of(found[-len(unexplained)])
            seen |= {change[1:]: signature for change in unexplained}
        settings: list[ParameterChange] = []
        for parameter in parameter_changes(legacy, graph):
            if (setting := (parameter.path, parameter.graph)) in given:
                found.append(_parameter(pair, old, parameter, given[setting]))
            else:
                settings.append(parameter)
        made = _settings(pair, old, settings)
        found += made
        if made:
            given |= dict.fromkeys(((it.path, it.graph) for it in settings), signature_of(made[0]))
    return found


def _settings(
    pair: Pair, old: EffectCall, changed: Sequence[ParameterChange]
) -> list[ParameterChanged]:
    """Name the parameters nothing explains: one finding, whatever else differs beside the first.

    Parameters that are lost are one place: which a request sets is not the fault's.
    """
    if not changed:
        return []
    first, *others = changed
    cause = _parameter(pair, old, first, None)
    if others or change_of(cause) == "missing":
        names = " ".join(change.path for change in changed)
        cause = replace(cause, path=f"{old.place}.{SETTINGS}", detail=names)
    after = signature_of(cause)
    return [cause, *(_parameter(pair, old, change, after) for change in others)]


def _parameter(
    pair: Pair, old: EffectCall, changed: ParameterChange, after: str | None
) -> ParameterChanged:
    unset = unset_text(old.label, changed.path) or NOT_SET
    return ParameterChanged(
        path=f"{old.place}.{changed.path}",
        exchange=pair.exchange,
        legacy=unset if changed.legacy is None else changed.legacy,
        graph=unset if changed.graph is None else changed.graph,
        after=after,
    )


def _unexplained(
    pair: Pair, old: EffectCall, changed: Sequence[MessageChange]
) -> list[PromptChanged]:
    """Name what nothing explains: one finding for the prompt, whatever else differs after it.

    Its detail names every role, for what is accepted of one is not accepted of the others.
    """
    if not changed:
        return []
    roles = "+".join(dict.fromkeys(change.role for change in changed))
    first, *others = changed
    cause = replace(_message(pair, old, first, None), detail=roles)
    after = signature_of(cause)
    return [cause, *(_message(pair, old, change, after) for change in others)]


def _message(
    pair: Pair, old: EffectCall, change: MessageChange, after: str | None
) -> PromptChanged:
    legacy, graph = change.legacy, change.graph
    if legacy is None or graph is None:
        legacy, graph = legacy and shortened(legacy), graph and shortened(graph)
    else:
        legacy, graph = excerpts(legacy, graph)
    return PromptChanged(
        path=f"{old.place}.messages[{change.at}].{change.role}",
        exchange=pair.exchange,
        legacy=legacy,
        graph=graph,
        after=after,
    )


def message_changes(legacy: dict[str, Any], graph: dict[str, Any]) -> list[MessageChange]:
    """Align the messages of two calls and list those that differ.

    Between messages that are equal, those of one role stand for each other, in order.
    """
    old, new = _messages(legacy), _messages(graph)
    found: list[MessageChange] = []
    for block in align(list(map(msgspec.json.encode, old)), list(map(msgspec.json.encode, new))):
        if block.equal:
            continue
        right = [(k, new[k]) for k in block.right]
        for k in block.left:
            role = _role(old[k])
            other = next((item for item in right if _role(item[1]) == role), None)
            if other is not None:
                right.remove(other)
            found.append(_change(k, role, old[k], other[1] if other else None))
        found += [_change(k, _role(message), None, message) for k, message in right]
    return found


def _messages(call: dict[str, Any]) -> list[dict[str, Any]]:
    messages = call.get("messages")
    return [m for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []


def _role(message: dict[str, Any]) -> str:
    return str(message.get("role", "?"))


def _change(
    index: int, role: str, legacy: dict[str, Any] | None, graph: dict[str, Any] | None
) -> MessageChange:
    sides = [message for message in (legacy, graph) if message is not None]
    plain = all(
        isinstance(m.get("content"), str) and m.keys() <= {"role", "content"} for m in sides
    )
    texts = (
        None if message is None else str(message["content"]) if plain else written(message)
        for message in (legacy, graph)
    )
    return MessageChange(index, role, *texts)


def parameter_changes(legacy: dict[str, Any], graph: dict[str, Any]) -> list[ParameterChange]:
    """List the parameters that differ, messages apart."""
    return [
        ParameterChange(
            name, *(written(call[name]) if name in call else None for call in (legacy, graph))
        )
        for name in sorted((legacy.keys() | graph.keys()) - {"messages"})
        if legacy.get(name) != graph.get(name)
    ]
