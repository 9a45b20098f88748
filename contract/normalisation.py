"""Normalisation: what client libraries do to one conversation, undone before calls are compared.

Of two services that send the same conversation, one writes `content: null` beside tool calls and
the other `""`; one sends the arguments of tools as it got them, the other writes them anew. That is
no difference between the services' prompts. Everything else is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec

Fold: TypeAlias = Literal["absent", "empty_content", "arguments", "text_part", "call_ids"]
"""What is undone:

- `absent`: a field that is null, an empty list of annotations, and `n` of 1, are as if not sent;
- `empty_content`: so is content that is empty beside tool calls;
- `arguments`: the JSON text of a tool's arguments counts by its value;
- `text_part`: a list of one text part is that text;
- `call_ids`: ids of tool calls count by the order in which they first appear.
"""
FOLDS: Final[tuple[Fold, ...]] = get_args(Fold)

JSON: TypeAlias = dict[str, Any]
_OPTIONAL_LISTS: Final = frozenset({"annotations"})
_sorted = msgspec.json.Encoder(order="sorted").encode
_object = msgspec.json.Decoder(JSON)
_NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class NormalCall(NamedTuple):
    """Arguments of a call in normal form, with keys in order, and what was undone, by fold."""

    args: bytes
    undone: Mapping[Fold, list[str]]


def normal_call(args: bytes) -> NormalCall:
    """Undo what libraries do to the arguments of a passed chat completion, a `PassedCall` in JSON.

    What cannot be read is returned as it is. Two calls with equal `args` ask for the same; a fold
    tells them apart where its `undone` differ.
    """
    try:
        call = _object.decode(args)
        undone = _Undone()
        messages, more = call.get("messages"), call.get("more")
        if isinstance(messages, list):
            for number, message in enumerate(messages):
                if isinstance(message, dict):
                    undone.message(message, f"messages[{number}]")
        if isinstance(more, dict):
            undone.absent(more, "")
            if more.get("n") == 1:
                undone.take("absent", "n", more.pop("n"))
            if not more:
                del call["more"]
        return NormalCall(_sorted(call), undone.by_fold)
    except _NOT_JSON:
        return NormalCall(args, {})


def normal_args(args: bytes) -> bytes:
    """Return the arguments alone."""
    return normal_call(args).args


def folds_between(one: NormalCall, other: NormalCall) -> set[Fold]:
    """Return the folds that took different things from two calls."""
    return {fold for fold in FOLDS if one.undone.get(fold) != other.undone.get(fold)}


class _Undone:
    """The folds of one call; messages are changed in place, in their order."""

    def __init__(self) -> None:
        self.by_fold: defaultdict[Fold, list[str]] = defaultdict(list)
        self._ids: dict[str, str] = {}

    def take(self, fold: Fold, place: str, value: Any) -> None:
        """Note what a fold took where."""
        self.by_fold[fold].append(f"{place} {_sorted(value).decode()}")

    def absent(self, fields: JSON, place: str) -> None:
        """Take out what is null; an empty list says nothing in some fields."""
        for name in [*fields]:
            value = fields[name]
            if value is None or (value == [] and name in _OPTIONAL_LISTS):
                self.take("absent", f"{place}.{name}", fields.pop(name))

    def message(self, message: JSON, place: str) -> None:
        """Bring a message into normal form."""
        calls = message.get("tool_calls")
        if isinstance(calls, list) and calls and message.get("content", 0) in (None, "", []):
            self.take("empty_content", place, message.pop("content"))
        self.absent(message, place)
        self._content(message, place)
        for number, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict):
                self._tool_call(call, f"{place}.tool_calls[{number}]")
        self._id(message, "tool_call_id", place)

    def _content(self, message: JSON, place: str) -> None:
        parts = message.get("content")
        if not isinstance(parts, list):
            return
        for number, part in enumerate(parts):
            if isinstance(part, dict):
                self.absent(part, f"{place}.content[{number}]")
        match parts:
            case [{"type": "text", "text": str(text), **others}] if not others:
                self.take("text_part", place, None)
                message["content"] = text
            case _:
                pass

    def _tool_call(self, call: JSON, place: str) -> None:
        self.absent(call, place)
        self._id(call, "id", place)
        function = call.get("function")
        if not isinstance(function, dict):
            return
        self.absent(function, place)
        text = function.get("arguments")
        if not isinstance(text, str):
            return
        with suppress(*_NOT_JSON):  # what is no JSON counts as it is
            function["arguments"] = [_object.decode(text)]  # a list: an object was sent as such
            self.take("arguments", place, text)

    def _id(self, fields: JSON, name: str, place: str) -> None:
        given = fields.get(name)
        if isinstance(given, str):
            self.take("call_ids", place, given)
            fields[name] = self._ids.setdefault(given, f"#{len(self._ids)}")
