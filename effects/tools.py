"""Tools: functions that models may call, each an effect with a schema made of its signature."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import Any, Final, get_type_hints

import msgspec

from cutover import effect
from cutover.chat_form import plain_schema
from cutover.errors import Control, CutoverError, EffectFailed
from cutover.tape import OUTCOME_UNKNOWN
from rules.prompts import ToolFault

log = logging.getLogger(__name__)

SECONDS: Final = 30.0
"""How long a tool may take."""


class ToolError(CutoverError):
    """A tool call has no result; `code` is what models and clients are told, nothing else."""

    def __init__(self, code: ToolFault) -> None:
        super().__init__(code)
        self.code: ToolFault = code


class BadTool(CutoverError):
    """A configured name leads to no tool, or models could not be shown a function's parameters."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as models see it; `parameters` is the JSON schema of an object, without references."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: what models see, the struct of its arguments, and the effect that performs it.

    `hidden` are the keyword-only parameters: the stack passes them, models neither see nor set
    them. `perform` raises `ToolError` alone.
    """

    spec: ToolSpec
    arguments: type[msgspec.Struct]
    perform: Callable[..., Awaitable[str]]
    hidden: frozenset[str]


def tool(
    *, description: str, writes: bool = False, seconds: float = SECONDS
) -> Callable[[Callable[..., Awaitable[str]]], Tool]:
    """Make a tool and the effect `tool.NAME` of an async function that returns text.

    Parameters are positional ones of any type that msgspec reads (`Annotated` with `msgspec.Meta`
    for limits and descriptions); keyword-only `user_id` and `session_id` come from the stack. The
    function raises `ToolError("bad_arguments")` for values it cannot use. Raises `BadTool`.
    """

    def decorate(function: Callable[..., Awaitable[str]]) -> Tool:
        name = function.__name__

        @effect(f"tool.{name}", writes=writes, seconds=seconds + 1, raises=(ToolError,))
        @wraps(function)
        async def perform(*args: Any, **kwargs: Any) -> str:
            try:
                async with asyncio.timeout(seconds):
                    return await function(*args, **kwargs)
            except ToolError:
                raise
            except TimeoutError as late:
                raise ToolError(code="tool_timeout") from late
            except Exception as failure:
                log.exception("tool failed tool=%s", name)
                raise ToolError(code="tool_failed") from failure

        hidden = _hidden(function)
        arguments = arguments_of(function, hidden)
        return Tool(ToolSpec(name, description, schema(arguments)), arguments, perform, hidden)

    return decorate


class Tools:
    """The tools of a deployment by name."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools = {one.spec.name: one for one in tools}

    @classmethod
    def load(cls, names: Iterable[str], *, besides: Iterable[Tool] = ()) -> Tools:
        """Return the tools `besides`, and those named `module:object` (a tool or several of them).

        A later tool replaces an earlier one of its name. Raises `BadTool`.
        """
        return cls([*besides, *(one for name in names for one in _load(name))])

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What models see of each tool, in the order in which they see them."""
        return tuple(one.spec for one in self._tools.values())

    async def call(
        self, name: str, arguments: Mapping[str, Any], *, user_id: str = "", session_id: str = ""
    ) -> str:
        """Call a tool with a model's arguments, which are checked and never repaired.

        Raises `ToolError` with one of its codes, and what the tape stops a run with.
        """
        if (found := self._tools.get(name)) is None:
            raise ToolError(code="unknown_tool")
        try:
            checked = msgspec.convert(arguments, found.arguments)
        except (msgspec.ValidationError, RecursionError) as failure:
            raise ToolError(code="bad_arguments") from failure
        given = {"user_id": user_id, "session_id": session_id}
        hidden = {name: given[name] for name in found.hidden}
        try:
            return await found.perform(**msgspec.structs.asdict(checked), **hidden)
        except (Control, ToolError):
            raise
        except Exception as failure:  # the effect was cut off, or cannot be put on the tape
            log.error("tool call lost tool=%s error=%r", name, failure)
            unknown = isinstance(failure, EffectFailed) and failure.kind == OUTCOME_UNKNOWN
            raise ToolError(code="outcome_unknown" if unknown else "tool_failed") from failure


_HIDDEN: Final = frozenset({"user_id", "session_id"})


def _hidden(function: Callable[..., Any]) -> frozenset[str]:
    parameters = inspect.signature(function).parameters.values()
    hidden = frozenset(one.name for one in parameters if one.kind is one.KEYWORD_ONLY)
    if unknown := ", ".join(sorted(hidden - _HIDDEN)):
        raise BadTool(function.__qualname__, f"stacks pass no keyword {unknown}")
    return hidden


def arguments_of(
    function: Callable[..., Any], hidden: frozenset[str] = frozenset()
) -> type[msgspec.Struct]:
    """Return a struct of a function's parameters without the hidden ones."""
    hints = get_type_hints(function, include_extras=True)
    fields: list[Any] = [
        (name, hints[name], *(() if one.default is one.empty else (one.default,)))
        for name, one in inspect.signature(function).parameters.items()
        if name not in hidden
    ]
    return msgspec.defstruct(
        function.__name__, fields, frozen=True, forbid_unknown_fields=True, kw_only=True
    )


def schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the plain JSON schema of a struct: no titles, no references, no closing.

    Raises `BadTool` for types that contain themselves.
    """
    (_, definitions) = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    plain = plain_schema(definitions.pop(struct.__name__) | {"$defs": definitions})
    if "$defs" in plain:
        raise BadTool(struct.__name__, "a type contains itself, which takes references")
    return {"properties": {}, "required": [], **plain}


def _load(name: str) -> list[Tool]:
    module, _, attribute = name.partition(":")
    where = f"no tool at {name!r}"
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as failure:
        raise BadTool(where, f"{failure}; name it 'module:function'") from failure
    tools = list(found) if isinstance(found, Iterable) else [found]
    for one in tools:
        if not isinstance(one, Tool):
            raise BadTool(where, f"it is a {type(one).__name__}")
    return tools
