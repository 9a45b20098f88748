"""The page about scaling: its figures are those that its bench computes."""

from __future__ import annotations

import re

from benchmarks.shadows.day import OUTAGES, Costs, Plan, Prices, simulate
from tests.support.project import ROOT

PAGE = (ROOT / "docs" / "scaling.md").read_text("utf-8")


def table(heading: str) -> dict[str, list[str]]:
    """Return the rows of the table below a heading, by their first cell."""
    below = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in below.splitlines()
        if line.startswith("|")
    ]
    return {first: rest for first, *rest in rows}


def test_the_costs_are_those_of_the_simulation() -> None:
    """An exchange's, and those of a million."""
    costs, prices, told = Costs(), Prices(), table("What a million exchanges cost")
    for row, seconds in (
        ("router, its captures handed over with the shadow", costs.router),
        ("worker of shadows", costs.worker),
        ("the broker's Redis", costs.broker),
    ):
        hours = seconds * 1e6 / 3_600
        million = f"{hours:.1f} core hours, ${hours * prices.core_hour:.2f}"
        assert told[row] == [f"{1_000 * seconds:.2g} ms", million]
    thousand = costs.waiting_bytes / 1_000
    waiting = [f"{thousand:.0f} kB", f"{thousand:.0f} GB pass through"]
    assert told["on the broker, until a worker has taken it"] == waiting
    stored = costs.stored_bytes / 1_000
    month = f"{stored:.1f} GB, ${stored * prices.gb_month:.2f} a month"
    assert told["stored: both runs, compressed"] == [f"{stored:.1f} kB", month]
    for price in (prices.core_hour, prices.gb_month, prices.puts):
        assert f"${price:g} " in PAGE


def test_the_day_is_what_the_bench_computes() -> None:
    """On paper, and simulated."""
    plan = Plan(exchanges=1e8)
    calm, struck = simulate(plan, ()), simulate(plan, OUTAGES)
    broker = plan.routers * plan.queue * plan.costs.waiting_bytes / 1e6
    assert {name: cells[0] for name, cells in table("A day of a hundred million").items()} == {
        "": "",
        "---": "---",
        "exchanges a second, mean and noon": f"{plan.mean:,.0f} and {plan.mean * plan.peak:,.0f}",
        "cores for routers": str(plan.routers),
        "cores for workers of shadows": str(plan.workers),
        "cores for brokers": str(plan.brokers),
        "waiting on brokers, at most": f"{broker:.0f} MB",
        "objects a day": f"{plan.puts:,.0f}",
        f"captures of {plan.kept} days": f"{plan.stored / 1e12:.1f} TB",
        "money a day, without models, databases and traffic": f"${plan.price:.0f}",
        "simulated: without a shadow": f"{100 * calm.dropped:.1f} %",
        "simulated: no worker for a minute at noon, and no Redis for 20 s": (
            f"{100 * struck.dropped:.1f} %"
        ),
    }
    assert re.search(r"`\[gate\] losses`", PAGE)
