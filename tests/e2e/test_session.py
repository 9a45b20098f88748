"""Sessions on a real deployment: begun, gone on with, read, deleted, shadowed, replayed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contract.flow import Event
from contract.flows.session import SESSION, SessionText
from graph_impl import FLOWS as GRAPH
from graph_impl.session import session as graph_session
from graph_impl.threads import MemoryThreads
from legacy import FLOWS as LEGACY
from router.serving.stack import LocalStack
from router.stack import StackName
from tests.e2e.session import announced, body, call, rows, say, setup, turns, typed, types
from tests.support.deployment import Deployment, deployed
from tests.support.patience import PATIENCE_S
from tests.support.session_turns import said

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

SECRET = "quinces"


@pytest.mark.parametrize("percent", [0, 100])
async def test_a_session_from_its_first_turn_to_its_end(tmp_path: Path, percent: float) -> None:
    """It is announced once, both stores hold it, and nothing of it is left when it is deleted."""
    own = setup(tmp_path, percent, 'unknown_session = "refuse"')
    async with deployed(tmp_path, own) as place:
        client, url = place.session, place.url
        first = await say(client, url, f"I like {SECRET}")
        assert types(first) == ["session_created", "thinking", "text", "done"]
        named = announced(first)
        second = await say(client, url, "And tea", named)
        assert types(second) == ["thinking", "text", "done"]
        final = second.events[-1]["data"]["final_message"]
        texts = [one["data"]["content"] for one in second.events if one["type"] == "text"]
        assert final["content"] == "".join(texts)
        await place.settled()

        listed = msgspec.json.decode((await call(client, "GET", url, named)).body)
        assert listed["session_id"] == named
        assert [one["role"] for one in listed["messages"]] == ["user", "assistant"] * 2
        assert listed["messages"][-1] | {"reply_to": ""} == final | {"reply_to": ""}
        kept = rows(tmp_path)
        assert kept["turns"] == 4
        assert bool(kept["checkpoints"]) is (percent == 100)

        assert (await call(client, "DELETE", url, named)).status == 204
        assert set(rows(tmp_path).values()) == {0}
        assert SECRET.encode() not in files(tmp_path)
        for gone in (
            await call(client, "GET", url, named),
            await call(client, "DELETE", url, named),
            await say(client, url, "Hello?", named),
        ):
            assert (gone.status, gone.problem["code"]) == (404, "unknown_session")


def files(folder: Path) -> bytes:
    """Return the stores' files as they are."""
    return b"".join(path.read_bytes() for path in folder.glob("*.sqlite*"))


async def test_one_turn_at_a_time(tmp_path: Path) -> None:
    """While one is answered another one is refused, and so is deleting the session."""
    own = setup(tmp_path, 100, 'unknown_session = "create"\nmodel_id = "slow"')
    async with deployed(tmp_path, own) as place:
        client, data = place.session, msgspec.json.encode(body("Hello", "s"))
        async with client.post(place.url + SESSION.path, data=data) as response:
            await response.content.readany()
            for refused in (
                await say(client, place.url, "Me too", "s"),
                await call(client, "DELETE", place.url, "s"),
            ):
                assert (refused.status, refused.problem["code"]) == (409, "session_busy")
        async with asyncio.timeout(PATIENCE_S):
            while (deleted := await call(client, "DELETE", place.url, "s")).status == 409:
                pass
        assert deleted.status == 204
        assert set(rows(tmp_path).values()) == {0}


@pytest.mark.untraced
async def test_sessions_stay_where_they_began_and_compare_as_equal(tmp_path: Path) -> None:
    """At 50 per cent, with everything shadowed; replayed on either stack nothing is found either.

    On a stack with another prompt something is.
    """
    async with deployed(tmp_path, setup(tmp_path, 50, shadow=100)) as place:
        served: set[str] = set()
        while len(served) < 2:  # their names are drawn
            served.add(await conversed(place))
        await place.settled()
        assert set(place.books()) == {"compared(equal)"}
        runs = await place.lines()
        assert {run.reason for run in runs} == {"percent", "pinned"}
    captures = str(tmp_path / "captures")
    assert await typed("diff", captures, "-o", str(tmp_path / "report")) == 0
    for stack, status in (("graph", 0), ("legacy", 0), ("tests.e2e.long_winded:FLOWS", 1)):
        out = str(tmp_path / f"replayed {stack}")
        command = ("replay", captures, "--stack", stack, "-o", out, "--processes", "0")
        assert await typed(*command) == status


async def conversed(place: Deployment) -> str:
    """Be three turns of a session; returns the stack all were assigned to."""
    answers = [await say(place.session, place.url, "What is 12*7?")]
    named = announced(answers[0])
    answers += [await say(place.session, place.url, text, named) for text in ("And 3*4?", "Hm.")]
    assert {types(answer)[-1] for answer in answers} == {"done"}
    (assigned,) = {answer.headers["x-cutover-assigned"] for answer in answers}
    return assigned


async def test_a_turn_another_stack_takes_over_is_one_turn(tmp_path: Path) -> None:
    """The stream is whole, the reply is stored once, and the next turn sets the thread right."""
    threads = MemoryThreads()
    whole = graph_session(threads=threads)
    crashes = [True]

    async def crashing(asked: Any, effects: Any) -> AsyncIterator[Event]:
        inner: Any = whole(asked, effects)
        try:
            async for event in inner:
                yield event
                if isinstance(event, SessionText) and crashes:
                    crashes.clear()
                    raise ZeroDivisionError
        finally:
            await inner.aclose()

    stacks: dict[StackName, LocalStack] = {
        "legacy": LocalStack("legacy", LEGACY, "l1"),
        "graph": LocalStack("graph", {**GRAPH, "session": crashing}, "g1", threads.forget),
    }
    async with deployed(tmp_path, setup(tmp_path, 100, stacks=stacks)) as place:
        first = await say(place.session, place.url, "Hello")
        assert types(first) == ["session_created", "thinking", "text", "done"]
        assert b": served-by legacy" in first.body
        named = announced(first)
        await place.settled()
        second = await say(place.session, place.url, "Again", named)
        assert b": served-by" not in second.body
        await place.settled()
        kept = await said(threads, named)
        assert kept is not None
        assert [(role, text) for _, role, text in kept] == turns(tmp_path)
        assert len(kept) == 4
