"""Keys: a call is known by what is asked and where, by its n-th occurrence, never by order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import operations as ops
from contract.model import Chunk, ModelCall
from contract.operations import OPERATIONS
from effects.model import Wait, by_last_text, says
from effects.tape import canonical
from effects.testing import VirtualLoop, World
from effects.tools.fake import ScriptedTools
from tests.support.tape_calls import asking, live, said, tool

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from random import Random

    from contract.ports import Effects
    from effects.model import Step

pytestmark = pytest.mark.virtual


async def test_a_tool_call_is_known_by_its_id() -> None:
    """The same tool with the same arguments, called twice at once, is told apart by the ids."""
    calls = [tool("dice", f"call_0_{index}") for index in range(2)]
    async with live(World(tools=ScriptedTools({"dice": ["4", "6"]}))) as it:
        made = [(await it.effects.tools.run("tool", call)).content for call in calls]
    played = it.other("fail").effects()
    backwards = [(await played.tools.run("tool", call)).content for call in reversed(calls)]
    assert backwards == made[::-1]


async def test_arguments_are_encoded_when_the_call_is_made() -> None:
    """The entry holds bytes: what becomes of the caller's objects later does not reach the tape."""
    async with live(World(says("Hi"))) as it:
        await said(it.effects, "Hello")
    assert it.exchange.tape.entries[0].args == canonical(asking("Hello"))


def test_arguments_omit_defaults_and_sort_keys() -> None:
    """Two stacks that spell out a default or not ask the same thing."""
    spelled_out = ModelCall(model_id="m", messages=(), tools=(), max_tokens=None, temperature=0.5)
    assert canonical(spelled_out) == canonical(
        ModelCall(temperature=0.5, messages=(), model_id="m")
    )
    assert canonical(spelled_out) == b'{"messages":[],"model_id":"m","temperature":0.5}'


def test_arguments_have_no_place_for_secrets() -> None:
    """A new field of an operation's arguments that could carry a key fails here."""
    fields = {
        name for operation in OPERATIONS.values() for name in operation.arguments.__struct_fields__
    }
    assert not fields & {"api_key", "token", "secret", "password", "authorization", "headers"}


async def test_entries_are_numbered_in_the_order_of_the_calls() -> None:
    """A changed order of writes must be visible: `seq` counts calls, whichever ended first."""
    async with live(World([Wait(1.0), Chunk(text="late")])) as it:
        asking_first = asyncio.create_task(said(it.effects, "slow"))
        await asyncio.sleep(0)
        await it.effects.ids.new("reply")
        await asking_first
    labels = [(entry.seq, entry.operation.label) for entry in it.exchange.tape.entries]
    assert labels == [(0, "model.stream"), (1, "ids.new")]


TEXTS = ("red", "green", "blue")
SLOWNESS: dict[str, list[Step]] = {
    text: says(text, "!", every=every) for text, every in zip(TEXTS, (0.3, 0.1, 0.2), strict=True)
}


@given(
    recorded=st.permutations(TEXTS),
    played=st.permutations(TEXTS),
    delays=st.lists(st.sampled_from([0.0, 0.05, 0.15, 0.35]), min_size=3, max_size=3),
    tails=st.booleans(),
)
def test_parallel_callers_get_the_right_entries_in_any_order(
    recorded: list[str], played: list[str], delays: list[float], *, tails: bool
) -> None:
    """However calls interleave, while recording and while playing, each gets its own answer."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(_interleaved(recorded, played, delays, tails=tails))


async def _interleaved(
    recorded: list[str], played: list[str], delays: list[float], *, tails: bool
) -> None:
    async with live(World(by_last_text(SLOWNESS))) as it:
        recording = asyncio.create_task(_all_at_once(it.effects, recorded, delays))
        if not tails:
            await recording
            it.exchange.tape.stop_recording()
        reader = it.other("nearest")
        answers = await _all_at_once(reader.effects(), played, delays[::-1])
        assert answers == await recording == {text: f"{text}!" for text in TEXTS}
        assert {play.how for play in reader.plays} == {"exact"}
        assert it.world.count("model.stream") == len(TEXTS)


async def _all_at_once(effects: Effects, texts: list[str], delays: list[float]) -> dict[str, str]:
    async def one(text: str, delay: float) -> str:
        await asyncio.sleep(delay)
        return await said(effects, text)

    asked: list[Coroutine[None, None, str]] = [
        one(text, delay) for text, delay in zip(texts, delays, strict=True)
    ]
    return dict(zip(texts, await asyncio.gather(*asked), strict=True))


@given(repeats=st.integers(1, 6), order=st.randoms(use_true_random=False))
def test_any_shuffle_of_occurrences_plays_in_the_order_they_were_made(
    repeats: int, order: Random
) -> None:
    """The n-th time a key is asked gives its n-th entry, however other keys come between."""
    sites = ["a", "b", "c"] * repeats
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(_shuffled(sites, order))


async def _shuffled(sites: list[str], order: Random) -> None:
    async with live() as it:
        made = await _new_ids(it.effects, sites)
    for site in "abc":
        same = it.exchange.tape.at_site(ops.IDS_NEW, site)
        assert [entry.n for entry in same] == list(range(len(same)))
    order.shuffle(sites)
    assert await _new_ids(it.other("fail").effects(), sites) == made


async def _new_ids(effects: Effects, sites: list[str]) -> dict[str, list[str]]:
    made: dict[str, list[str]] = {}
    for site in sites:
        made.setdefault(site, []).append(await effects.ids.new(site))
    return made


def test_every_operation_names_its_arguments_and_items() -> None:
    """The table is all the tape needs to record, play and compare a call."""
    assert all(operation.label == f"{port}.{op}" for (port, op), operation in OPERATIONS.items())
    streams = [it for it in OPERATIONS.values() if it.streams]
    assert streams == [ops.MODEL_STREAM, ops.WORKERS_RUN, ops.EXTERNAL_READ, ops.EXTERNAL_RUN]
    assert all(it.whole and it.stamped for it in streams)
    assert all(it.last in it.item.__struct_fields__ for it in streams if it.kind == "write")
