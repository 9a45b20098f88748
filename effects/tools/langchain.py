"""LangChain tools in the registry. Imported where a team's module has some, never otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
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
    _refuse_injected(one, schema["properties"])
    declared = one.metadata or {}
    made = schema_tool(
        one.name,
        function.get("description", ""),
        schema,
        read_only=bool(declared.get("read_only", False)),
        timeout=declared.get("timeout", DEFAULT_TIMEOUT),
        idempotent=bool(declared.get("idempotent", False)),
    )

    async def call_async(arguments: dict[str, Any], context: ToolContext) -> object:
        return await one.arun(arguments, config=_config(context))

    def call(arguments: dict[str, Any], context: ToolContext) -> object:
        return one.run(arguments, config=_config(context))

    found = made(call_async if _has_coroutine(one) else call)
    return replace(found, read=_reader(one))


def _config(context: ToolContext) -> RunnableConfig:
    return {"configurable": {"user_id": context.user_id}}


def _reader(one: BaseTool) -> Any:
    """Return what reads arguments; the tool itself cannot tell its own errors from wrong ones."""
    if isinstance(one, TextTool) and one.args_schema is None:
        return _decode  # it takes one text, whatever its function calls that
    schema = one.tool_call_schema

    def read(text: str) -> dict[str, Any]:
        arguments: dict[str, Any] = _decode(text)
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


def _refuse_injected(one: BaseTool, offered: Mapping[str, object]) -> None:
    """Raise `ToolUnusable` for a tool that needs arguments which only LangGraph gives it."""
    schema = one.args_schema
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return
    required = {name for name, field in schema.model_fields.items() if field.is_required()}
    if injected := sorted(required - offered.keys()):
        raise ToolUnusable(why=f"{', '.join(injected)}: nothing is injected here, make it optional")
