"""Answers of providers that say things oddly: in one piece nothing of them is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.router.gateway.test_gateway import HELLO, STREAMED, events, placed
from tests.support.misbehaving_providers import counted, said

pytestmark = pytest.mark.sockets

CALL = {"id": "c", "type": "function"}
NAMED = {"name": "add", "arguments": "{}"}
UNARGUED = {"name": "add", "arguments": ""}
END = said("loop-1", {}, finish_reason="stop")


def texts(*chunks: object) -> list[bytes]:
    """Encode chunks as events' data, lone halves of characters as they are often written."""
    return [json.dumps(one).encode() for one in chunks]


async def message(*chunks: bytes) -> Any:
    """Return the message that an answer of these events has in one piece."""
    async with placed(events(*chunks)) as place:
        status, body = await place.post(HELLO)
    assert status == 200
    [choice] = json.loads(body)["choices"]
    assert choice["finish_reason"] == "stop"
    return choice["message"]


@pytest.mark.parametrize(
    ("calls", "whole"),
    [
        (None, None),
        ([{**CALL, "function": None}], [{**CALL, "function": {"arguments": ""}}]),
        ([{"function": {"name": "add", "arguments": None}}], [{"function": UNARGUED}]),
        (["none", {"index": 0, **CALL, "function": NAMED}], [{**CALL, "function": NAMED}]),
        ({"none": 1}, {"none": 1}),
    ],
    ids=["null", "no function", "no arguments", "a text among them", "no list"],
)
async def test_calls_that_are_none(calls: object, whole: object) -> None:
    """Many say null where there is no call; whatever they say, there is an answer."""
    odd = said("loop-1", {"content": "Hel", "tool_calls": calls})
    more = said("loop-1", {"content": "lo", "tool_calls": None})
    found = await message(*texts(odd, more, END))
    assert found == {"role": "assistant", "content": "Hello", "tool_calls": whole}


async def test_a_character_cut_in_two_is_whole_again() -> None:
    """Also where the halves came in different events, or as bytes that are no UTF-8 alone."""
    pairs = texts(*[said("loop-1", {"content": half}) for half in ("a\ud83d", "\ude00b")])
    strawberry = "🍓".encode()
    torn = [
        texts(said("loop-1", {"content": "@"}))[0].replace(b"@", half)
        for half in (strawberry[:2], strawberry[2:])
    ]
    assert (await message(*pairs, *torn, *texts(END)))["content"] == "a😀b🍓"


async def test_a_half_without_another_costs_nothing_else() -> None:
    """It is replaced, as on the model port."""
    halves = texts(*[said("loop-1", {"content": half}) for half in ("a\ud83d", "b")], END)
    assert (await message(*halves))["content"] == "a\ufffdb"


async def test_half_a_character_beside_the_usage() -> None:
    """An unrequested usage in each event does not drop the text."""
    cut = {**said("loop-1", {"content": "a\ud83d"}), "usage": counted(1)}
    rest = {**said("loop-1", {"content": "\ude00"}), "usage": counted(2)}
    async with placed(events(*texts(cut, rest, END))) as place:
        status, body = await place.post(STREAMED)
    assert status == 200
    assert body == b"".join(b"data: %b\n\n" % one for one in (*texts(cut, rest, END), b"[DONE]"))
