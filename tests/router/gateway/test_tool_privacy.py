"""What passes the tool gateway is redacted and forgotten as captures are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutover.cli import app
from tests.router.gateway.test_asking_servers import User, buy, store_house, working
from tests.router.gateway.test_tool_servers import calling, replies, shop_house
from tests.support.deployment import captured
from tests.support.effects import Stack
from tests.support.scripted_service import HELLO, WHOLE

pytestmark = [
    pytest.mark.sockets,
    pytest.mark.slow,
    pytest.mark.usefixtures("no_event_watcher"),
]

PSEUDONYMS = "CUTOVER_TEST_PSEUDONYMS"
ANN = "ann.secret@example.org"
TOLD = "quinces"


async def test_arguments_results_and_answers_are_redacted_and_forgotten(tmp_path: Path) -> None:
    """An address in them is in no capture; the exchange goes with its user."""
    item = f"{TOLD} for {ANN}"
    legacy, graph = (Stack(calling("order", item=item)) for _ in range(2))
    async with shop_house(tmp_path, legacy, graph, shadow=100, pseudonym_key_env=PSEUDONYMS) as (
        place,
        shop,
        _,
    ):
        for user in (ANN, "ben"):
            body = HELLO | {"message_id": user, "user_id": user, "chat_id": f"of {user}"}
            assert (await place.ask(body)).body == WHOLE
            await place.settled()
        await place.services.captures.flush()
        before = captured(tmp_path)
        command = ["forget", "--config", str(place.watched.path), "--user", ANN]
        environ = {PSEUDONYMS: "a key"}
        done = await asyncio.to_thread(CliRunner().invoke, app, command, env=environ)
        after = captured(tmp_path)
    assert shop.done == [f"order {item}"] * 2
    assert ANN in replies(graph)[0][0], "what the stacks get is whole"
    assert before.count(TOLD.encode()) == 2 * after.count(TOLD.encode()) > 0
    assert ANN.encode() not in before
    assert done.exit_code == 0, done.output
    assert done.output.startswith("captures: 1 exchanges")


async def test_what_a_user_answers_to_a_tool_is_redacted(tmp_path: Path) -> None:
    """Answers are arguments like others."""

    class Signed(User):
        async def elicit(self, context: object, params: object) -> object:  # type: ignore[override]
            answer = await super().elicit(context, params)
            return answer.model_copy(update={"content": {"count": 3, "name": ANN}})

    legacy, graph = (working(buy, user=Signed()) for _ in range(2))
    async with store_house(tmp_path, legacy, graph, modern=False, shadow=100) as (place, store):
        assert (await place.ask(HELLO)).body == WHOLE
        await place.settled()
        await place.services.captures.flush()
        found = captured(tmp_path)
    assert store.done == ["buy 3 tea"]
    assert b"mcp.store.buy" in found
    assert b"question-1" in found
    assert ANN.encode() not in found
