"""Both stacks take drawn turns alike: same bytes, same effects, whatever is approved or fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from contract.workers import AuditEntry
from rules.ops.instructions import RISKY
from tests.support.flow_runs import DIRECTIONS, drawn_conversations, same_on_both
from tests.support.ops_turns import conversation

pytestmark = pytest.mark.virtual


@pytest.mark.slow
@drawn_conversations(48, per_test=16, traced=(0,))
async def test_drawn_turns_are_taken_alike(seeds: range) -> None:
    """Each turn recorded by one stack, tailed and replayed by the other, taking turns.

    What was carried out was requested before and, if it is risky, approved, each by an approval of
    its own; a rejection ends the turn.
    """
    seen = Counter[object]()
    for seed in seeds:
        for number, turn in enumerate(conversation(seed)):
            before = len(turn.house.audit.entries)
            played = await same_on_both(turn, *DIRECTIONS[(seed + number) % 2])
            entries = turn.house.audit.entries[before:]
            check(entries)
            seen[played.ended[0]] += 1
            seen.update(one for entry in entries for one in (entry.event, entry.code))
            if entries and entries[-1].event == "rejected" and played.ended[0] == "completed":
                assert played.wire.endswith('data: {"status":"rejected"}\n\n')
    assert {"completed", "paused", "refused"} <= seen.keys()
    assert {"approved", "rejected", "executed", "no_approver", "unknown_worker"} <= seen.keys()


def check(entries: Sequence[AuditEntry]) -> None:
    """Check that all that was carried out was allowed before; a deployment has several stages."""
    allowed = Counter[tuple[str, str]]()
    for entry in entries:
        deploys = entry.worker == "deploy" and entry.risk in RISKY
        key = (entry.worker, "" if deploys else entry.action)
        if entry.event == "executed":
            assert allowed[key] > 0
            allowed[key] -= not deploys
        elif entry.event == ("approved" if entry.risk in RISKY else "requested"):
            allowed[key] += 1
