"""The load page in a real browser: alone, and within the width of its window."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.page import page
from tests.loadtests.streams import MS, row
from tests.loadtests.test_report import finished, report
from tests.support.browser import OVERHANG, browsing, chromium_program

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

TABLE_OVERHANG = """Math.max(...[...document.querySelectorAll('.table')].map(
    table => table.scrollWidth - table.clientWidth))"""


async def test_the_page_fits(tmp_path: Path) -> None:
    """No table is cut at 800 and 1300 pixels, even with large numbers; nothing is loaded."""
    rows = [row(first_token=12_345 * MS, last_content=54_321 * MS, ended=55_000 * MS)] * 2_000
    rows += [row(ending="truncated", code="closed", first_token=None)] * 90
    runs = [finished(run, rows, machine=0.99 if run == 3 else 0.5) for run in range(10)]
    file = tmp_path / "load.html"
    file.write_text(page(report(*runs), [one for run in runs for one in run.rows]), "utf-8")
    async with browsing(chromium_program(), tmp_path / "profile") as tab:
        for width, dark, overhang in ((390, True, None), (800, True, 0), (1300, False, 0)):
            await tab.open(file, width=width, dark=dark)
            assert await tab.value(OVERHANG) == 0
            assert overhang is None or await tab.value(TABLE_OVERHANG) == overhang
            assert tab.troubles() == []
            assert tab.requests() == [file.as_uri()]
