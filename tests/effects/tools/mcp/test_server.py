"""What is offered of a server's tools: names, choice, what is read-only, what is wrong."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effects.tools.mcp import ListedTool, McpServer, offer_tools
from effects.tools.mcp.server import MAX_SCHEMA_BYTES, MAX_TOOLS, offered_name, schema_validator
from tests.effects.tools.mcp.connecting import listed

# Few characters, of every kind: a table of all of Unicode takes seconds to make.
WRITTEN = "aZ0_-./ :é家😀"
FITS = re.compile(r"[a-zA-Z0-9_-]{1,64}")
THREE = (listed("read"), listed("write"), listed("drop"))


def offered(server: McpServer, *tools: ListedTool) -> list[str]:
    """Return the names of what is offered."""
    return [one.spec.name for one in offer_tools(server, tools).offers]


@given(st.text(WRITTEN, max_size=100), st.text("abZ0_-", max_size=32))
def test_every_name_is_one_a_model_may_call(name: str, prefix: str) -> None:
    """Whatever a server calls its tools; names that fit are as they were."""
    given_name = offered_name(prefix, name)
    assert FITS.fullmatch(given_name)
    if name and FITS.fullmatch(prefix + name):
        assert given_name == prefix + name


@given(st.lists(st.text(WRITTEN, max_size=80), min_size=2, max_size=2, unique=True))
def test_two_tools_never_share_a_name(pair: list[str]) -> None:
    """What is changed is told apart by a digest."""
    one, other = (offered_name("a__", name) for name in pair)
    assert one != other


def test_a_changed_name_is_the_same_everywhere() -> None:
    """It depends on the tool's own name alone."""
    assert offered_name("fs__", "files.read") == "fs__files_read_57c17671"


def test_what_is_allowed_and_not_denied_is_offered() -> None:
    """In the server's order, with the prefix."""
    both = McpServer("a", "a_", allow=frozenset(["drop", "read"]), deny=frozenset(["drop"]))
    assert offered(both, *THREE) == ["a_read"]
    assert offered(McpServer("a", "a_"), *THREE) == ["a_read", "a_write", "a_drop"]
    assert offered(McpServer("a", deny=frozenset(["write"])), *THREE) == ["read", "drop"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (None, [True, False]),
        (True, [True, True]),
        (False, [False, False]),
        (frozenset(["b"]), [False, True]),
    ],
)
def test_what_is_read_only_is_the_server_s_hint_or_the_configuration_s_word(
    expected: list[bool], *, said: bool | frozenset[str] | None
) -> None:
    """A tool without a hint may write; the configuration has the last word."""
    tools = [ListedTool(name, "", {"type": "object"}, name == "a") for name in "ab"]
    found = offer_tools(McpServer("s", read_only=said), tools).offers
    assert [one.read_only for one in found] == expected


def test_a_reserved_name_is_not_offered() -> None:
    """By a built-in tool, or by one of a team's own; both are named, and what can be done."""
    server = McpServer("s", "a_", reserved={"a_write": "app.tools.a_write", "read": "built in"})
    found = offer_tools(server, THREE)
    assert [one.spec.name for one in found.offers] == ["a_read", "a_drop"]
    (fault,) = found.faults
    assert fault.startswith("'write' is not offered: 'a_write' is the name of another tool (app.")
    assert fault.endswith("; set another prefix, or deny it")


def test_names_that_are_not_there_are_told() -> None:
    """A misspelt `deny` would let a tool through unseen."""
    said = frozenset(["raed"])
    found = offer_tools(McpServer("s", allow=frozenset(["read"]), deny=said, read_only=said), THREE)
    assert found.faults == (
        "deny names 'raed', which it does not have",
        "read_only names 'raed', which it does not have",
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {},
        {"type": "object", "properties": 3},
        {"type": "object", "description": "x" * MAX_SCHEMA_BYTES},
    ],
    ids=["text", "nothing", "broken", "long"],
)
def test_a_tool_whose_schema_cannot_be_used_is_not_offered(schema: dict[str, object]) -> None:
    """The others are, and it is told."""
    found = offer_tools(McpServer("s"), [ListedTool("odd", "", schema), listed("even")])
    assert [one.name for one in found.offers] == ["even"]
    assert found.faults[0].startswith("'odd' is not offered: its schema is ")


def test_there_are_no_more_tools_than_a_model_takes() -> None:
    """The first ones; of two of one name the first."""
    many = [listed(f"t{number}") for number in range(MAX_TOOLS + 2)]
    found = offer_tools(McpServer("s"), many)
    assert len(found.offers) == MAX_TOOLS
    assert found.faults == ("only the first 128 of 130 tools are offered",)
    assert offered(McpServer("s"), listed("a"), listed("b"), listed("a")) == ["a", "b"]


def test_a_schema_is_sent_canonically() -> None:
    """As those of built-in tools: sorted and compact, equal for equal schemas."""
    (offer,) = offer_tools(McpServer("s"), [listed("a", z={}, b={"type": "string"})]).offers
    assert bytes(offer.spec.parameters) == (
        b'{"properties":{"b":{"type":"string"},"z":{}},"type":"object"}'
    )
    assert (
        msgspec.json.decode(offer.spec.parameters) == listed("a", z={}, b={"type": "string"}).schema
    )


def test_arguments_are_held_to_the_schema_without_fetching_anything() -> None:
    """References inside it count; one that leads outside cannot be followed."""
    inside = schema_validator(
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "required": ["a"],
            "$defs": {"a": {"type": "integer", "minimum": 1}},
        }
    )
    assert inside.is_valid({"a": 1})
    assert not inside.is_valid({"a": 0})
    assert not inside.is_valid({})
    outside = schema_validator(
        {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/x"}}}
    )
    with pytest.raises(Exception, match="Unresolvable"):
        outside.is_valid({"a": 1})
