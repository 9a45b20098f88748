"""`search_memory`: what is remembered of the exchange's user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from contract.stores import Recall
from effects.tools.tool import Tool, ToolContext, tool

if TYPE_CHECKING:
    from contract.ports import Memory


class SearchMemoryArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `search_memory`."""

    query: Annotated[
        str, msgspec.Meta(min_length=1, max_length=1_000, description="What to look for")
    ]


def searcher_of_memory(memory: Memory, limit: int = 5) -> Tool:
    """Make the tool `search_memory`; nothing is remembered of a request without a user."""

    @tool(
        "search_memory",
        "Search what is remembered about the user from earlier conversations.",
        SearchMemoryArguments,
        read_only=True,
    )
    async def search_memory(arguments: SearchMemoryArguments, context: ToolContext) -> list[str]:
        if context.user_id is None:
            return []
        query = Recall(user_id=context.user_id, query=arguments.query, limit=limit)
        return [entry.text for entry in await memory.recall("search_memory", query)]

    return search_memory
