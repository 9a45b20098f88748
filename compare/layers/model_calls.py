"""Model calls: what two runs asked the model for, in order: prompts and parameters.

What differs is a field: the text of a message of one role, the arguments of its tool calls, a
message that one side alone has, one setting, the description of a tool.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from compare.content import NOT_SET, text_class
from compare.findings import (
    EffectFinding,
    ParameterChanged,
    PromptChanged,
    excerpts,
    general_path,
    shortened,
    signature_of,
)
from compare.input.pairing import Pair
from compare.layers.values import sorted_text, unset_text
from compare.streams.alignment import align
from contract.calls import EffectCall
from contract.operations import MODEL_STREAM

MODEL = MODEL_STREAM.label
SETTINGS = "parameters"
MESSAGE = "messages[]"
_TOOL_TURNS = frozenset({"assistant", "tool"})
_WHOLE = frozenset({"arguments", "content", "json_schema", "parameters"})
"""Fields that differ as a whole: what is below them is the request's, or one schema."""


class FieldChange(NamedTuple):
    """One field of a call that differs; None where one side does not have it.

    `path` leads to it from the call; `role` is that of its message, "" of a setting.
    """

    path: str
    role: str
    legacy: str | None
    graph: str | None

    @property
    def field(self) -> str:
        """Which field it is, wherever its message or tool stands."""
        return general_path(self.path)


def model_call_findings(
    pair: Pair, twins: Sequence[tuple[EffectCall, EffectCall]], tool: str | None
) -> list[EffectFinding]:
    """Compare the model calls among calls that stand for each other: a cause for each field.

    What a later call merely repeats follows from the first: a field that differs in the same way,
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
        prompts: list[tuple[FieldChange, PromptChanged]] = []
        for change in message_changes(legacy, graph):
            cause = seen.get((change.field, change.legacy, change.graph))
            if cause is None and change.role in _TOOL_TURNS:
                cause = tool
            if cause is None:
                prompts.append((change, _message(pair, old, change)))
            else:
                found.append(replace(_message(pair, old, change), after=cause))
        for changes, made in _by_field(prompts):
            found += made
            cause = signature_of(made[0])
            seen |= {(it.field, it.legacy, it.graph): cause for it in changes}
        settings: list[tuple[FieldChange, ParameterChanged]] = []
        for change in parameter_changes(legacy, graph):
            cause = given.get((change.field, change.graph))
            setting = _parameter(pair, old, change)
            if cause is None:
                settings.append((change, setting))
            else:
                found.append(replace(setting, after=cause))
        for changes, several in _by_field(_lost_together(old, settings)):
            found += several
            given |= {(it.field, it.graph): signature_of(several[0]) for it in changes}
    return found


T = TypeVar("T", PromptChanged, ParameterChanged)


def _by_field(
    found: Sequence[tuple[FieldChange, T]],
) -> Iterator[tuple[list[FieldChange], list[T]]]:
    """Yield what differs by field: the first finding of each is its cause, the others follow."""
    groups: defaultdict[str, list[tuple[FieldChange, T]]] = defaultdict(list)
    for change, finding in found:
        groups[general_path(finding.path)].append((change, finding))
    for group in groups.values():
        made = [finding for _, finding in group]
        after = signature_of(made[0])
        made[1:] = [replace(finding, after=after) for finding in made[1:]]
        yield [change for change, _ in group], made


def _lost_together(
    old: EffectCall, found: Sequence[tuple[FieldChange, ParameterChanged]]
) -> list[tuple[FieldChange, ParameterChanged]]:
    """Put settings that graph does not set in one place: a request decides which it sets."""
    lost = [change.path for change, _ in found if _lost(change)]
    place, names = f"{old.place}.{SETTINGS}", " ".join(lost)
    return [
        (change, replace(made, path=place, detail=names) if _lost(change) else made)
        for change, made in found
    ]


def _lost(change: FieldChange) -> bool:
    return change.graph is None and "[" not in change.path


def _parameter(pair: Pair, old: EffectCall, changed: FieldChange) -> ParameterChanged:
    unset = unset_text(old.label, changed.path) or NOT_SET
    return ParameterChanged(
        path=f"{old.place}.{changed.path}",
        exchange=pair.exchange,
        legacy=unset if changed.legacy is None else shortened(changed.legacy),
        graph=unset if changed.graph is None else shortened(changed.graph),
    )


def _message(pair: Pair, old: EffectCall, changed: FieldChange) -> PromptChanged:
    legacy, graph = changed.legacy, changed.graph
    change = text_class(legacy, graph)  # of whole texts: excerpts end in numbers
    if legacy is None or graph is None:
        legacy, graph = legacy and shortened(legacy), graph and shortened(graph)
    else:
        legacy, graph = excerpts(legacy, graph)
    return PromptChanged(
        path=f"{old.place}.{changed.path}",
        exchange=pair.exchange,
        legacy=legacy,
        graph=graph,
        detail=changed.field.removeprefix(f"{MESSAGE}."),
        change=change,
    )


def message_changes(legacy: dict[str, Any], graph: dict[str, Any]) -> list[FieldChange]:
    """Align the messages of two calls and list the fields that differ.

    Between messages that are equal, those of one role stand for each other, in order; then those
    that differ in their role alone. What is left stands on one side only, whatever its role.
    """
    old, new = _messages(legacy), _messages(graph)
    found: list[FieldChange] = []
    for block in align(list(map(sorted_text, old)), list(map(sorted_text, new))):
        if block.equal:
            continue
        right = list(block.right)
        alone: list[int] = []
        for k in block.left:
            j = next((j for j in right if _role(new[j]) == _role(old[k])), None)
            if j is None:
                alone.append(k)
            else:
                right.remove(j)
                found += _field_changes(k, old[k], new[j])
        for k in alone:
            j = next((j for j in right if _without_role(new[j]) == _without_role(old[k])), None)
            if j is None:
                found.append(_one_sided(k, old[k], None))
            else:
                right.remove(j)
                roles = _role(old[k]), _role(new[j])
                found.append(FieldChange(f"messages[{k}].role", roles[1], *roles))
        found += [_one_sided(k, None, new[k]) for k in right]
    return found


def _messages(call: dict[str, Any]) -> list[dict[str, Any]]:
    messages = call.get("messages")
    if not isinstance(messages, list):
        return []
    return [message if isinstance(message, dict) else {"": message} for message in messages]


def _role(message: dict[str, Any]) -> str:
    return str(message.get("role", "?"))


def _without_role(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "role"}


def _one_sided(at: int, legacy: dict[str, Any] | None, graph: dict[str, Any] | None) -> FieldChange:
    message = legacy or graph or {}
    plain = message.keys() <= {"role", "content"}
    shown = _text(message["content"]) if plain and message.get("content") else sorted_text(message)
    old, new = (None, shown) if legacy is None else (shown, None)
    return FieldChange(f"messages[{at}]", _role(message), old, new)


def _field_changes(at: int, old: dict[str, Any], new: dict[str, Any]) -> Iterator[FieldChange]:
    """Yield what differs between two messages of one role: the text has the path of its role."""
    role = _role(old)
    for path, legacy, graph in _differing("", old, new):
        below = "" if path == ".content" else path
        yield FieldChange(f"messages[{at}].{role}{below}", role, legacy, graph)


def parameter_changes(legacy: dict[str, Any], graph: dict[str, Any]) -> list[FieldChange]:
    """List the settings that differ, messages apart."""
    if _messages(legacy) or _messages(graph):
        legacy, graph = (
            {name: value for name, value in call.items() if name != "messages"}
            for call in (legacy, graph)
        )
    return [
        FieldChange(path.removeprefix("."), "", old, new)
        for path, old, new in _differing("", legacy, graph)
    ]


def _differing(path: str, old: Any, new: Any) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield the fields that differ between two objects, with their values as texts."""
    for name in sorted(old.keys() | new.keys()):
        one, other, here = old.get(name), new.get(name), f"{path}.{name}"
        if name not in old or name not in new:
            yield here, _text(one) if name in old else None, _text(other) if name in new else None
        elif _same_value(one, other):
            continue
        elif name not in _WHOLE and isinstance(one, dict) and isinstance(other, dict):
            yield from _differing(here, one, other)
        elif name not in _WHOLE and _in_step(one, other):
            for index, (a, b) in enumerate(zip(one, other, strict=True)):
                yield from _differing(f"{here}[{index}]", a, b)
        else:
            yield here, _text(one), _text(other)


def _same_value(one: Any, other: Any) -> bool:
    """Whether two values are the same; to Python `True` is 1, in a list, too."""
    if type(one) is not type(other):
        return False
    return bool(one == other if not isinstance(one, dict | list) else _text(one) == _text(other))


def _in_step(one: Any, other: Any) -> bool:
    """Whether two lists hold objects that stand for each other: as many, of the same names."""
    if not (isinstance(one, list) and isinstance(other, list) and len(one) == len(other)):
        return False
    return all(isinstance(item, dict) for item in (*one, *other)) and all(
        _name(a) == _name(b) for a, b in zip(one, other, strict=True)
    )


def _name(item: dict[str, Any]) -> Any:
    held = item.get("function")
    return held.get("name") if isinstance(held, dict) else item.get("name")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else sorted_text(value)
