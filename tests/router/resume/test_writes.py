"""The journal of every exchange: the writes of a killed router are known, others leave nothing."""

from __future__ import annotations

import asyncio

import pytest

from contract.errors import EffectFailed, Fault
from contract.external import ExternalCall, ExternalError, ExternalResult, ExternalUpdate
from contract.model import ToolCall
from contract.operations import EXTERNAL_RUN, TOOLS_RUN, WORKERS_RUN, WriteLimits
from contract.workers import WorkerCall
from effects.stores import MemoryWriteJournal, StoredWrite
from effects.tape import Tape, canonical
from effects.testing import World
from effects.tools.fake import ScriptedTools
from router.resume.writes import ExchangeWrites
from tests.support.clocks import now
from tests.support.pausing_flow import DAY, Desk

pytestmark = pytest.mark.virtual

WRITES = 91.0
"""Seconds after which a write has no result any more: its deadline, and a minute."""


def journalled(journal: MemoryWriteJournal) -> Desk:
    """Make a desk whose exchanges are journalled, and whose first tool takes ten seconds."""
    tools = ScriptedTools({"book": "booked"}, slow={"book": 10.0}, writes=["book"])
    desk = Desk(World(tools=tools))
    desk.router = desk.start(write_journal=journal)
    return desk


async def test_what_a_killed_router_had_begun_is_known() -> None:
    """By flow, operation and tool; nothing of what was said."""
    journal = MemoryWriteJournal()
    turn = asyncio.create_task(journalled(journal).ask())
    await asyncio.sleep(5.0)
    assert await journal.abandoned(now() + 80.0) == ()
    (found,) = await journal.abandoned(now() + WRITES)
    assert (found.flow, found.what, found.state) == ("asking", "tools.run book", "begun")
    assert (await turn).said[-1] == "suspended"


async def test_what_may_take_long_is_known_later() -> None:
    """A minute after the deadline of its own operation or tool."""
    journal = MemoryWriteJournal()
    limits = WriteLimits(35.0, {"workers.run": 600.0}, {"book": 310.0})
    writes = ExchangeWrites(journal, "x", "asking", now, limits)
    tape = Tape()
    for operation, call in (
        (WORKERS_RUN, WorkerCall("deploy", "build")),
        (TOOLS_RUN, ToolCall("c", "book", "{}")),
    ):
        await writes.begin(tape.add(operation, "site", canonical(call), 0))
        seconds = limits.of(operation, canonical(call)) + 60.0
        assert await journal.abandoned(now() + seconds - 1.0) == ()
        (found,) = await journal.abandoned(now() + seconds)
        assert found.what in {"workers.run deploy.build", "tools.run book"}


async def test_an_effect_of_a_service_is_known_by_its_name() -> None:
    """That is its site: its arguments are the service's own, and may be a person's."""
    journal = MemoryWriteJournal()
    writes = ExchangeWrites(journal, "x", "asking", now, WriteLimits())
    call = canonical(ExternalCall({"to": "ann@example.com"}))
    await writes.begin(Tape().add(EXTERNAL_RUN, "mails.send", call, 0))
    (found,) = await journal.abandoned(now() + WRITES)
    assert found.what == "external.run mails.send"


@pytest.mark.parametrize(
    ("result", "fault", "state"),
    [
        (ExternalResult({"id": 7}), None, "done"),
        (ExternalResult(error=ExternalError("Refused", "no such box")), None, "failed"),
        (None, Fault("adapter_failed"), "failed"),
        (None, Fault("effect_in_doubt"), "in_doubt"),
        (None, Fault("deadline"), "in_doubt"),
    ],
)
async def test_an_effect_is_known_by_what_came_of_it(
    result: ExternalResult | None, fault: Fault | None, state: str
) -> None:
    """An error is an outcome like any other; without one it may have happened."""
    journal = MemoryWriteJournal()
    writes = ExchangeWrites(journal, "x", "asking", now, WriteLimits())
    entry = Tape().add(EXTERNAL_RUN, "mails.send", canonical(ExternalCall()), 0)
    await writes.begin(entry)
    if result is not None:
        entry.append(ExternalUpdate(result=result))
    entry.close("error" if fault else "complete", 1, fault)
    await writes.end(entry)
    (found,) = await journal.abandoned(now() + DAY)
    assert found.state == state


async def test_an_exchange_that_ends_leaves_nothing() -> None:
    """Whether it is journalled or not is not seen by its client."""
    journal = MemoryWriteJournal()
    desk = journalled(journal)
    assert (await desk.ask()).said == (await Desk(World()).ask()).said
    assert await journal.abandoned(now() + 2 * DAY) == ()


def away(*_facts: object) -> None:
    """Fail, as a store that does not answer."""
    raise EffectFailed(Fault("store_unavailable"))


class AwayJournal(MemoryWriteJournal):
    """A journal that is out of reach."""

    async def begin(self, write: StoredWrite) -> None:
        """Fail."""
        away(write)

    async def end(self, exchange: str, seq: int, state: object) -> None:
        """Fail."""
        away(exchange, seq, state)

    async def close(self, exchange: str) -> None:
        """Fail."""
        away(exchange)


async def test_a_journal_that_is_away_costs_no_exchange(caplog: pytest.LogCaptureFixture) -> None:
    """It goes on without, and the log says so."""
    assert (await journalled(AwayJournal()).ask()).said[-1] == "suspended"
    assert [record.getMessage().split(":")[-1] for record in caplog.records] == [
        " store_unavailable"
    ] * 3
