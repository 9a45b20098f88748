"""The dashboard shows what a router exports: Prometheus answers its queries from real scrapes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from contract.flow import Event, Request
from contract.ports import Effects
from cutover.wiring.stacks import load_stacks
from router.serving.stack import LocalStack
from tests.conftest import ROOT
from tests.e2e.test_alerts_dependencies import MOODY, minutes
from tests.support.deployment import Setup, deployed, first_turn
from tests.support.faulty_stacks import after, crash
from tests.support.scrapes import METRICS, Scrapes, metrics_page

pytestmark = [pytest.mark.sockets, pytest.mark.slow, pytest.mark.untraced]

PANELS = json.loads((ROOT / "deploy" / "grafana.json").read_text("utf-8"))["panels"]
QUERIES = {
    one["expr"].replace("$__rate_interval", "5m").replace("$flow", ".*"): panel["title"]
    for panel in PANELS
    for one in panel["targets"]
}
"""With the variables as Grafana fills them in; each has the title of its panel."""
P99 = {"Time to the first frame", "Time to the first text", "Time to the last frame"}


PRICED = """
[models.priced]
provider = "simulated"
model = "sim-chat"
input_price = 2.0
output_price = 8.0
"""


async def test_the_dashboards_queries_are_answered_from_scrapes(tmp_path: Path) -> None:
    """Each names metrics of the page, and where these have values, it shows some.

    Where percentiles of times are shown, the 99th is among them.
    """
    stacks = load_stacks()
    sound = stacks["graph"].flows["chat"]
    crashing = after(sound, 0, crash)

    def flow(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        crashes = request.body.message_id.endswith("1")
        return (crashing if crashes else sound)(request, effects)

    stacks["graph"] = LocalStack("graph", {"chat": flow}, "g")
    scrapes = Scrapes()
    setup = Setup(percent=50, shadow=100, stacks=stacks, more=METRICS + MOODY + PRICED)
    async with deployed(tmp_path, setup) as place:

        async def turn(name: str) -> None:
            content = f"what is 3 + 4? {name}"
            model = "moody" if name.endswith("0") else "priced"
            await place.ask(first_turn(name, model) | {"content": content})
            await place.ask(b"no JSON")

        await minutes(scrapes, place, 4, turn)
        place.edit("nonsense")
        await scrapes.take(place)
        page = await metrics_page(place.session, place.url)
    declared = set(re.findall(r"^# TYPE (cutover_\w+) ", page, re.MULTILINE))
    sampled = {re.sub(r"{.*", "", series) for series in scrapes.series}
    answers = scrapes.answers(tmp_path, QUERIES)
    without_values = set()
    for query in QUERIES:
        names = set(re.findall(r"cutover_[a-z_]+", query))
        assert names
        assert {name.removesuffix("_bucket") for name in names} <= declared
        without_values |= names - sampled
        assert names - sampled or answers.get(query), query
    assert without_values == {"cutover_open_pauses", "cutover_open_pause_bytes"}  # chat has none
    percentiles = {
        QUERIES[query]
        for query, values in answers.items()
        if "histogram_quantile(0.99" in query and all(map(math.isfinite, values))
    }
    assert percentiles == P99
