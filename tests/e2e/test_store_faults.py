"""A store that fails: a problem before the first frame, an honest end after it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.deployment import Deployment, Setup, deployed
from tests.support.log_records import listening

if TYPE_CHECKING:
    from router.stack import StackName

pytestmark = pytest.mark.sockets
STACKS = ("legacy", "graph")
HELLO = {"message_id": "m", "content": "Hello"}


@pytest.mark.parametrize("stack", STACKS)
async def test_an_unreachable_store_is_503(
    tmp_path: Path, stack: StackName, unused_port: int
) -> None:
    """Nothing was sent, so the client may simply try again; the other stack would not help."""
    closed = f"http://127.0.0.1:{unused_port}"
    with listening() as lines:
        async with deployed(tmp_path, Setup(stack=stack, conversations=closed)) as place:
            for body in (HELLO, {"message_id": "m"}):
                answer = await place.ask(body)
                assert (answer.status, answer.problem["code"]) == (503, "store_unavailable")
            assert await outcomes(place) == [("failed", "store_unavailable")] * 2
            assert place.provider.ledger.counts()["total"] == 0
    assert [facts["reason"] for facts in lines.failures] == ["store_unavailable"] * 2


@pytest.mark.parametrize("stack", STACKS)
async def test_a_broken_store_is_503_and_frees_the_lock(tmp_path: Path, stack: StackName) -> None:
    """Its own words stay inside; once it is mended the same message is served."""
    async with deployed(tmp_path, Setup(stack=stack)) as place:
        with closing(sqlite3.connect(tmp_path / "store.sqlite")) as store:
            store.execute("ALTER TABLE turns RENAME TO elsewhere")
            answer = await place.ask(HELLO)
            assert (answer.status, answer.problem["code"]) == (503, "store_failed")
            assert "turns" not in answer.body.decode()
            store.execute("ALTER TABLE elsewhere RENAME TO turns")
        await place.settled()
        assert (await place.ask(HELLO)).steps[-2:] == ["SUCCESS", "END"]


@pytest.mark.parametrize("stack", STACKS)
async def test_a_store_that_breaks_under_way_ends_in_failure_frames(
    tmp_path: Path, stack: StackName
) -> None:
    """The text has been sent, but the reply cannot be kept: that is no success."""
    async with deployed(tmp_path, Setup(stack=stack)) as place:
        with closing(sqlite3.connect(tmp_path / "store.sqlite")) as store:
            store.execute(
                "CREATE TRIGGER full BEFORE INSERT ON turns WHEN NEW.role = 'assistant' "
                "BEGIN SELECT RAISE(ABORT, 'disk is full of secrets'); END"
            )
        answer = await place.ask(HELLO)
        assert answer.steps == ["ACCEPT", "START_REPLY", "SEND", "FAILED", "END"]
        assert answer.events[-2] == {"step": "FAILED", "code": "store_failed"}
        assert b"secrets" not in answer.body
        assert await outcomes(place) == [("failed", "store_failed")]


class Silent:
    """A store that no request waits for."""

    fault = "memory_unavailable; as long as it is away"


async def test_a_store_nobody_waits_for_is_a_fault(tmp_path: Path) -> None:
    """Until it answers again, `/readyz` says so, and with it the metrics."""
    async with deployed(tmp_path) as place:
        assert (await place.get("/readyz"))["faults"] == {}
        for part in place.services.stores:
            place.services.stores = {**place.services.stores, part: Silent()}
        told = (await place.get("/readyz"))["faults"]
        assert told == dict.fromkeys(("conversations", "memory", "pauses", "audit"), Silent.fault)


async def outcomes(place: Deployment) -> list[tuple[str, str]]:
    """Return outcome and error of every captured run."""
    return [(run.outcome, run.error.code if run.error else "") for run in await place.lines()]
