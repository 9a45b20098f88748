"""How much of a tool's answer a model is given."""

from __future__ import annotations

import msgspec
import pytest

from contract.model import ToolCall, ToolResult
from effects.tools import ToolContext, ToolRegistry, tool
from effects.tools.registry import MAX_ANSWER

CALL = ToolCall("call_1", "tell", "")


class Nothing(msgspec.Struct, frozen=True):
    """No arguments."""


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("家家家", "家家家"),
        ("家家家😀", "家家家\n[1 characters left out]"),
        ("\ud83d" * 5, "???\n[2 characters left out]"),
        (["a"], '["a\n[2 characters left out]'),
    ],
)
async def test_a_long_answer_is_cut_and_says_so(answer: object, text: str) -> None:
    """Between two characters; at the limit it is whole."""

    @tool("tell", "Tell.", Nothing, read_only=True)
    async def tell(_arguments: Nothing, _context: ToolContext) -> object:
        return answer

    registry = ToolRegistry([tell], characters=3)
    try:
        assert await registry.run("tools", CALL) == ToolResult(text)
    finally:
        await registry.aclose()


async def test_of_an_answer_64_kib_of_characters_are_given_where_nothing_is_said() -> None:
    """As many as the configuration says."""

    @tool("tell", "Tell.", Nothing, read_only=True)
    async def tell(_arguments: Nothing, _context: ToolContext) -> str:
        return "x" * (MAX_ANSWER + 2)

    registry = ToolRegistry([tell])
    try:
        content = (await registry.run("tools", CALL)).content
    finally:
        await registry.aclose()
    assert content == "x" * 65_536 + "\n[2 characters left out]"
