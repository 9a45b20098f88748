"""One router on a socket: its page of metrics and its captures count the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from compare.input.outcomes import read_outcomes
from contract.flow import Event, Flow
from contract.flows import SPECS
from contract.ports import Effects
from graph_impl import FLOWS as GRAPH
from legacy import FLOWS as LEGACY
from router.serving.stack import LocalStack
from router.stack import StackName
from tests.support.deployment import Deployment, Setup, deployed
from tests.support.faulty_stacks import after, crash, short
from tests.support.outcome_counts import counts_of_totals, counts_on_page, outcome_totals

MORE = """
[metrics]
enabled = true

[models.priced]
provider = "simulated"
model = "sim-chat"
input_price = 2.0
output_price = 8.0
"""
TEXTS = ("Hello", "Please call no such tool.", "crash 0", "crash 3", "short 3", "leave", "leave")
pytestmark = [pytest.mark.sockets, pytest.mark.untraced, pytest.mark.slow]


def as_asked(flow: Flow) -> Flow:
    """Let a flow break as the message says: what, and after how many events."""

    async def asked(request: Any, effects: Effects) -> AsyncIterator[Event]:
        what, _, events = (request.body.content or "").partition(" ")
        faulty = flow
        if what == "crash":
            faulty = after(flow, int(events), crash)
        elif what == "short":
            faulty = short(flow, int(events))
        async for event in faulty(request, effects):
            yield event

    return asked


async def ask(place: Deployment, number: int, text: str) -> None:
    """Ask as a client that may leave in the middle, and may say what it thinks."""
    body: dict[str, Any] = {"message_id": f"m{number}", "chat_id": f"c{number}", "content": text}
    model = "slow" if text == "leave" else "priced"
    body["model_config"] = {"model_id": model}
    if text == "leave":
        async with place.post(body) as response:
            while b"SEND" not in await response.content.readline():
                pass
            response.close()
        return
    answer = await place.ask(body)
    await place.session.post(
        f"{place.url}/feedback",
        json={"exchange_id": answer.headers["x-cutover-exchange"], "score": 1 - number % 3},
    )


@pytest.mark.parametrize("seed", range(3))
async def test_the_page_of_metrics_counts_what_the_captures_hold(tmp_path: Path, seed: int) -> None:
    """Of crashes, takeovers, refusals, clients that leave, tools that fail, shadows beside them."""
    stacks: dict[StackName, Any] = {
        "legacy": LocalStack("legacy", {"chat": as_asked(LEGACY["chat"])}, "l"),
        "graph": LocalStack("graph", {"chat": as_asked(GRAPH["chat"])}, "g"),
    }
    random = Random(seed)
    drawn = [random.choice(TEXTS) for _ in range(20)]
    async with deployed(tmp_path, Setup(percent=50, shadow=50, more=MORE, stacks=stacks)) as place:
        for number, text in enumerate(drawn):
            await ask(place, number, text)
        await place.ask({"message_id": "unknown"})
        await place.lines()
        async with place.session.get(f"{place.url}/metrics") as response:
            page = await response.text()
        read = list(read_outcomes(str(tmp_path / "captures"), SPECS))
    totals = outcome_totals(read)
    assert len(read) == len(drawn) + 1
    assert counts_of_totals(totals) == counts_on_page(page)
    by_assigned = totals.by_assigned()
    assert {group.assigned for group in by_assigned} == {"legacy", "graph"}
    left = sum(held.total("client_left") for held in by_assigned.values())
    assert left == drawn.count("leave")
    scores = sum(held.total("feedback") for held in by_assigned.values())
    assert scores == len(drawn) - left
