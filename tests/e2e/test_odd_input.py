"""Odd input that is good all the same, and ids that are used twice."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest

from contract.flows.chat import ChatRequest
from tests.support.deployment import Setup, deployed

pytestmark = pytest.mark.sockets

MIB = 1_048_576
ENDED_WELL = ["ACCEPT", "START_REPLY", "SEND", "SUCCESS", "END"]


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["legacy", "graph"])
async def test_odd_bodies_are_served(tmp_path: Path, stack: str) -> None:
    """Unknown fields are ignored, the last of equal keys counts, 1 MiB is not too much."""
    odd = [
        b'{"message_id":"a","content":"Hello","unknown":{"deep":[[1e400]],"raw":[9e99]}}',
        b'{"message_id":"x","message_id":"b","content":"No","content":"Hello"}',
        b'\n\t {"message_id":"c","content":"Hello","user_name":null} \r\n',
        '{"message_id":"d","content":"\\ud83d\\ude00 字 🍅 \u2028 \ufeff"}'.encode(),
        b'{"message_id":"e","content":"Hello","prompt_params":{"a":1e300,"b":-9223372036854775808}}',
    ]
    async with deployed(tmp_path, Setup(stack="graph" if stack == "graph" else "legacy")) as place:
        for sent in odd:
            answer = await place.ask(sent)
            assert (answer.status, answer.steps) == (200, ENDED_WELL), sent
        padded = b'{"message_id":"f","content":"Hello"'.ljust(MIB - 1) + b"}"
        data = BytesIO(padded)
        async with place.session.post(f"{place.url}/chat/sse", data=data) as response:
            assert response.status == 200
            await response.read()
        runs = await place.lines()
        assert [run.outcome for run in runs] == ["completed"] * 6
        store = place.services.router.live(ChatRequest(message_id="n")).conversations
        assert await store.find("test", "x") is None
        said = await store.find("test", "b")
        assert said is not None
        assert said.content == "Hello"


async def test_an_id_with_another_text_is_a_conflict(tmp_path: Path) -> None:
    """The text first stored under an id stays; the same text again is served again."""
    async with deployed(tmp_path) as place:
        # The time stands in the prompt, and the simulated provider answers by every word of it.
        asked = {"message_id": "m", "prompt_params": {"current_date": "d", "current_time": "t"}}
        first = await place.ask({**asked, "content": "Hello"})
        other = await place.ask({**asked, "content": "Good bye"})
        again = await place.ask({**asked, "content": "Hello"})
        stored = await place.ask(asked)
        assert (first.status, again.status, stored.status) == (200, 200, 200)
        assert (other.status, other.problem["code"]) == (409, "message_conflict")
        assert first.events == again.events == stored.events


async def test_refusals_are_on_record_and_leave_no_lock(tmp_path: Path) -> None:
    """A refusal is an outcome: captured, shadowed, and the id is free at once."""
    async with deployed(tmp_path, Setup(shadow=100)) as place:
        assert (await place.ask({"message_id": "m"})).status == 404
        runs = await place.lines()
        assert [(run.role, run.outcome) for run in runs] == [
            ("serving", "refused"),
            ("shadow", "refused"),
        ]
        assert place.books() == {"compared(equal)": 1}
        assert (await place.ask({"message_id": "m", "content": "Hello"})).status == 200
