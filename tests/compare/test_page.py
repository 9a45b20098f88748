"""The pages in a browser: they fit, say nothing to the console, and text in them does nothing."""

import asyncio
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest
from typer.testing import CliRunner

from compare.report.page import render
from compare.rollout import Scope, decide
from harness.cli import cli
from tests.compare.captured import captured, some_differ
from tests.compare.drawn import Drawn
from tests.loadtests.test_report import FIGURES, SLOWER, report, swept
from tests.support.browser import IN_CHROMIUM, browsing, flaws

pytestmark = IN_CHROMIUM
OPEN = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
NAMES = {
    "report": "Different · cutover diff",
    "gate": "Roll back · cutover gate",
    "load": "",
    "sweep": "",
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A report on pairs, one of which has hostile texts; a verdict on hostile codes; two loads."""
    folder = tmp_path_factory.mktemp("pages")
    asyncio.run(captured(folder / "captures", some_differ))
    CliRunner().invoke(cli, ["diff", str(folder / "captures"), "-o", str(folder)])
    rows = Drawn(behind=0.5).frame(code="<script>owned()</script>", unit_kind="user" * 40)
    decision = decide(rows, Scope("chat", 0.5, "now", int(rows["at"].max())))
    made = {
        "gate": render("gate.html.j2", decision=decision),
        "load": render("load.html.j2", report=report(SLOWER)),
        "sweep": render("sweep.html.j2", report=swept(FIGURES["sweeps"][5])),
    }
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text)
    return {name: folder / f"{name}.html" for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
async def test_a_page_fits_and_hostile_text_is_inert(pages: Mapping[str, Path], name: str) -> None:
    """At two widths, dark and light, with all that is folded open; axe finds nothing serious."""
    async with browsing() as (page, said):
        await page.goto(pages[name].as_uri())
        await page.evaluate(
            "for (const one of document.querySelectorAll('details')) one.open = true"
        )
        papers = set()
        for dark, width in product((False, True), (390, 1400)):
            assert await flaws(page, width, dark=dark) == []
            papers.add(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert papers == {"rgb(255, 255, 255)", "rgb(20, 23, 27)"}
        assert await page.evaluate("document.scripts.length + document.images.length") == 0
        assert NAMES[name] in await page.title()
        assert said == []
        if NAMES[name]:
            assert "owned" in await page.evaluate("document.body.textContent")
