"""Tools: what models are shown, what they may set, and what they are told when a call fails."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from cutover import Exchange
from cutover.errors import Control
from effects.builtin_tools import BUILT_IN, NotArithmetic, evaluate
from effects.memory import Memory, namespace, open_memory
from effects.tools import BadTool, ToolError, Tools, tool
from effects.world import World, use
from tests.effects.conftest import MovableClock, taped

CALLS: list[Any] = []


class Line(msgspec.Struct):
    """An item of an order."""

    title: str
    count: Annotated[int, Meta(ge=1)] = 1


@tool(description="Order things.", writes=True)
async def order(lines: list[Line], speed: Literal["slow", "fast"] = "slow", *, user_id: str) -> str:
    """Return what was ordered."""
    CALLS.append((lines, speed, user_id))
    return f"{len(lines)} for {user_id}"


@tool(description="Fail.")
async def fail(how: str) -> str:
    """Raise."""
    CALLS.append(how)
    if how == "refuse":
        raise ToolError("bad_arguments")
    message = "the password is hunter2"
    raise ValueError(message)


@tool(description="Wait.", seconds=0.01)
async def wait() -> str:
    """Never return."""
    await asyncio.Event().wait()
    return ""


TOOLS = (order, fail, wait)
HERE = f"{__name__}:TOOLS"


@pytest.fixture(autouse=True)
def no_calls() -> None:
    """Nothing has been called."""
    CALLS.clear()


def test_a_schema_is_plain_and_without_hidden_arguments() -> None:
    """No titles, no references; a parameter may be named title."""
    assert order.spec.parameters == {
        "type": "object",
        "properties": {
            "lines": {
                "type": "array",
                "items": {
                    "type": "object",
                    "description": "An item of an order.",
                    "properties": {
                        "title": {"type": "string"},
                        "count": {"type": "integer", "minimum": 1, "default": 1},
                    },
                    "required": ["title"],
                },
            },
            "speed": {"enum": ["fast", "slow"], "default": "slow"},
        },
        "required": ["lines"],
    }
    assert wait.spec.parameters == {"type": "object", "properties": {}, "required": []}


LINE: dict[str, Any] = {"title": "bread"}
WRONG: list[Any] = [
    *({}, [], None, {"lines": "bread"}),
    *({"lines": [LINE | {"count": count}]} for count in ("2", 0)),
    *({"lines": [LINE], **more} for more in ({"user_id": "eve"}, {"speed": "soon"})),
]
"""Arguments of `order` that are refused."""


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("nothing", {}, "unknown_tool"),
        *(("order", wrong, "bad_arguments") for wrong in WRONG),
        ("fail", {"how": "refuse"}, "bad_arguments"),
        ("fail", {"how": "raise"}, "tool_failed"),
        ("wait", {}, "tool_timeout"),
        ("calculate", {"expression": "import os"}, "bad_arguments"),
        ("calculate", {"expression": "1/0"}, "tool_failed"),
    ],
)
@pytest.mark.parametrize("how", ["untaped", "live", "play"])
async def test_a_call_that_fails_has_one_of_four_codes(
    name: str, arguments: Any, code: str, how: str
) -> None:
    """And nothing of what the exception says; on the tape it is the same."""
    tools = Tools.load([HERE], besides=BUILT_IN)
    exchange = Exchange()

    async def call() -> ToolError:
        with pytest.raises(ToolError) as failed:
            await tools.call(name, arguments, user_id="ada")
        return failed.value

    if how == "untaped":
        error = await call()
    else:
        with taped(exchange):
            error = await call()
        performed = list(CALLS)
        if how == "play":
            with taped(exchange, "play"):
                error = await call()
            assert performed == CALLS
    assert (error.code, str(error)) == (code, code)


async def test_a_call_gets_checked_values_and_the_users_id() -> None:
    """The stack says who the user is; a read of the tape performs nothing."""
    tools, exchange = Tools.load([HERE]), Exchange()
    for policy in ("live", "play"):
        with taped(exchange, policy):
            assert await tools.call("order", {"lines": [LINE]}, user_id="ada") == "1 for ada"
    [call] = CALLS
    assert call == ([Line("bread")], "slow", "ada")


async def test_what_the_tape_stops_a_run_with_is_no_failure_of_a_tool() -> None:
    """A miss ends the run; it is not told to the model."""
    exchange = Exchange()
    exchange.finish_recording()
    with taped(exchange, "play"), pytest.raises(Control):
        await Tools([order]).call("order", {"lines": [LINE]})


@pytest.mark.parametrize(
    "name", ["nowhere:TOOLS", f"{__name__}:nothing", f"{__name__}", f"{__name__}:HERE", "math:pi"]
)
def test_a_name_without_a_tool_is_refused(name: str) -> None:
    """When the deployment starts, not when a model calls it."""
    with pytest.raises(BadTool, match="no tool at"):
        Tools.load([name])


class Tree(msgspec.Struct):
    """A type that contains itself."""

    branches: list[Tree]


async def _with_tree(tree: Tree) -> str:
    return str(tree)


async def _with_order(*, order_id: str) -> str:
    return order_id


@pytest.mark.parametrize("function", [_with_tree, _with_order])
def test_a_function_models_cannot_be_shown_is_refused(function: Any) -> None:
    """Recursive types have no plain schema; stacks know two keywords."""
    with pytest.raises(BadTool):
        tool(description="")(function)


# calculate

numbers = st.integers(0, 60) | st.floats(0, 60).map(lambda value: round(value, 3))
expressions = st.recursive(
    numbers.map(str),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        inner.map(lambda text: f"-{text}"),
        inner.map(lambda text: f"abs({text})"),
        st.tuples(inner, inner).map(lambda pair: f"max({pair[0]}, {pair[1]})"),
        st.tuples(inner, st.integers(0, 3)).map(lambda pair: f"({pair[0]})**{pair[1]}"),
    ),
    max_leaves=6,
)


@given(expressions)
def test_calculate_agrees_with_python(text: str) -> None:
    """To twelve digits, and where Python has no result neither has it."""
    try:
        wanted = eval(text)  # noqa: S307 - made of numbers and operators above
    except ArithmeticError:
        with pytest.raises(ArithmeticError):
            evaluate(text)
        return
    assert math.isclose(float(evaluate(text)), wanted, rel_tol=1e-9, abs_tol=1e-9)


@given(st.text(max_size=40) | st.text("0123456789.eE+-*/%() abspi_,j\n", max_size=40))
def test_calculate_ends_in_a_result_or_one_of_two_errors(text: str) -> None:
    """Whatever a model writes."""
    with suppress(NotArithmetic, ArithmeticError):
        assert math.isfinite(float(evaluate(text)))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("12*7", "84"),
        ("84/2", "42"),
        ("1/3", "0.333333333333"),
        ("0.1+0.2", "0.3"),
        ("2^10", "1024"),
        ("3×（4−1）÷2", "4.5"),
        ("sqrt(16)", "4"),
        ("round(2.567, 2)", "2.57"),
        ("min(3, 1, 2)", "1"),
        ("2*pi", "6.28318530718"),
        ("10**20/10**19", "10"),
        ("1e300*10", "1e+301"),
    ],
)
def test_calculate_writes_short_numbers(text: str, wanted: str) -> None:
    """Whole ones without a point."""
    assert evaluate(text) == wanted


@pytest.mark.parametrize(
    "text",
    ["9**9**9", "2**9999999", "10**1100", "1e308*10", "(-1)**0.5", "sqrt(-1)", "1/0", "5%0",
     "0**-1"],
)  # fmt: skip
def test_calculate_refuses_what_is_too_large_or_has_no_result(text: str) -> None:
    """Before it is computed."""
    with pytest.raises(ArithmeticError):
        evaluate(text)


@pytest.mark.parametrize(
    "text",
    ["", "()", "1+", "__import__('os')", "a", "1 if 1 else 2", "1if 2", "[1]", "1_000", "1j",
     "sqrt", "sqrt()", "abs(1, 2)", "round(1, 1e9)", "(" * 240 + "1" + ")" * 240,
     "1+" * 300 + "1", "0777", "True"],
)  # fmt: skip
def test_calculate_refuses_what_is_no_arithmetic(text: str) -> None:
    """Names, code, odd spellings, deep nesting."""
    with pytest.raises(NotArithmetic):
        evaluate(text)


# current_time, search_memory


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({}, "2023-11-14 22:13:20 Tuesday (UTC)"),
        ({"timezone": None}, "2023-11-14 22:13:20 Tuesday (UTC)"),
        ({"timezone": "Asia/Shanghai"}, "2023-11-15 06:13:20 Wednesday (Asia/Shanghai)"),
        ({"timezone": "Mars/Olympus"}, "bad_arguments"),
        ({"timezone": "../../etc/passwd"}, "bad_arguments"),
        ({"timezone": "Asia"}, "bad_arguments"),
        ({"timezone": 8}, "bad_arguments"),
    ],
)
@pytest.mark.parametrize("database_url", ["memory"], indirect=True)
@pytest.mark.usefixtures("world")
async def test_current_time_is_that_of_the_worlds_clock(
    arguments: dict[str, Any], wanted: str
) -> None:
    """In the zone that is asked for, or the configured one."""
    try:
        found = await Tools(BUILT_IN).call("current_time", arguments)
    except ToolError as error:
        found = error.code
    assert found == wanted


@pytest.mark.parametrize("database_url", ["memory"], indirect=True)
async def test_search_memory_finds_the_memories_of_its_user_alone(
    world: World, clock: MovableClock
) -> None:
    """The newest first; a model cannot name another user."""
    async with open_memory(world.database, clock=clock) as store:
        for user, text in (("ada", "likes tea"), ("ada", "is 36"), ("Ada", "is another")):
            clock.now += 1
            memory = Memory(text, text)
            await store.aput(namespace(user), memory.id, memory.value())
        with use(replace(world, memory=store)):
            tools = Tools(BUILT_IN)
            assert await tools.call("search_memory", {"query": "age"}, user_id="ada") == (
                "- is 36\n- likes tea"
            )
            assert await tools.call("search_memory", {"query": "age"}) == ""
            with pytest.raises(ToolError, match="bad_arguments"):
                await tools.call("search_memory", {"query": "age", "user_id": "Ada"})
