"""One id in several flows: histories, messages, locks and pauses are each flow's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from contract.flows.chat import ChatRequest
from tests.e2e.session import announced, call, say, types
from tests.e2e.session import setup as session_setup
from tests.support.companion_client import hitl_id, picture, post
from tests.support.companion_client import setup as companion_setup
from tests.support.deployment import Deployment, deployed
from tests.support.postgres import execute

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

SECRET = "quinces"


async def prompts(place: Deployment, flow: str) -> list[str]:
    """Return the messages of each model call of a flow, as they stand on the tapes."""
    return [
        bytes(entry.args).decode()
        for run in await place.lines()
        for entry in run.tape or ()
        if run.flow == flow and entry.op == "stream"
    ]


def stored(folder: Path) -> set[tuple[str, int]]:
    """Return how many turns each flow has."""
    counted = "SELECT flow, count(*) FROM turns GROUP BY flow"
    return {(flow, count) for flow, count in execute(f"sqlite:///{folder}/store.sqlite", counted)}


@pytest.mark.parametrize("percent", [0, 100])
async def test_one_id_in_three_flows_is_three_histories(tmp_path: Path, percent: float) -> None:
    """None is shown what another flow's users wrote, and deleting one leaves the others."""
    own = session_setup(tmp_path, percent, 'unknown_session = "refuse"')
    async with deployed(tmp_path, own) as place:
        client, url = place.session, place.url
        named = announced(await say(client, url, f"I like {SECRET}"))
        turn = {"message_id": "m", "chat_id": named, "content": "Hello"}
        assert (await place.ask(turn)).steps[-1] == "END"
        other = await post(client, f"{url}/chat", {"session_id": named, "message": "Hi"})
        assert other.status == 200
        await place.settled()
        assert stored(tmp_path) == {("session", 2), ("chat", 2), ("companion", 2)}
        assert SECRET in "".join(await prompts(place, "session"))
        assert SECRET not in "".join(await prompts(place, "chat"))
        assert SECRET not in "".join(await prompts(place, "companion"))

        listed = msgspec.json.decode((await call(client, "GET", url, named)).body)
        question = listed["messages"][0]
        assert len(listed["messages"]) == 2
        assert question["content"] == f"I like {SECRET}"
        unknown = await place.ask({"message_id": question["id"]})
        assert (unknown.status, unknown.problem["code"]) == (404, "unknown_message")

        assert (await call(client, "DELETE", url, named)).status == 204
        assert stored(tmp_path) == {("chat", 2), ("companion", 2)}
        assert (await say(client, url, "Still there?", named)).problem["code"] == "unknown_session"


@pytest.mark.parametrize("locks", ["process", "sqlite"])
async def test_a_flow_does_not_lock_another_ones_conversation(tmp_path: Path, locks: str) -> None:
    """A turn of the companion keeps no session of that id busy; one of the session does."""
    own = session_setup(tmp_path, 0, 'unknown_session = "create"')
    if locks != "sqlite":
        own = replace(own, locks=locks)
    async with deployed(tmp_path, own) as place:
        body = ChatRequest(message_id="m")
        busy = place.services.router.live("companion", body).locks
        assert await busy.acquire("test", "session_lock:s", 60.0)
        assert types(await say(place.session, place.url, "Hello", "s"))[-1] == "done"
        await place.settled()
        same = place.services.router.live("session", body).locks
        assert await same.acquire("test", "session_lock:s", 60.0)
        refused = await say(place.session, place.url, "Hello", "s")
        assert (refused.status, refused.problem["code"]) == (409, "session_busy")
        for held in (busy, same):
            await held.release("test", "session_lock:s")


async def test_deleting_a_session_leaves_another_flows_pause(tmp_path: Path) -> None:
    """A question the companion asked in a session of that id stays open."""
    async with deployed(tmp_path, companion_setup(tmp_path, "legacy")) as place:
        client, url = place.session, place.url
        named = announced(await say(client, url, "Hello"))
        asked = await post(client, f"{url}/chat/image", picture(session=named))
        assert asked.events[-1] == {"status": "suspended"}
        assert (await call(client, "DELETE", url, named)).status == 204
        answer = {"hitl_id": hitl_id(asked), "action": "reject"}
        assert (await post(client, f"{url}/hitl/respond", answer)).status == 200
