"""Shadows with conversations of their own, over HTTP, from a provider that remembers."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from compare.captures import Question, compare_captures
from compare.tally import Drift, drift_of
from contract.flows import SPECS
from contract.records import OwnHistory, RunRecord
from contract.stores import ChatKey, DataSubject
from cutover.erasure import erase_rows
from cutover.wiring.periodic import drop_unknown
from tests.support.asgi import served
from tests.support.deployment import Deployment, Json, Setup, deployed

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

FREE = """
[flows.session]
enable_langgraph = true
shadow_percent = 100
[flows.session.options]
model_id = "remembering"
enable_tools = false
[shadow]
mode = "live"
history = "{history}"
tokens_per_day = 100000
[providers.near]
base_url = "{provider}/v1"
[models.remembering]
provider = "near"
"""


def provider() -> Starlette:
    """Serve a model that begins otherwise each time, and from then on goes on from what it said."""
    beginnings = itertools.count()

    async def answer(request: Request) -> Response:
        asked = msgspec.json.decode(await request.body())
        said = [one["content"] for one in asked["messages"] if one["role"] == "assistant"]
        text = f"{said[-1]} again" if said else f"beginning {next(beginnings)}"
        events = (
            {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]},
            {
                "choices": [],
                "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
            },
        )
        head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        lines = [f"data: {msgspec.json.encode({**head, **one}).decode()}\n\n" for one in events]
        return Response("".join(lines) + "data: [DONE]\n\n", media_type="text/event-stream")

    return Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])


@asynccontextmanager
async def conversing(folder: Path, history: str) -> AsyncIterator[Deployment]:
    """Deploy both stacks, legacy serving and graph in its shadow."""
    async with served(provider()) as near:
        more = FREE.format(history=history, provider=near)
        async with deployed(folder, Setup(more=more, others=f"sqlite:///{folder}/o.sqlite")) as it:
            yield it


async def say(place: Deployment, body: Json) -> tuple[str, str]:
    """Make a turn and wait for its shadow; returns the session and the answer."""
    async with place.session.post(f"{place.url}/api/v1/chat", json=body) as response:
        lines = (await response.text()).split("\n\n")
        assert response.status == 200, lines
    await place.settled()
    events = [msgspec.json.decode(line[6:]) for line in lines if line.startswith("data: ")]
    session = next((e["data"]["session_id"] for e in events if e["type"] == "session_created"), "")
    return session, events[-1]["data"]["final_message"]["content"]


async def talk(place: Deployment, turns: int) -> tuple[str, list[str]]:
    """Hold a conversation; returns the session and the answers."""
    session, first = await say(place, {"message": "hello"})
    more = [
        (await say(place, {"message": "and", "session_id": session}))[1] for _ in range(1, turns)
    ]
    return session, [first, *more]


def answers(runs: list[RunRecord]) -> list[str]:
    """Return what each shadow answered."""
    ends = (msgspec.json.decode(run.frames[-1][1][6:]) for run in runs if run.role == "shadow")
    return [end["data"]["final_message"]["content"] for end in ends]


@pytest.mark.parametrize("history", ["served", "own"])
async def test_drift_shows_where_shadows_hold_conversations(tmp_path: Path, history: str) -> None:
    """After the second turn it grows, or there is none: the same answer to the same question."""
    async with conversing(tmp_path, history) as place:
        _, heard = await talk(place, 3)
        # Second runs are written as they end, in any order.
        runs = sorted(await place.lines(), key=lambda run: run.began)
        spent = place.services.router.shadows.budget.tokens
    own = [text.replace("beginning 0", "beginning 1") for text in heard]
    free = history == "own"
    assert heard == ["beginning 0", "beginning 0 again", "beginning 0 again again"]
    assert answers(runs) == (own if free else [own[0], *heard[1:]])
    assert spent == 3 * 15
    told = [run.history for run in runs if run.role == "shadow"]
    assert told == [OwnHistory(own=n, other=n) if free else None for n in range(3)]
    tally = compare_captures(str(tmp_path / "captures"), Question(SPECS))
    assert (tally.pairs, tally.equal, tally.own_answers) == (3, 3, 3)
    assert drift_of(tally.drift) == (tuple(Drift(n, 1, 1) for n in range(3)) if free else ())


async def test_a_session_that_is_deleted_takes_its_side_along(tmp_path: Path) -> None:
    """At once by its call; by the command, another process, when the stores are looked at."""
    async with conversing(tmp_path, "own") as place:
        first, _ = await talk(place, 2)
        second, _ = await talk(place, 1)
        replies = place.services.router.shadows.replies
        assert set(replies.chats) == {ChatKey("session", first), ChatKey("session", second)}
        async with place.session.delete(f"{place.url}/api/v1/sessions/{first}") as response:
            assert response.status == 204
        assert set(replies.chats) == {ChatKey("session", second)}
        stores = place.watched.settings().stores
        await erase_rows(stores, {}, DataSubject("chat", second), ())
        await drop_unknown(replies, place.services.sessions.live.conversations)
        assert not replies.chats
        assert replies.size == 0
