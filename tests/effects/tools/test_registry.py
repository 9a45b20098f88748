"""The tools port: one suite for the registry and its fake, then the registry's own promises."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncIterator
from typing import Annotated, Any, Protocol

import msgspec
import pytest

from contract.errors import EffectFailed, Fault
from contract.model import ToolCall, ToolResult
from contract.ports import Tools
from effects.tools import (
    BadArguments,
    DuplicateTool,
    ScriptedTools,
    ToolContext,
    ToolRegistry,
    schema_tool,
    tool,
)
from effects.tools.registry import MAX_ANSWER
from effects.tools.tool import SelfContainedSchema, schema_of
from tests.effects.tools.mcp.suite_server import suite_tools


class KnowingTools(Tools, Protocol):
    """Tools that also tell which of them change nothing."""

    def read_only(self, name: str) -> bool:
        """Whether calling a tool changes nothing."""
        ...


class Nothing(msgspec.Struct, frozen=True):
    """No arguments."""


class Point(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A point."""

    x: int
    label: str = ""


class Shape(msgspec.Struct, frozen=True):
    """A shape of points."""

    points: Annotated[list[Point], msgspec.Meta(min_length=1)]
    centre: Point | None = None


class Tree(msgspec.Struct):
    """Something that contains itself."""

    branches: list[Tree]


@tool("greet", "Greet.", Nothing, read_only=True)
async def greet(_: Nothing, context: ToolContext) -> str:
    """Greet the user."""
    return f"hello {context.user_id or 'stranger'}"


@tool("book", "Book a table.", Nothing, read_only=False)
def book(_: Nothing, __: ToolContext) -> str:
    """Answer from a thread."""
    return "booked"


@tool("fail", "Fail.", Nothing, read_only=True)
async def fail(_: Nothing, __: ToolContext) -> str:
    """Raise."""
    secret = "secret of the user"  # must not leak
    raise ZeroDivisionError(secret)


@tool("slow", "Take an hour.", Nothing, read_only=True, timeout=5.0)
async def slow(_: Nothing, __: ToolContext) -> str:
    """Take an hour."""
    await asyncio.sleep(3_600.0)
    return "done"


@tool("draw", "Draw.", Shape, read_only=True)
async def draw(shape: Shape, _: ToolContext) -> dict[str, Any]:
    """Answer with a structure."""
    return {"n": len(shape.points), "label": shape.points[0].label}


def call(name: str, arguments: str = "{}") -> ToolCall:
    """Make a call."""
    return ToolCall("call_1", name, arguments)


@pytest.fixture
async def registry() -> AsyncIterator[ToolRegistry]:
    """Return a registry of the tools above."""
    registry = ToolRegistry([greet, book, fail, slow, draw])
    yield registry
    await registry.aclose()
    await registry.aclose()


@pytest.fixture(params=["registry", "of a user", "scripted", "of an MCP server"])
async def tools(
    request: pytest.FixtureRequest, registry: ToolRegistry
) -> AsyncIterator[KnowingTools]:
    """Return tools of each kind that behave alike."""
    match request.param:
        case "registry":
            yield registry
        case "of a user":
            yield registry.for_user(None)
        case "of an MCP server":
            async with suite_tools() as remote:
                yield remote
        case _:
            yield ScriptedTools(
                {
                    "greet": "hello stranger",
                    "book": "booked",
                    "fail": ToolResult(error="tool_failed"),
                    "slow": ToolResult(error="tool_timeout"),
                    "draw": '{"n":1,"label":"家"}',
                },
                slow={"slow": 5.0},
                writes=["book"],
            )


async def test_tools_are_listed_in_their_order(tools: KnowingTools) -> None:
    """As registered, with a description and an object's schema each, compact."""
    offered = await tools.list("tools")
    assert [spec.name for spec in offered] == ["greet", "book", "fail", "slow", "draw"]
    for spec in offered:
        schema = msgspec.json.decode(spec.parameters)
        assert spec.description
        assert schema["type"] == "object"
        assert bytes(spec.parameters) == msgspec.json.encode(schema, order="sorted")


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("greet", "{}", ToolResult("hello stranger")),
        ("book", "{}", ToolResult("booked")),
        ("fail", "{}", ToolResult(error="tool_failed")),
        ("slow", "{}", ToolResult(error="tool_timeout")),
        ("draw", '{"points":[{"x":1,"label":"家"}]}', ToolResult('{"n":1,"label":"家"}')),
        ("unknown", "{}", ToolResult(error="unknown_tool")),
        ("", "not even JSON", ToolResult(error="unknown_tool")),
    ],
)
async def test_a_call_has_a_result_whatever_happens(
    tools: KnowingTools, name: str, arguments: str, result: ToolResult
) -> None:
    """Text, or an error code; nothing is raised."""
    assert await tools.run("tools", call(name, arguments)) == result


@pytest.mark.virtual
async def test_a_slow_tool_takes_its_time_and_no_more(tools: KnowingTools) -> None:
    """The limit of the tool holds, and others run meanwhile."""
    loop = asyncio.get_running_loop()
    late, soon = await asyncio.gather(
        tools.run("tools", call("slow")), tools.run("tools", call("greet"))
    )
    assert (late.error, soon.ok) == ("tool_timeout", True)
    assert loop.time() == 5.0


async def test_tools_say_whether_they_change_anything(tools: KnowingTools) -> None:
    """An unknown tool does nothing at all, so it changes nothing."""
    names = ("greet", "book", "unknown")
    assert [tools.read_only(name) for name in names] == [True, False, True]


@pytest.mark.parametrize(
    "arguments",
    [
        *("", "{", "[]", "null", '"x"', "[" * 100_000),
        *('{"points":[]}', '{"points":[{"x":"1"}]}', '{"points":[{"x":1.5}]}'),
        *('{"points":[{"x":1,"y":2}]}', '{"points":[{"x":1}]} {}'),
        '{"points":[{"x":1,"label":"\ud800"}]}',
    ],
    ids=lambda text: ascii(text[:20]),
)
async def test_arguments_that_break_the_schema_are_bad(
    registry: ToolRegistry, arguments: str
) -> None:
    """Strictly: no number is made of a text, no unknown key passed over."""
    assert await registry.run("tools", call("draw", arguments)) == ToolResult(error="bad_arguments")


async def test_no_arguments_at_all_are_an_empty_object(registry: ToolRegistry) -> None:
    """Some models send an empty text for a tool that takes none."""
    assert await registry.run("tools", call("greet", " ")) == ToolResult("hello stranger")


async def test_a_tool_works_for_the_user_of_its_exchange(registry: ToolRegistry) -> None:
    """Two exchanges at once do not mix their users."""
    ports = [registry.for_user(user) for user in ("小明", "小红")]
    results = await asyncio.gather(*(port.run("tools", call("greet")) for port in ports))
    assert [result.content for result in results] == ["hello 小明", "hello 小红"]
    assert [spec.name for spec in await ports[0].list("tools")][:1] == ["greet"]


async def test_a_plain_function_runs_in_a_thread(registry: ToolRegistry) -> None:
    """It may block: the loop goes on and lets it go."""
    opened = threading.Event()

    @tool("wait", "Wait.", Nothing, read_only=True)
    def wait(_: Nothing, __: ToolContext) -> bool:
        return opened.wait(5.0)

    registry.register(wait)
    running = asyncio.create_task(registry.run("tools", call("wait")))
    await asyncio.sleep(0)
    opened.set()
    assert await running == ToolResult("true")


async def test_a_plain_function_may_give_a_coroutine(registry: ToolRegistry) -> None:
    """A wrapped coroutine function is awaited all the same."""

    async def answer() -> int:
        return 7

    registry.register(tool("seven", "Seven.", Nothing, read_only=True)(lambda _, __: answer()))
    assert await registry.run("tools", call("seven")) == ToolResult("7")


async def test_a_failing_tool_is_logged_without_its_words(
    registry: ToolRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names tool, error and line; the message may hold what the user said."""
    with caplog.at_level(logging.WARNING):
        await registry.run("tools", call("fail", '{"password":"hunter2"}'))
    assert "'fail': tool_failed, ZeroDivisionError at" in caplog.text
    assert "secret" not in caplog.text
    assert "hunter2" not in caplog.text


async def test_a_tool_cannot_end_the_process(registry: ToolRegistry) -> None:
    """What was written for a command line leaves by `sys.exit` when its arguments are wrong."""

    async def later(_arguments: Nothing, _context: ToolContext) -> None:
        sys.exit(2)

    registry.register(tool("now", "?", Nothing, read_only=True)(lambda _, __: sys.exit(2)))
    registry.register(tool("later", "?", Nothing, read_only=True)(later))
    for name in ("now", "later"):
        assert await registry.run("tools", call(name)) == ToolResult(error="tool_failed")


async def test_errors_that_mean_something_else_are_failures_of_the_tool(
    registry: ToolRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of an iterator, which no future holds, and a cancellation of the tool's own task."""

    def exhausted(_: Nothing, __: ToolContext) -> object:
        return next(iter([]))

    async def cancelled(_: Nothing, __: ToolContext) -> None:
        inner = asyncio.create_task(asyncio.sleep(9))
        inner.cancel()
        await inner

    for one in (exhausted, cancelled):
        registry.register(tool(one.__name__, "?", Nothing, read_only=True)(one))
        result = await registry.run("tools", call(one.__name__))
        assert result == ToolResult(error="tool_failed")
    assert f"'exhausted': tool_failed, RuntimeError at {__file__}" in caplog.text


async def test_a_result_json_cannot_say_is_a_failure(
    registry: ToolRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """So is one of a kind that cannot be encoded; half a character becomes a question mark."""
    registry.register(tool("object", "?", Nothing, read_only=True)(lambda _, __: object()))
    registry.register(tool("half", "?", Nothing, read_only=True)(lambda _, __: "a\ud800b"))
    assert (await registry.run("tools", call("object"))).error == "tool_failed"
    assert "'object': tool_failed, AnswerNotJson" in caplog.text
    assert await registry.run("tools", call("half")) == ToolResult("a?b")


async def test_a_cancelled_call_is_cancelled(registry: ToolRegistry) -> None:
    """Leaving is no failure of the tool."""
    running = asyncio.create_task(registry.run("tools", call("slow")))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_tool_with_a_foreign_schema_checks_itself(registry: ToolRegistry) -> None:
    """It gets any object, and may say that the arguments are bad."""
    schema = {"type": "object", "properties": {"b": {"type": "string"}, "a": {}}}

    @schema_tool("remote", "Remote.", schema, read_only=True)
    async def remote(arguments: dict[str, Any], _: ToolContext) -> object:
        if "a" not in arguments:
            raise BadArguments(argument="a", reason="missing")
        return arguments

    registry.register(remote)
    assert await registry.run("tools", call("remote", '{"a":[1]}')) == ToolResult('{"a":[1]}')
    assert (await registry.run("tools", call("remote"))).error == "bad_arguments"
    assert (await registry.run("tools", call("remote", "[]"))).error == "bad_arguments"
    offered = {spec.name: bytes(spec.parameters) for spec in await registry.list("tools")}
    assert offered["remote"] == (b'{"properties":{"a":{},"b":{"type":"string"}},"type":"object"}')


def test_a_name_is_registered_once(registry: ToolRegistry) -> None:
    """A second tool of that name is a mistake of the deployment."""
    with pytest.raises(DuplicateTool, match="greet"):
        registry.register(tool("greet", "?", Nothing, read_only=True)(lambda _, __: ""))


def test_a_schema_stands_by_itself() -> None:
    """No references, no titles; a type that contains itself is refused."""
    schema = msgspec.json.encode(schema_of(Shape)).decode()
    assert "$ref" not in schema
    assert "title" not in schema
    assert schema_of(Shape)["properties"]["points"]["items"]["additionalProperties"] is False
    with pytest.raises(SelfContainedSchema, match="Tree"):
        schema_of(Tree)


async def test_the_fake_counts_and_uses_its_answers_up() -> None:
    """A list is used in order, its last answer for ever."""
    tools = ScriptedTools({"a": ["one", ToolResult(error="tool_failed"), "rest"]})
    results = [await tools.run("tools", call("a", str(number))) for number in range(4)]
    assert [result.error or result.content for result in results] == [
        "one",
        "tool_failed",
        "rest",
        "rest",
    ]
    assert tools.called == ["a"] * 4
    assert [made.arguments for made in tools.calls] == ["0", "1", "2", "3"]


async def test_the_fake_can_fail_to_list() -> None:
    """As a tool server that is away."""
    tools = ScriptedTools({}, list_fails=Fault("tool_list_failed", retryable=True))
    with pytest.raises(EffectFailed, match="tool_list_failed"):
        await tools.list("tools")


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("limits", "error", "ended"),
    [
        ({}, "tool_timeout", 2.0),
        ({"other": 1_900.0}, "tool_timeout", 2.0),
        ({"wait": 1.0}, "tool_timeout", 1.0),
        ({"wait": 1_900.0}, None, 1_800.0),
    ],
)
async def test_no_tool_takes_longer_than_the_deployment_allows(
    limits: dict[str, float], error: str | None, ended: float
) -> None:
    """A tool may declare an hour; the registry's limit ends it, or one that is set for the tool."""

    @tool("wait", "Wait.", Nothing, read_only=True, timeout=3_600.0)
    async def wait(_arguments: Nothing, _context: ToolContext) -> str:
        await asyncio.sleep(1_800.0)
        return "done"

    registry = ToolRegistry([wait], longest=2.0, limits=limits)
    try:
        result = await registry.run("tools", ToolCall("c1", "wait", ""))
    finally:
        await registry.aclose()
    assert result.error == error
    assert asyncio.get_running_loop().time() == ended


@pytest.mark.parametrize(
    ("answer", "characters", "text"),
    [
        ("家家家", 3, "家家家"),
        ("家家家😀", 3, "家家家\n[1 characters left out]"),
        ("\ud83d" * 5, 3, "???\n[2 characters left out]"),
        (["a"], 3, '["a\n[2 characters left out]'),
        ("x" * (MAX_ANSWER + 2), MAX_ANSWER, "x" * 65_536 + "\n[2 characters left out]"),
    ],
    ids=["at the limit", "longer", "half characters", "a structure", "the default"],
)
async def test_a_long_answer_is_cut_and_says_so(answer: object, characters: int, text: str) -> None:
    """Between two characters; at the limit it is whole."""
    one = tool("answer", "?", Nothing, read_only=True)(lambda _, __: answer)
    by_default = characters == MAX_ANSWER
    registry = ToolRegistry([one]) if by_default else ToolRegistry([one], characters=characters)
    try:
        assert await registry.run("tools", call("answer")) == ToolResult(text)
    finally:
        await registry.aclose()
