"""Tools of a team's own: the marked functions of its modules, and the LangChain tools in them."""

from __future__ import annotations

import inspect
import math
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin, get_type_hints, overload

import msgspec

from contract.errors import CutoverError
from effects.tools.builtin import BUILT_IN
from effects.tools.registry import DuplicateTool
from effects.tools.tool import DEFAULT_TIMEOUT, Tool, ToolContext, tool

Function = TypeVar("Function", bound=Callable[..., object])

_MARK: Final = "__cutover_tool__"
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_BY_NAME: Final = frozenset(
    {
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    }
)
_LANGCHAIN: Final = "langchain_core.tools"


class ToolModuleRefused(CutoverError):
    """A module cannot be imported, or has something that is meant as a tool and cannot be one."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"tools of {where!r}: {why}")


class ToolUnusable(CutoverError):
    """A function or LangChain tool cannot be offered to a model."""

    def __init__(self, why: str) -> None:
        super().__init__(why)


@dataclass(frozen=True, slots=True)
class _Mark:
    name: str
    read_only: bool
    timeout: float
    idempotent: bool


@overload
def function_tool(function: Function, /) -> Function: ...


@overload
def function_tool(
    *,
    name: str = "",
    read_only: bool = False,
    timeout: float = DEFAULT_TIMEOUT,
    idempotent: bool = False,
) -> Callable[[Function], Function]: ...


def function_tool(
    function: Any = None,
    /,
    *,
    name: str = "",
    read_only: bool = False,
    timeout: float = DEFAULT_TIMEOUT,
    idempotent: bool = False,
) -> Any:
    """Mark the function below as a tool; it stays a function.

    The model calls it by `name`, its own if "". It reads the docstring as the description, and a
    schema made of the parameters: each has a type that msgspec knows, and in `Annotated` may have a
    description (a text) or constraints (`msgspec.Meta`). A parameter of the type `ToolContext` is
    given the user, and is not the model's. The function may be a coroutine function; any other
    runs in a thread. What it returns is text or becomes JSON. `read_only`, `timeout` and
    `idempotent` are as those of `Tool`.
    """
    mark = _Mark(name, read_only, timeout, idempotent)

    def marked(one: Any) -> Any:
        setattr(one, _MARK, mark)
        return one

    return marked if function is None else marked(function)


def python_tools(modules: Iterable[str]) -> list[Tool]:
    """Return the tools of modules, in their order; each knows its `source`.

    Tools are functions marked by `function_tool`, instances of `Tool`, and of LangChain's
    `BaseTool`. Raises `ToolModuleRefused`, and `DuplicateTool` where one has the name of
    another, or of a built-in one.
    """
    reserved = dict(reserved_names(()))
    found: dict[int, Tool] = {}
    for name in modules:
        objects = list(_candidates(_imported(name)))
        if not objects:
            why = "it has no tools: mark functions with effects.tools.function_tool"
            raise ToolModuleRefused(name, why)
        for attribute, one in objects:
            if id(one) in found:
                continue  # imported from another of the modules
            made = _tool(one, f"{name}.{attribute}")
            if made.spec.name in reserved:
                raise DuplicateTool(made.spec.name, reserved[made.spec.name], made.source)
            reserved[made.spec.name] = made.source
            found[id(one)] = made
    return list(found.values())


def _imported(name: str) -> ModuleType:
    try:
        return import_module(name)
    except (Exception, SystemExit) as failure:
        missing = failure.name if isinstance(failure, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            why = f"there is no module {missing!r} in the current folder or among what is installed"
            raise ToolModuleRefused(name, why) from failure
        last = traceback.extract_tb(failure.__traceback__)[-1]
        why = f"{type(failure).__name__} at {last.filename}:{last.lineno}: {failure}"
        raise ToolModuleRefused(name, f"importing it fails: {why}") from failure


def _candidates(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield what is meant as a tool, in the order in which the module defines it."""
    # A LangChain tool is there only where LangChain has been imported.
    kinds = (Tool, *_langchain_kinds())
    for attribute, one in vars(module).items():
        if isinstance(one, kinds) or (callable(one) and hasattr(one, _MARK)):
            yield attribute, one


def _langchain_kinds() -> tuple[type, ...]:
    library = sys.modules.get(_LANGCHAIN)
    return () if library is None else (library.BaseTool,)


def _tool(one: Any, source: str) -> Tool:
    try:
        if isinstance(one, Tool):
            made = one
        elif isinstance(one, _langchain_kinds()):
            made = import_module("effects.tools.langchain").langchain_tool(one)
        else:
            made = _function_tool(one, getattr(one, _MARK))
        if not _NAME.fullmatch(made.spec.name):
            why = "a name has up to 64 letters, digits, '_' and '-'"
            raise ToolUnusable(why=f"named {made.spec.name!r}: {why}")
        if not made.spec.description:
            raise ToolUnusable(why="it has no docstring, by which the model knows what it is for")
        if not 0 < made.timeout < math.inf:
            raise ToolUnusable(why=f"timeout = {made.timeout!r}: must be seconds, more than 0")
    except (CutoverError, TypeError, ValueError) as refused:
        raise ToolModuleRefused(source, str(refused)) from refused
    return replace(made, source=source)


def _function_tool(function: Callable[..., object], mark: _Mark) -> Tool:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolUnusable(why="it is a generator: return the whole answer")
    name = mark.name or getattr(function, "__name__", "")
    fields, context = _fields(function)
    try:
        arguments = msgspec.defstruct(
            "Arguments", fields, kw_only=True, frozen=True, forbid_unknown_fields=True
        )
        made = tool(
            name,
            inspect.getdoc(function) or "",
            arguments,
            read_only=mark.read_only,
            timeout=mark.timeout,
            idempotent=mark.idempotent,
        )
    except (TypeError, ValueError) as failure:
        raise ToolUnusable(why=f"no schema can be made of its parameters: {failure}") from failure
    names = [field[0] for field in fields]

    def values(given: msgspec.Struct, user: ToolContext) -> dict[str, object]:
        own = {one: getattr(given, one) for one in names}
        return own | dict.fromkeys(context, user)

    if inspect.iscoroutinefunction(function):

        async def call_async(given: msgspec.Struct, user: ToolContext) -> object:
            return await function(**values(given, user))

        return made(call_async)
    return made(lambda given, user: function(**values(given, user)))


def _fields(function: Callable[..., object]) -> tuple[list[Any], list[str]]:
    """Return the parameters as fields of a struct, and the names of those that take the user."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError) as failure:
        raise ToolUnusable(why=f"its types cannot be read: {failure}") from failure
    fields: list[Any] = []
    context: list[str] = []
    for one in inspect.signature(function).parameters.values():
        if one.kind in _NOT_BY_NAME:
            raise ToolUnusable(why=f"parameter {str(one)!r}: the model names each argument")
        if one.name not in hints:
            raise ToolUnusable(
                why=f"parameter {one.name!r} has no type: write {one.name}: str, say"
            )
        hint = hints[one.name]
        kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if ToolContext in (kind, *get_args(kind)):  # optional or not, it is never the model's
            context.append(one.name)
            continue
        field = _described(hint)
        if one.default is None:
            field = field | None  # models send what is declared as the default
        try:
            msgspec.json.schema(field)
        except (TypeError, ValueError) as failure:
            why = "use a dataclass, say, or make it a LangChain tool"
            raise ToolUnusable(why=f"parameter {str(one)!r} has no schema: {why}") from failure
        default = () if one.default is inspect.Parameter.empty else (one.default,)
        fields.append((one.name, field, *default))
    return fields, context


def _described(hint: Any) -> Any:
    """Return a type with the text in its `Annotated` as its description."""
    if get_origin(hint) is not Annotated:
        return hint
    kind, *notes = get_args(hint)
    for note in notes:
        if isinstance(note, str):
            kind = Annotated[kind, msgspec.Meta(description=note)]
        elif isinstance(note, msgspec.Meta):
            kind = Annotated[kind, note]
    return kind


def reserved_names(tools: Iterable[Tool]) -> Mapping[str, str]:
    """Return the names that no other tool may have, and where each of them is from."""
    return dict.fromkeys(BUILT_IN, "built in") | {one.spec.name: one.source for one in tools}
