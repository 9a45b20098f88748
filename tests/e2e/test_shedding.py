"""What is shed, on the wire: problems with a time to come back, told in `/readyz`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.router.telemetry.test_watchdog import Heard
from tests.support.deployment import Setup, deployed
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.sockets

HELLO = {"message_id": "m", "content": "Hello"}
SLOW = {"message_id": "slow", "content": "Hello", "model_config": {"model_id": "slow"}}


async def test_a_full_router_answers_503(tmp_path: Path) -> None:
    """Before the body is looked at; with the next place free it serves again."""
    async with deployed(tmp_path, Setup(more="[limits]\nstreams = 1")) as place:
        async with place.post(SLOW) as slow:
            await slow.content.readline()
            for body in (HELLO, b"no JSON"):
                answer = await place.ask(body)
                assert (answer.status, answer.problem["code"]) == (503, "overloaded")
                assert answer.headers["retry-after"] == "1"
            slow.close()
        await place.settled()
        assert (await place.ask(HELLO)).status == 200
        assert (await place.get("/readyz"))["shed"] == {"overloaded": 2}


async def test_large_bodies_find_no_room_where_there_is_little(tmp_path: Path) -> None:
    """Small ones always do, and the room is free again once the answer has been given."""
    long = {"prompt_params": {str(number): "p" * 8_000 for number in range(16)}}
    async with deployed(tmp_path, Setup(more="[limits]\nbody_bytes = 200_000")) as place:
        async with place.post(SLOW | long) as slow:
            await slow.content.readline()
            answer = await place.ask(HELLO | long)
            assert (answer.status, answer.problem["code"]) == (503, "overloaded")
            assert (await place.ask(HELLO)).status == 200
        await place.settled()
        assert (await place.ask(HELLO | long)).status == 200
        assert (await place.get("/readyz"))["shed"] == {"overloaded": 1}
        assert place.app.state.body_memory.reserved == 0


async def test_calls_of_the_gateway_may_come_back_as_well(tmp_path: Path) -> None:
    """OpenAI's clients look for both headers: nothing has been tried yet."""
    more = "[limits]\nbody_bytes = 200_000\n[gateway]\nenabled = true\n"
    long = {"prompt_params": {str(number): "p" * 8_000 for number in range(16)}}
    call = {"model": "gpt-4.1", "messages": [{"role": "user", "content": "p" * 130_000}]}
    async with deployed(tmp_path, Setup(more=more)) as place, place.post(SLOW | long) as slow:
        await slow.content.readline()
        async with place.session.post(f"{place.gateway}/v1/chat/completions", json=call) as answer:
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert answer.headers["x-should-retry"] == "true"
            assert (await answer.json())["error"]["code"] == "overloaded"


async def test_whoever_asks_too_often_gets_429(tmp_path: Path) -> None:
    """With the seconds until there is a token; another user is served."""
    async with deployed(tmp_path, Setup(more="[rate]\nper_minute = 1\nburst = 1")) as place:
        asked = [HELLO | {"message_id": f"m{n}", "user_id": "u"} for n in range(2)]
        answers = [await place.ask(body) for body in asked]
        assert [answer.status for answer in answers] == [200, 429]
        assert answers[1].problem["code"] == "rate_limited"
        assert 0 < int(answers[1].headers["retry-after"]) <= 60
        assert (await place.ask(HELLO | {"user_id": "v"})).status == 200


async def test_a_blocked_loop_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In the log while it lasts, in `/readyz` for a minute after."""
    heard = Heard()
    # Listened to from the start: an episode that begins there, on a busy machine, is told once.
    with caplog.filtering(heard):
        async with deployed(tmp_path, Setup(more="[limits]\nloop_seconds = 0.05")) as place:
            assert heard.logged.wait(PATIENCE_S)
            ready = await place.get("/readyz")
    assert ready["status"] == "degraded"
    assert "was blocked" in ready["faults"]["event_loop"]
    assert "the event loop is blocked" in caplog.text
