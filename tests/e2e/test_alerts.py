"""Faults that are really made raise their alerts, in Prometheus' engine over scraped samples.

A minute passes between two scrapes by the stamps the samples get, not on the clock.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from contract.flow import Event, Request
from contract.ports import Effects
from cutover.wiring.stacks import load_stacks
from router.serving.stack import LocalStack
from tests.support.deployment import Deployment, Setup, deployed, first_turn
from tests.support.faulty_stacks import after, crash
from tests.support.scrapes import LATE, METRICS, Scrapes, metrics_page

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

BROKEN = (
    METRICS
    + '[rescue]\nfirst_wait_seconds = 0.001\n[models.broken]\nprovider = "simulated"\n'
    + 'model = "sim-chat?ending=http_error&status=500"\n'
)
QUIET, FAULTY = 3, 9
"""Minutes before the fault, and with it."""


async def watched(
    place: Deployment, turn: Callable[[str], Awaitable[object]], fault: Callable[[], None]
) -> Scrapes:
    """Scrape a router before and while it has a fault; a few requests a minute come."""
    scrapes = Scrapes()
    for minute in range(QUIET + FAULTY):
        if minute == QUIET:
            fault()
        for each in range(12):
            await turn(f"{minute}-{each}")
        await place.settled()
        await place.services.captures.flush()
        await scrapes.take(place)
    return scrapes


async def test_a_failing_provider_a_lost_disk_and_a_bad_edit_are_alerted(tmp_path: Path) -> None:
    """And a router that is down; a sound router alerts of nothing."""
    async with deployed(tmp_path, Setup(more=BROKEN)) as place:
        model = ["gpt-4.1"]

        def fault() -> None:
            model[0] = "broken"
            shutil.rmtree(tmp_path / "captures")
            (tmp_path / "captures").write_text("no folder")
            place.edit("nonsense")

        scrapes = await watched(place, lambda name: place.ask(first_turn(name, model[0])), fault)
    async with aiohttp.ClientSession() as session:
        for _ in range(3):
            with pytest.raises(aiohttp.ClientConnectionError):
                await metrics_page(session, place.url)
            scrapes.missed()
    assert scrapes.firing(tmp_path, QUIET - 1) - LATE == set()
    assert scrapes.firing(tmp_path, QUIET + FAULTY - 1) - LATE == {
        "CutoverErrorsHigh",
        "CutoverProviderBreakerOpen",  # which keeps the requests to it too few for a share
        "CutoverCapturesFailing",
        "CutoverConfigurationRefused",
    }
    assert "CutoverDown" in scrapes.firing(tmp_path, QUIET + FAULTY + 2)


async def test_a_crashing_stack_is_alerted(tmp_path: Path) -> None:
    """Its breaker opens, and the other stack serves what was assigned to it."""
    stacks = load_stacks()
    sound = stacks["graph"].flows["chat"]
    broken: list[bool] = []
    crashing = after(sound, 0, crash)

    def flow(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        return (crashing if broken else sound)(request, effects)

    stacks["graph"] = LocalStack("graph", {"chat": flow}, "g1")
    async with deployed(tmp_path, Setup(stack="graph", stacks=stacks, more=METRICS)) as place:
        scrapes = await watched(
            place, lambda name: place.ask(first_turn(name)), lambda: broken.append(True)
        )
    assert scrapes.firing(tmp_path, QUIET - 1) - LATE == set()
    found = scrapes.firing(tmp_path, QUIET + FAULTY - 1)
    assert {"CutoverFallbacksHigh", "CutoverBreakerOpen"} <= found
