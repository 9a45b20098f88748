"""The tools of this deployment as LangChain's, and a round of calls through `ToolNode`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.prebuilt import ToolNode

from effects.tools import ToolError, ToolSpec
from effects.world import current
from graph_impl.model import CALLS, tool_call
from rules.texts import tool_error


def langchain_tools(
    names: Sequence[str], *, user_id: str = "", session_id: str = ""
) -> list[BaseTool]:
    """Return tools as LangChain takes them, for one user."""

    def made(spec: ToolSpec) -> BaseTool:
        async def call(**arguments: Any) -> str:
            try:
                return await current().tools.call(
                    spec.name, arguments, user_id=user_id, session_id=session_id
                )
            except ToolError as error:
                raise ToolException(tool_error(error.code)) from error

        return StructuredTool(
            name=spec.name,
            description=spec.description,
            args_schema=spec.parameters,
            coroutine=call,
            handle_tool_error=True,
        )

    return [made(current().tools.spec(name)) for name in names]


Report = Callable[[ToolMessage], None]
"""Takes the result of a call, in the order of the calls, once those before it are in."""


async def run_round(
    answer: AnyMessage, tools: Sequence[BaseTool], report: Report
) -> list[AnyMessage]:
    """Run the tool calls of an answer at the same time and return their messages, in order."""
    assert isinstance(answer, AIMessage)  # noqa: S101 - the edge leads here from one alone
    node, known = ToolNode(tools), {one.name for one in tools}
    calls = answer.additional_kwargs[CALLS]
    results: dict[int, ToolMessage] = {}
    reported = 0

    async def run(place: int, call: dict[str, str]) -> None:
        nonlocal reported
        results[place] = await _result(node, known, call)
        while reported in results:
            report(results[reported])
            reported += 1

    async with asyncio.TaskGroup() as group:
        for place, call in enumerate(calls):
            group.create_task(run(place, call))
    return [results[place] for place in range(len(calls))]


async def _result(node: ToolNode, known: set[str], call: dict[str, str]) -> ToolMessage:
    parsed = tool_call(call)
    if call["name"] not in known:
        return _refused(call, tool_error("unknown_tool"))
    if parsed is None:
        return _refused(call, tool_error("bad_arguments"))
    result: ToolMessage = (await node.ainvoke([parsed]))["messages"][0]
    return result


def _refused(call: dict[str, str], content: str) -> ToolMessage:
    return ToolMessage(content, name=call["name"], tool_call_id=call["id"], status="error")
