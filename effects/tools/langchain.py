"""LangChain tools in the registry. Imported where a team's module has some, never otherwise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import msgspec
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.tools import Tool as TextTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, ValidationError

from effects.tools.functions import ToolUnusable
from effects.tools.tool import DEFAULT_TIMEOUT, Tool, ToolContext, schema_tool

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def langchain_tool(one: BaseTool) -> Tool:
    """Return a LangChain tool as one of the registry; raises `ToolUnusable`.

    `read_only`, `timeout` and `idempotent` are keys of its `metadata`. Its configuration has the
    user, `configurable.user_id`. One with a coroutine is awaited, any other runs in a thread.
    """
    try:
        function = convert_to_openai_tool(one)["function"]
    except Exception as failure:
        raise ToolUnusable(why=f"LangChain makes no schema of it: {failure}") from failure
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    try:
        declared = msgspec.convert(one.metadata or {}, _Declared)
    except msgspec.ValidationError as error:
        raise ToolUnusable(why=f"its metadata: {error}") from error
    made = schema_tool(
        one.name, function.get("description", ""), schema, **msgspec.structs.asdict(declared)
    )

    async def call_async(arguments: dict[str, Any], context: ToolContext) -> object:
        return _answer(await one.arun(arguments, config=_config(context)))

    def call(arguments: dict[str, Any], context: ToolContext) -> object:
        return _answer(one.run(arguments, config=_config(context)))

    found = made(call_async if _has_coroutine(one) else call)
    return replace(found, read=_reader(one, _injected(one, schema["properties"])))


class _Declared(msgspec.Struct):
    read_only: bool = False
    timeout: float = DEFAULT_TIMEOUT
    idempotent: bool = False


def _answer(answer: object) -> object:
    """Return what the model reads of an answer."""
    return answer.content if isinstance(answer, ToolMessage) else answer


def _config(context: ToolContext) -> RunnableConfig:
    return {"configurable": {"user_id": context.user_id}}


def _reader(one: BaseTool, injected: Collection[str]) -> Callable[[str], dict[str, Any]]:
    """Return what reads arguments; the tool itself cannot tell its own errors from wrong ones."""
    # Such a tool takes one text, whatever its function calls that.
    single = isinstance(one, TextTool) and one.args_schema is None
    schema = None if single else one.tool_call_schema

    def read(text: str) -> dict[str, Any]:
        decoded = _decode(text)
        arguments = {name: value for name, value in decoded.items() if name not in injected}
        if single and len(arguments) != 1:
            raise msgspec.ValidationError(one.name)
        if isinstance(schema, type) and issubclass(schema, BaseModel):
            try:
                schema.model_validate(arguments)
            except ValidationError as refused:
                raise msgspec.ValidationError(one.name) from refused
        return arguments

    return read


def _has_coroutine(one: BaseTool) -> bool:
    if isinstance(one, StructuredTool | TextTool):
        return one.coroutine is not None
    return type(one)._arun is not BaseTool._arun  # noqa: SLF001 - what a subclass overrides


def _injected(one: BaseTool, offered: Mapping[str, object]) -> frozenset[str]:
    """Return the arguments that are not the model's: none is given here, so they are optional.

    Raises `ToolUnusable` for a required one, which only LangGraph gives.
    """
    schema = one.args_schema
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return frozenset()
    hidden = {name: field for name, field in schema.model_fields.items() if name not in offered}
    if required := sorted(name for name, field in hidden.items() if field.is_required()):
        raise ToolUnusable(why=f"{', '.join(required)}: nothing is injected here, make it optional")
    return frozenset(hidden)
