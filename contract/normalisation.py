"""Normalisation: what client libraries do to one conversation, undone before calls are compared.

Of two services that send the same conversation, one writes `content: null` beside tool calls and
the other `""`; one sends the arguments of tools as it got them, the other writes them anew. That is
no difference between the services' prompts. Everything else is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from math import isinf
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from contract.model import GATEWAY_SITE, ModelCall, passed_on
from contract.wire import NO_JSON

Fold: TypeAlias = Literal[
    "absent",
    "empty_content",
    "arguments",
    "text_part",
    "call_ids",
    "numbers",
    "max_tokens",
    "developer",
]
"""What is undone:

- `absent`: a field that is null or an empty list of annotations, `n` of 1, `tool_choice` "auto"
  beside tools, and the `index` of a tool call that is its place, are as if not sent;
- `empty_content`: so is content that is empty beside tool calls;
- `arguments`: the JSON text of a tool's arguments counts by its value, no text is that of `{}`;
- `text_part`: a list of one text part is that text;
- `call_ids`: ids of tool calls count by the order in which they first appear;
- `numbers`: a float that is whole is that integer;
- `max_tokens`: `max_completion_tokens` is its older name;
- `developer`: that role is `system` for OpenAI's o-models, as ChatOpenAI makes it.
"""
FOLDS: Final[tuple[Fold, ...]] = get_args(Fold)

JSON: TypeAlias = dict[str, Any]
_OPTIONAL_LISTS: Final = frozenset({"annotations"})
_O_MODEL: Final = re.compile(r"o\d")
_EXACT: Final = 2**53
"""Up to which floats count every integer."""
_sorted = msgspec.json.Encoder(order="sorted").encode


def number_of(text: str) -> float:
    """Read a JSON number with a fraction or an exponent; a whole one is that integer.

    Raises `msgspec.ValidationError` where it is out of range.
    """
    value = float(text)
    if isinf(value):
        return msgspec.json.decode(text, type=float)  # refuses it
    return int(value) if value.is_integer() and abs(value) <= _EXACT else value


class NormalCall(NamedTuple):
    """Arguments of a call in normal form, with keys in order, and what was undone, by fold."""

    args: bytes
    undone: Mapping[Fold, list[str]]


def normal_call(args: bytes) -> NormalCall:
    """Undo what libraries do to the arguments of a passed chat completion, a `PassedCall` in JSON.

    What cannot be read is returned as it is. Two calls with equal `args` ask for the same; a fold
    tells them apart where its `undone` differ.
    """
    undone = _Undone()
    try:
        return NormalCall(_sorted(undone.call(undone.decode(args))), undone.taken())
    except NO_JSON:
        return NormalCall(args, {})


def normal_args(args: bytes) -> bytes:
    """Return the arguments alone."""
    return normal_call(args).args


def normal_args_of(site: str, args: bytes) -> bytes:
    """Return the arguments of a call at a site: a stack's own as the chat completion that it is."""
    if site != GATEWAY_SITE:
        with suppress(*NO_JSON):
            args = msgspec.json.encode(passed_on(msgspec.json.decode(args, type=ModelCall)))
    return normal_args(args)


def folds_between(one: NormalCall, other: NormalCall) -> set[Fold]:
    """Return the folds that took different things from two calls."""
    return {fold for fold in FOLDS if one.undone.get(fold) != other.undone.get(fold)}


class _Undone:
    """The folds of one call; messages are changed in place, in their order."""

    def __init__(self) -> None:
        self._by_fold: defaultdict[Fold, list[str]] = defaultdict(list)
        self._ids: dict[str, str] = {}
        self.decode = msgspec.json.Decoder(JSON, float_hook=self._number).decode

    def taken(self) -> Mapping[Fold, list[str]]:
        """Return what each fold took where, whatever the order of keys."""
        return {fold: sorted(taken) for fold, taken in self._by_fold.items()}

    def call(self, call: JSON) -> JSON:
        """Bring a decoded call into normal form."""
        messages, more = call.get("messages"), call.get("more")
        if isinstance(messages, list):
            for number, message in enumerate(messages):
                if isinstance(message, dict):
                    self._message(message, f"messages[{number}]")
            if _O_MODEL.match(str(call.get("model_id"))):
                self._developer(messages)
        if isinstance(more, dict):
            self._settings(more)
            if not more:
                del call["more"]
        return call

    def _take(self, fold: Fold, place: str, value: Any) -> None:
        self._by_fold[fold].append(f"{place} {_sorted(value).decode()}")

    def _number(self, text: str) -> float:
        value = number_of(text)
        if isinstance(value, int):
            self._take("numbers", "", text)
        return value

    def _absent(self, fields: JSON, place: str) -> None:
        """Take out what is null; an empty list says nothing in some fields."""
        for name in [*fields]:
            value = fields[name]
            if value is None or (value == [] and name in _OPTIONAL_LISTS):
                self._take("absent", f"{place}.{name}", fields.pop(name))

    def _settings(self, more: JSON) -> None:
        self._absent(more, "")
        for name, unsaid in (("n", 1), ("tool_choice", "auto" if more.get("tools") else None)):
            if name in more and more[name] == unsaid:
                self._take("absent", name, more.pop(name))
        if "max_completion_tokens" in more and "max_tokens" not in more:
            more["max_tokens"] = more.pop("max_completion_tokens")
            self._take("max_tokens", "", None)

    def _developer(self, messages: list[Any]) -> None:
        for number, message in enumerate(messages):
            if isinstance(message, dict) and message.get("role") == "developer":
                message["role"] = "system"
                self._take("developer", f"messages[{number}]", None)

    def _message(self, message: JSON, place: str) -> None:
        """Bring a message into normal form."""
        calls = message.get("tool_calls")
        if isinstance(calls, list) and calls and message.get("content", 0) in (None, "", []):
            self._take("empty_content", place, message.pop("content"))
        self._absent(message, place)
        self._content(message, place)
        for number, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict):
                if call.get("index") == number:
                    self._take("absent", f"{place}.tool_calls[{number}].index", call.pop("index"))
                self._tool_call(call, f"{place}.tool_calls[{number}]")
        self._id(message, "tool_call_id", place)

    def _content(self, message: JSON, place: str) -> None:
        parts = message.get("content")
        if not isinstance(parts, list):
            return
        for number, part in enumerate(parts):
            if isinstance(part, dict):
                self._absent(part, f"{place}.content[{number}]")
        match parts:
            case [{"type": "text", "text": str(text), **others}] if not others:
                self._take("text_part", place, None)
                message["content"] = text
            case _:
                pass

    def _tool_call(self, call: JSON, place: str) -> None:
        self._absent(call, place)
        self._id(call, "id", place)
        function = call.get("function")
        if not isinstance(function, dict):
            return
        self._absent(function, place)
        text = function.get("arguments")
        if not isinstance(text, str):
            return
        with suppress(*NO_JSON):  # what is no JSON counts as it is
            # In a list: an object was sent as such.
            function["arguments"] = [self.decode(text or "{}")]
            self._take("arguments", place, text)

    def _id(self, fields: JSON, name: str, place: str) -> None:
        given = fields.get(name)
        if isinstance(given, str):
            self._take("call_ids", place, given)
            fields[name] = self._ids.setdefault(given, f"#{len(self._ids)}")
