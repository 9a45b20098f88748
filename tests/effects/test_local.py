"""Clocks and ids: the machine's, and those that tests can foretell."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from contract.errors import EffectFailed
from contract.ports import Audit, Ids, Workers
from contract.workers import WorkerCall
from effects.local import CountingIds, ManualClock, NoAudit, NoWorkers, RandomIds, SystemClock
from tests.support.records import an_audit_entry


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()], ids=["system", "manual"])
async def test_a_clock_tells_aware_utc_and_never_goes_back(
    clock: SystemClock | ManualClock,
) -> None:
    """Two readings are in UTC and in order, and `time()` is the same moment as `now()`."""
    before = clock.time()
    first, second = await clock.now("a"), await clock.now("b")
    assert first.tzinfo is UTC
    assert first <= second
    assert before <= first.timestamp() + 1e-3
    assert clock.time() >= first.timestamp() - 1e-3


async def test_a_manual_clock_moves_only_when_told() -> None:
    """It stands still, then has moved by exactly as much as it was advanced."""
    clock = ManualClock(datetime(2026, 11, 5, 12, 0, tzinfo=UTC))
    assert await clock.now("a") == await clock.now("a")
    clock.advance(90.5)
    assert await clock.now("a") == datetime(2026, 11, 5, 12, 1, 30, 500_000, tzinfo=UTC)


async def test_a_manual_clock_takes_any_zone() -> None:
    """A start in another zone is the same moment, told in UTC."""
    start = datetime(2026, 11, 5, 8, 0, tzinfo=timezone(timedelta(hours=8)))
    assert (await ManualClock(start).now("a")).isoformat() == "2026-11-05T00:00:00+00:00"


@pytest.mark.parametrize("ids", [RandomIds(), CountingIds()], ids=["random", "counting"])
async def test_no_identifier_comes_twice(ids: Ids) -> None:
    """A thousand are a thousand, short and printable."""
    made = [await ids.new("final_message") for _ in range(1_000)]
    assert len(set(made)) == len(made)
    assert all(0 < len(one) <= 64 and one.isascii() and one.isprintable() for one in made)


async def test_counted_identifiers_can_be_foretold() -> None:
    """Two counters with one prefix give the same row, whatever the site."""
    left, right = CountingIds("m"), CountingIds("m")
    assert [await left.new("a"), await left.new("b")] == ["m-1", "m-2"]
    assert [await right.new("b"), await right.new("a")] == ["m-1", "m-2"]


async def test_without_workers_nothing_is_carried_out_and_nothing_audited() -> None:
    """Both refuse with a fault of their own."""
    workers: Workers = NoWorkers()
    audit: Audit = NoAudit()
    with pytest.raises(EffectFailed, match="'worker_unavailable'"):
        _ = [update async for update in workers.run("execute", WorkerCall("system", "disks"))]
    with pytest.raises(EffectFailed, match="'audit_unavailable'"):
        await audit.append("audit", an_audit_entry())
