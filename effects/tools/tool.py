"""A tool: a function, its description for models, and how its arguments are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from contract.errors import CutoverError
from contract.model import ToolSpec

Arguments = TypeVar("Arguments", bound=msgspec.Struct)

Json = Any
"""Any decoded JSON value."""

DEFAULT_TIMEOUT = 10.0


class BadArguments(CutoverError):
    """A tool cannot work with arguments that fit its schema; the model gets `bad_arguments`."""

    def __init__(self, argument: str, reason: str) -> None:
        super().__init__(f"argument {argument!r}: {reason}")


class SelfContainedSchema(CutoverError):
    """A type of arguments contains itself, so its schema cannot be written out."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} contains itself; arguments of a tool may not")


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The user a tool works for; None when the request names none."""

    user_id: str | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of the registry; made by `tool` or `schema_tool`.

    `read` turns the model's text into arguments; `call` gets them with the context and may be a
    coroutine function. `timeout` in seconds. `read_only`: calling it changes nothing anywhere, so
    it may die with its exchange and be called in a live shadow. `idempotent`: the same call again
    changes nothing more, so that it is made again where its result was lost. `source` is where the
    tool is from, for people.
    """

    spec: ToolSpec
    read: Callable[[str], Any]
    call: Callable[[Any, ToolContext], object]
    read_only: bool
    timeout: float
    idempotent: bool = False
    source: str = "built in"


def tool(
    name: str,
    description: str,
    arguments: type[Arguments],
    *,
    read_only: bool,
    timeout: float = DEFAULT_TIMEOUT,
    idempotent: bool = False,
) -> Callable[[Callable[[Arguments, ToolContext], object]], Tool]:
    """Make a tool of the function below; its schema is written from a struct and checked by it."""
    spec = ToolSpec(name, description, parameters(schema_of(arguments)))
    read = msgspec.json.Decoder(arguments).decode
    return lambda call: Tool(spec, read, call, read_only, timeout, idempotent)


def schema_tool(
    name: str,
    description: str,
    schema: Mapping[str, Json],
    *,
    read_only: bool,
    timeout: float = DEFAULT_TIMEOUT,
    idempotent: bool = False,
) -> Callable[[Callable[[dict[str, Json], ToolContext], object]], Tool]:
    """Make a tool of the function below, with a schema from elsewhere.

    Only that the arguments are an object is checked here: the rest is checked where the schema
    comes from (a remote tool server does), and may raise `BadArguments`.
    """
    spec = ToolSpec(name, description, parameters(schema))
    read = msgspec.json.Decoder(dict[str, Any]).decode
    return lambda call: Tool(spec, read, call, read_only, timeout, idempotent)


def parameters(schema: Mapping[str, Json]) -> msgspec.Raw:
    """Encode a schema canonically: compact, keys sorted."""
    return msgspec.Raw(msgspec.json.encode(schema, order="sorted"))


def schema_of(arguments: type[msgspec.Struct]) -> dict[str, Json]:
    """Write the JSON schema of a struct without references, which many models do not follow."""
    (root,), definitions = msgspec.json.schema_components([arguments], ref_template="{name}")
    schema: dict[str, Json] = _resolve(root, definitions, ())
    # The struct's docstring is for its readers; the model has the tool's description.
    schema.pop("description", None)
    return schema


def _resolve(schema: Json, definitions: Mapping[str, Json], inside: tuple[str, ...]) -> Json:
    if isinstance(schema, list):
        return [_resolve(item, definitions, inside) for item in schema]
    if not isinstance(schema, dict):
        return schema
    name = schema.get("$ref")
    if isinstance(name, str):
        if name in inside:
            raise SelfContainedSchema(name)
        target = {key: value for key, value in definitions[name].items() if key != "title"}
        return _resolve(target, definitions, (*inside, name))
    return {key: _resolve(value, definitions, inside) for key, value in schema.items()}
