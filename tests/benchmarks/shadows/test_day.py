"""A simulated day: nothing is lost count of, and paper and simulation agree."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.shadows.day import DAY, LOST, NOON, Costs, Outage, Plan, rows, simulate

SMALL = Plan(exchanges=2_000_000)


def test_paper_multiplies_costs_by_rates() -> None:
    """At the busiest moment no core is used beyond its share."""
    plan = Plan(exchanges=DAY * 100.0, costs=Costs(router=0.004, worker=0.006), used=0.5)
    assert (plan.mean, plan.rates(np.array([0.0, NOON])).tolist()) == (100.0, [0.0, 200.0])
    assert (plan.routers, plan.workers) == (2, 3)
    assert plan.puts == 3 * DAY
    assert plan.stored == DAY * 100 * plan.costs.stored_bytes * 30


def test_every_exchange_ends_somewhere() -> None:
    """But for those that still wait at midnight, of which there are none."""
    outages = (Outage("workers", NOON, 60.0), Outage("redis", NOON + 600, 20.0))
    found = simulate(SMALL, outages)
    assert found.arrived == pytest.approx(SMALL.exchanges, rel=0.01)
    assert found.compared + found.full + found.away == found.arrived
    assert found.away == pytest.approx(20 * SMALL.mean * SMALL.peak, rel=0.2)
    assert found.most_waiting == SMALL.routers * SMALL.queue


def test_too_few_workers_compare_what_they_can() -> None:
    """The rest is dropped, however long the queue is."""
    plan = Plan(exchanges=40_000_000.0, used=1.6, peak=1.0)
    found = simulate(plan, ())
    able = plan.workers / plan.costs.worker
    assert able < plan.mean
    assert found.dropped == pytest.approx(1 - able / plan.mean, abs=0.005)


def test_provided_as_on_paper_a_day_loses_less_than_the_gate_accepts() -> None:
    """Outages included."""
    found = {one.name: one for one in rows(SMALL)}
    assert found["day.dropped"].ok
    assert found["day.dropped_in_outages"].ok
    assert found["day.dropped_in_outages"].target == 100 * LOST
