"""Drawn sessions with approvals: whichever stack serves each part, clients and workers see one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import msgspec
import pytest

from contract.workers import WorkerCall
from router.stack import StackName
from tests.support.flow_runs import drawn_conversations
from tests.support.ops_turns import SAID, OpsDesk, approval_id, conversation

pytestmark = pytest.mark.virtual

Choose = Callable[[Random], StackName]
ALWAYS: dict[str, Choose] = {"legacy": lambda _: "legacy", "graph": lambda _: "graph"}


@dataclass
class History:
    """What came of a session: events, with approvals numbered, the log, the calls of workers."""

    events: list[dict[str, Any]] = field(default_factory=list)
    audited: list[tuple[str, str, str]] = field(default_factory=list)
    calls: list[WorkerCall] = field(default_factory=list)
    stored: list[tuple[str, str]] = field(default_factory=list)


async def history(seed: int, choose: Choose) -> History:
    """Take the turns of a session, each part on a chosen stack, after a restart."""
    draw, stacks, found = Random(seed), Random(f"stacks {seed}"), History()
    first = conversation(seed)[0]
    known = msgspec.structs.replace(first.options, model_id="gpt-4.1", approvals="ask")
    desk = OpsDesk(replace(first, options=known, human=(), fails={}, busy=False))
    numbers: dict[str, str] = {}

    def restart() -> None:
        desk.assigned = choose(stacks)
        desk.start()

    for message in draw.choices(SAID, k=draw.randint(1, 4)):
        restart()
        reply = await desk.react(message)
        found.events += reply.events
        while reply.events[-1] == {"type": "done", "status": "approval_required"}:
            asked = approval_id(reply)
            numbers[asked] = f"approval {len(numbers)}"
            if draw.random() < 0.1:
                break  # the next turn expires it
            restart()
            reply = await desk.decide(asked, approved=draw.random() < 0.75)
            found.events += reply.events
    for event in found.events:
        if "approval_id" in event:
            event["approval_id"] = numbers[event["approval_id"]]
    found.audited, found.calls = desk.audited, desk.world.workers.calls
    found.stored = [(turn.role, turn.content) for turn in desk.house.conversations.turns]
    return found


@pytest.mark.slow
@drawn_conversations(60, per_test=20, traced=(0,))
async def test_sessions_may_change_stacks_at_any_approval(seeds: range) -> None:
    """In either direction: the same events, the same log, and each worker called as often."""
    seen = Counter[str]()
    for seed in seeds:
        legacy = await history(seed, ALWAYS["legacy"])
        assert await history(seed, ALWAYS["graph"]) == legacy
        assert await history(seed, lambda draw: draw.choice(("legacy", "graph"))) == legacy
        seen.update(event for event, *_ in legacy.audited)
        seen.update(str(event.get("status")) for event in legacy.events)
    assert {"approved", "rejected", "executed", "refused"} <= seen.keys()
    assert {"completed", "failed", "rejected", "approval_required"} <= seen.keys()
