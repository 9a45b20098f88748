"""Tools of a team's own: what models get of functions and LangChain tools, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest

from contract.errors import CutoverError
from contract.model import ToolCall, ToolResult
from effects.tools import Tool, ToolModuleRefused, ToolRegistry, python_tools

Write = Callable[..., None]

OWN = """
import threading
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from effects.tools import BadArguments, ToolContext, function_tool, tool

@dataclass
class Place:
    city: str
    country: str = "CN"

@function_tool(read_only=True, timeout=3, idempotent=True)
def where(
    user: ToolContext,
    place: Place,
    days: Annotated[int, msgspec.Meta(ge=1), "how many"] = 3,
    unit: Literal["C", "F"] = "C",
) -> dict[str, object]:
    '''Look up the weather.

    For today and the days after it.
    '''
    return {"user": user.user_id, "city": place.city, "days": days, "unit": unit}

@function_tool
async def thread() -> str:
    '''Name the thread of a coroutine.'''
    return threading.current_thread().name

@function_tool
def lenient(
    user: ToolContext | None = None,
    known: Annotated[ToolContext, "the user"] = ToolContext(),
    n: int = None,
    words: list[str] = [],
) -> str:
    '''Have defaults.'''
    words.append("w")
    return f"{user.user_id} {known.user_id} {n} {words}"

@function_tool(name="pool-thread")
def pool() -> str:
    '''Name the thread of a function.'''
    return threading.current_thread().name.rpartition("_")[0]

@function_tool
def picky(x: str) -> str:
    '''Refuse it.'''
    raise BadArguments("x", "not today")

class Nothing(msgspec.Struct):
    pass

@tool("made", "Made the other way.", Nothing, read_only=True)
def made(_: Nothing, __: ToolContext) -> str:
    return "made"

def no_tool(x): ...
"""

LANGCHAIN = """
from typing import Annotated

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, Tool, tool
from pydantic import BaseModel, Field, ValidationError

class Point(BaseModel):
    x: int = Field(ge=0)

@tool
async def plot(point: Point, label: str = "") -> dict[str, object]:
    '''Plot a point.'''
    return {"x": point.x, "label": label}

@tool
def whose(config: RunnableConfig) -> str:
    '''Name the user.'''
    return config["configurable"]["user_id"]

@tool
def broken() -> str:
    '''Fail in a way of its own.'''
    Point(x=-1)

class Twice(BaseTool):
    name: str = "twice"
    description: str = "Double a number."

    def _run(self, n: int) -> int:
        return 2 * n

    async def _arun(self, n: int) -> int:
        return self._run(n)

@tool(response_format="content_and_artifact")
def drawn(x: int) -> tuple[str, Point]:
    '''Draw a point.'''
    return f"drawn at {x}", Point(x=x)

@tool
def point(x: int, owner: Annotated[str, InjectedToolArg] = "nobody") -> object:
    '''Return a point, or whose it is.'''
    return Point(x=x) if x else ToolMessage(owner, tool_call_id="c")

twice = Twice(metadata={"read_only": True, "idempotent": True, "timeout": 2})
loud = Tool(name="loud", description="Write a text in capitals.", func=str.upper)
"""


@pytest.fixture
def write(module_folder: Path) -> Write:
    """Return what writes modules that can be imported."""

    def write_all(**modules: str) -> None:
        for name, text in modules.items():
            (module_folder / f"{name}.py").write_text(dedent(text), "utf-8")

    return write_all


async def run(tools: list[Tool], name: str, arguments: str = "{}") -> ToolResult:
    """Call a tool for a user."""
    registry = ToolRegistry(tools).for_user("ann")
    try:
        return await registry.run("tools", ToolCall("c", name, arguments))
    finally:
        await registry.aclose()


def schema(one: Tool) -> Any:
    """Decode a tool's schema."""
    return msgspec.json.decode(one.spec.parameters)


def test_a_function_is_what_its_signature_says(write: Write) -> None:
    """Its name, its docstring, a schema without the user, and where it is from."""
    write(own_tools=OWN)
    tools = {one.spec.name: one for one in python_tools(["own_tools"])}
    assert list(tools) == ["where", "thread", "lenient", "pool-thread", "picky", "made"]
    assert list(schema(tools["lenient"])["properties"]) == ["n", "words"]
    where = tools["where"]
    assert where.spec.description == ("Look up the weather.\n\nFor today and the days after it.")
    assert (where.read_only, where.timeout, where.idempotent) == (True, 3, True)
    assert (tools["picky"].read_only, tools["picky"].idempotent) == (False, False)
    assert [tools[name].source for name in ("where", "pool-thread")] == [
        "own_tools.where",
        "own_tools.pool",
    ]
    assert schema(where) == {
        "type": "object",
        "properties": {
            "place": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "country": {"type": "string", "default": "CN"},
                },
                "required": ["city"],
            },
            "days": {"type": "integer", "minimum": 1, "description": "how many", "default": 3},
            "unit": {"enum": ["C", "F"], "default": "C"},
        },
        "required": ["place"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        (
            "where",
            '{"place":{"city":"苏州"},"days":1}',
            ToolResult('{"user":"ann","city":"苏州","days":1,"unit":"C"}'),
        ),
        ("where", '{"place":{"city":"苏州"},"days":0}', ToolResult(error="bad_arguments")),
        ("where", '{"place":{"city":"苏州"},"user":"ben"}', ToolResult(error="bad_arguments")),
        ("thread", "", ToolResult("MainThread")),
        ("lenient", '{"n":null}', ToolResult("ann ann None ['w']")),
        ("lenient", '{"user":{"user_id":"ben"}}', ToolResult(error="bad_arguments")),
        ("pool-thread", "", ToolResult("tool")),
        ("picky", '{"x":"a"}', ToolResult(error="bad_arguments")),
        ("made", "", ToolResult("made")),
    ],
)
async def test_a_function_is_called(
    write: Write, name: str, arguments: str, result: ToolResult
) -> None:
    """By the names of its parameters, for the user; a plain one in a thread of the registry."""
    write(own_tools=OWN)
    assert await run(python_tools(["own_tools"]), name, arguments) == result


def test_langchain_tools_are_taken_as_they_are(write: Write) -> None:
    """Names, descriptions and schemas are LangChain's, and what a tool declares is metadata."""
    write(chain_tools=LANGCHAIN)
    tools = {one.spec.name: one for one in python_tools(["chain_tools"])}
    assert list(tools) == ["plot", "whose", "broken", "drawn", "point", "twice", "loud"]
    assert tools["plot"].spec.description == "Plot a point."
    point = schema(tools["plot"])["properties"]["point"]
    assert point["properties"]["x"]["minimum"] == 0
    assert schema(tools["whose"])["properties"] == {}
    twice = tools["twice"]
    assert (twice.read_only, twice.idempotent, twice.timeout) == (True, True, 2)
    assert twice.source == "chain_tools.twice"
    assert not tools["plot"].read_only


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("plot", '{"point":{"x":1}}', ToolResult('{"x":1,"label":""}')),
        ("plot", '{"point":{"x":-1}}', ToolResult(error="bad_arguments")),
        ("plot", '{"type":"tool_call","id":"c","args":{}}', ToolResult(error="bad_arguments")),
        ("whose", "", ToolResult("ann")),
        ("broken", "", ToolResult(error="tool_failed")),
        ("twice", '{"n":4}', ToolResult("8")),
        ("loud", '{"__arg1":"hi"}', ToolResult("HI")),
        ("loud", "", ToolResult(error="bad_arguments")),
        ("drawn", '{"x":1}', ToolResult("drawn at 1")),
        ("point", '{"x":1}', ToolResult('{"x":1}')),
        ("point", '{"x":0,"owner":"ben"}', ToolResult("nobody")),
    ],
)
async def test_a_langchain_tool_is_called(
    write: Write, name: str, arguments: str, result: ToolResult
) -> None:
    """With checked arguments, and the user in its configuration; its own errors are failures."""
    write(chain_tools=LANGCHAIN)
    assert await run(python_tools(["chain_tools"]), name, arguments) == result


def test_a_tool_of_two_modules_is_one(write: Write) -> None:
    """A module may take up another's."""
    write(own_tools=OWN, more_tools="from own_tools import where\n")
    names = [one.spec.name for one in python_tools(["own_tools", "more_tools"])]
    assert names.count("where") == 1


HEAD = "from effects.tools import function_tool\n@function_tool\n"
REFUSED = {
    "no module": ({}, "tools of 'm': there is no module 'm'"),
    "a module it needs": (
        {"m": "import no_such_thing\n"},
        r"importing it fails: ModuleNotFoundError at .*m.py:1: .*no_such_thing",
    ),
    "it fails": ({"m": "\n1 / 0\n"}, r"ZeroDivisionError at .*m.py:2: "),
    "it leaves": ({"m": "import sys\nsys.exit(2)\n"}, "SystemExit"),
    "no tools": ({"m": "def f(): ...\n"}, "it has no tools: mark functions with effects.tools."),
    "no type": ({"m": HEAD + "def f(x): 'd'\n"}, "tools of 'm.f': parameter 'x' has no type"),
    "unknown type": ({"m": HEAD + "def f(x: 'Y'): 'd'\n"}, "its types cannot be read: .*'Y'"),
    "type without a schema": (
        {"m": "import threading\n" + HEAD + "def f(x: threading.Thread): 'd'\n"},
        "'m.f': parameter 'x: threading.Thread' has no schema: use a dataclass, say",
    ),
    "default without a schema": (
        {"m": HEAD + "def f(x: str = object()): 'd'\n"},
        "'m.f': no schema can be made of its parameters",
    ),
    "metadata of another kind": (
        {
            "m": """
            from langchain_core.tools import Tool
            f = Tool("f", str.upper, "d", metadata={"read_only": "no"})
            """
        },
        "'m.f': its metadata: Expected `bool`, got `str` - at `\\$.read_only`",
    ),
    "any arguments": ({"m": HEAD + "def f(**x: int): 'd'\n"}, "the model names each argument"),
    "by place": ({"m": HEAD + "def f(x: int, /): 'd'\n"}, "the model names each argument"),
    "no docstring": ({"m": HEAD + "def f(): ...\n"}, "it has no docstring"),
    "a generator": ({"m": HEAD + "def f():\n    'd'\n    yield 1\n"}, "return the whole answer"),
    "a name": (
        {
            "m": HEAD.replace("tool\n@function_tool", "tool\n@function_tool(name='a b')")
            + "def f(): 'd'\n"
        },
        "named 'a b': a name has",
    ),
    "a timeout": (
        {
            "m": HEAD.replace("tool\n@function_tool", "tool\n@function_tool(timeout=0)")
            + "def f(): 'd'\n"
        },
        "timeout = 0: must be seconds",
    ),
    "a built-in name": (
        {"m": HEAD + "def calculate(): 'd'\n"},
        "two tools are named 'calculate': built in and m.calculate",
    ),
    "another's name": (
        {
            "m": HEAD
            + "def f(): 'd'\n"
            + HEAD.replace("tool\n@function_tool", "tool\n@function_tool(name='f')")
            + "def g(): 'd'\n"
        },
        "two tools are named 'f': m.f and m.g; rename one",
    ),
    "what LangGraph injects": (
        {
            "m": """
            from typing import Annotated
            from langchain_core.tools import InjectedToolCallId, tool
            @tool
            def f(x: str, call: Annotated[str, InjectedToolCallId]) -> str:
                'd'
            """
        },
        "'m.f': call: nothing is injected here",
    ),
}


@pytest.mark.parametrize(("modules", "why"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_a_tool_is_refused(write: Write, modules: dict[str, str], why: str) -> None:
    """At the start, by module and name, with what to do."""
    write(**modules)
    with pytest.raises(CutoverError, match=why):
        python_tools(["m"])


def test_without_langchain_nothing_of_it_is_imported(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Functions alone need no library."""
    monkeypatch.delitem(sys.modules, "langchain_core.tools", raising=False)
    monkeypatch.setitem(sys.modules, "langchain_core", None)
    write(own_tools=OWN)
    assert python_tools(["own_tools"])
    write(m="from langchain_core.tools import tool\n")
    with pytest.raises(ToolModuleRefused, match="langchain_core"):
        python_tools(["m"])
