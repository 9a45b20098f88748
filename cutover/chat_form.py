"""The normal form of chat completions, and the JSON it is written in."""

import json
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

JSON: TypeAlias = dict[str, Any]

_EXACT: Final = 2**53
"""Up to which floats count every integer."""


class NotJson(Exception):
    """A body is no JSON, or none that is worth reading."""


def decode(text: str | bytes) -> Any:
    """Read JSON: whole floats are integers, numbers beyond all floats their text."""
    try:
        return json.loads(text, parse_float=_number, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise NotJson from error


def decode_or(text: str, otherwise: Any) -> Any:
    """Read JSON; return `otherwise` for what is none."""
    try:
        return decode(text)
    except NotJson:
        return otherwise


def _number(text: str) -> float | str:
    value = float(text)
    if value in {float("inf"), float("-inf")}:
        return text
    return int(value) if value.is_integer() and abs(value) <= _EXACT else value


def encode(value: Any) -> bytes:
    """Return compact JSON in UTF-8 with keys in order."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")  # lone surrogates are escaped as JSON does it


# What an absent field means.
_DEFAULTS: Final[JSON] = {
    "n": 1,
    "stream": False,
    "parallel_tool_calls": True,
    "tools": [],
    "response_format": {"type": "text"},
    "modalities": ["text"],
    "logprobs": False,
}
_LIMIT, _OLDER_LIMIT = "max_completion_tokens", "max_tokens"
_UNSENT: Final = {
    "tool": ("name",),
    "assistant": ("reasoning_content", "reasoning", "reasoning_details"),
}
"""Fields by role that langchain-openai drops and other clients send."""


class ChatForm:
    """The normal form of one chat completion; what was decoded for it is changed in place."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def read(self, body: JSON) -> JSON:
        """Return a request's body in normal form; the form of its answer counts, usage does not."""
        request = {name: value for name, value in body.items() if value is not None}
        request.pop("stream_options", None)
        limit = request.get(_LIMIT)
        if limit is not None and request.get(_OLDER_LIMIT, limit) == limit:
            request[_OLDER_LIMIT] = request.pop(_LIMIT)
        if request.get("tools") and request.get("tool_choice") == "auto":
            del request["tool_choice"]
        if isinstance(request.get("stop"), str):
            request["stop"] = [request["stop"]]
        for message in _objects(request.get("messages")):
            self._message(message)
        for tool in _objects(request.get("tools")):
            _function(tool, "function", "parameters")
        _function(request.get("response_format"), "json_schema", "schema")
        absent = object()
        return {k: one for k, one in request.items() if _DEFAULTS.get(k, absent) != one}

    def _message(self, message: JSON) -> None:
        if message.get("role") == "developer":
            message["role"] = "system"
        for name in _UNSENT.get(str(message.get("role")), ()):
            message.pop(name, None)
        if isinstance(content := message.get("content"), list):
            message["content"] = _parts(content)
        for call in _objects(message.get("tool_calls")):
            call.pop("index", None)  # its place in the list says the same
            call.setdefault("type", "function")
            self._rename(call, "id")
            _drop(call)
            if isinstance(function := call.get("function"), dict):
                function["arguments"] = _arguments(function.get("arguments"))
        self._rename(message, "tool_call_id")
        _drop(message, ("content", "tool_calls", "annotations"))

    def _rename(self, holder: JSON, name: str) -> None:
        """Replace the id of a tool call by its number in order of appearance."""
        if isinstance(known := holder.get(name), str):
            holder[name] = self._ids.setdefault(known, f"call_{len(self._ids)}")


def _objects(items: Any) -> list[JSON]:
    """Return the objects of a list; requests are as their senders made them."""
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _drop(fields: JSON, optional: tuple[str, ...] = ()) -> None:
    """Remove what is null, and of `optional` what is empty."""
    for name, value in [*fields.items()]:
        if value is None or (name in optional and value in ("", [])):
            del fields[name]


def _arguments(text: Any) -> Any:
    """Return the arguments of a tool as the object they are; what is none counts as it is."""
    if text in (None, ""):
        return {}
    value = decode_or(text, None) if isinstance(text, str) else None
    return value if isinstance(value, dict) else text


def _parts(content: list[Any]) -> Any:
    """Return the parts of a message's content: a single text is that text."""
    for part in _objects(content):
        _drop(part, ("annotations",))
        if isinstance(image := part.get("image_url"), str):
            part["image_url"] = {"url": image}
        elif isinstance(image, dict):
            _drop(image)
            if image.get("detail") == "auto":
                del image["detail"]
    match content:
        case [{"type": "text", "text": str(text), **more}] if not more:
            return text
        case _:
            return content


# --- Schemas

_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""Keywords that hold schemas by names of the user's."""
_VALUES: Final = frozenset({"enum", "const", "default", "examples"})
_MOST_REFERENCES: Final = 64
_NO_PARAMETERS: Final[tuple[JSON, ...]] = ({"type": "object"}, {})


def _function(holder: Any, kind: str, schema: str) -> None:
    """Bring a tool or the form of an answer into normal form, without what generators add."""
    function = holder.get(kind) if isinstance(holder, dict) else None
    if not isinstance(function, dict):
        return
    _drop(function, ("description",))
    if function.get("strict") is False:
        del function["strict"]
    if isinstance(function.get(schema), dict):
        function[schema] = msgspec.json.decode(_normal(msgspec.json.encode(function[schema])))
        if function[schema].get("description") == function.get("description", ""):
            function[schema].pop("description", None)
        if function[schema] in _NO_PARAMETERS:
            del function[schema]


@lru_cache(maxsize=1_024)
def _normal(schema: bytes) -> bytes:
    """Return a schema in normal form, both as JSON: the same tools are offered again and again."""
    return msgspec.json.encode(plain_schema(msgspec.json.decode(schema)))


def plain_schema(schema: JSON) -> JSON:
    """Return a schema in normal form; where it has `$defs`, a type contains itself."""
    plain: JSON = _Schema(schema).plain(schema)
    if '"$ref"' not in json.dumps(plain):
        plain.pop("$defs", None)
    return plain


class _Schema:
    """A JSON schema without titles, defaults of null and closed objects, references resolved."""

    def __init__(self, root: JSON) -> None:
        definitions = root.get("$defs")
        self._definitions = definitions if isinstance(definitions, dict) else {}
        self._left = _MOST_REFERENCES
        self._open: list[str] = []

    def plain(self, value: Any) -> Any:
        """Return a schema, or the value of a keyword, in normal form."""
        if isinstance(value, list):
            return [self.plain(one) for one in value]
        if not isinstance(value, dict):
            return value
        name = str(value.get("$ref", ""))
        target = self._definitions.get(name.removeprefix("#/$defs/"))
        if isinstance(target, dict) and name not in self._open and self._left:
            self._left -= 1
            self._open.append(name)
            found = self.plain(target | {k: one for k, one in value.items() if k != "$ref"})
            self._open.pop()
            return found
        return {k: self._keyword(k, one) for k, one in value.items() if not _noise(k, one)}

    def _keyword(self, key: str, value: Any) -> Any:
        if key in _NAMED and isinstance(value, dict):
            return {name: self.plain(one) for name, one in value.items()}
        if key == "required" and isinstance(value, list):
            return sorted(value, key=str)
        return value if key in _VALUES else self.plain(value)


def _noise(key: str, value: Any) -> bool:
    """Whether a keyword says nothing of what is valid."""
    match key:
        case "title" | "$schema":
            return isinstance(value, str)
        case "additionalProperties":
            return isinstance(value, bool)
        case "default":
            return value is None
        case _:
            return key in {"required", "properties", "$defs"} and value in ([], {})
