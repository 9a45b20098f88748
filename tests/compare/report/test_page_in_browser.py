"""The page in a real browser: quiet, alone, within the width of a phone, usable by keyboard."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from compare.report import page
from tests.compare.report.many import report_with
from tests.support.browser import OVERHANG, Tab, browsing, chromium_program

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

TABS_AT_MOST = 30
OPEN_ALL = "document.querySelectorAll('details').forEach(each => each.open = true)"
FOCUSED = "document.activeElement.matches('.cluster > summary')"
LARGEST = """Math.max(...[...document.querySelectorAll('.cluster')].map(
    cause => cause.querySelectorAll('*').length))"""
OPENED = "document.querySelector('.cluster').open"


@pytest.fixture(scope="session")
def chromium() -> str:
    """Find the program once."""
    return chromium_program()


def written(folder: Path, causes: int) -> Path:
    """Write a page with so many causes."""
    file = folder / f"{causes}.html"
    file.write_bytes(page(report_with(causes)).encode("utf-8", "replace"))
    return file


async def test_the_page_is_quiet_and_fits(chromium: str, tmp_path: Path) -> None:
    """No word on the console, no request, nothing wider than the window, hostile text is text."""
    async with browsing(chromium, tmp_path / "profile") as tab:
        files = {causes: written(tmp_path, causes) for causes in (0, 3, 60)}
        for (causes, file), (width, dark) in product(files.items(), ((390, True), (1280, False))):
            await tab.open(file, width=width, dark=dark)
            await tab.value(OPEN_ALL)
            assert await tab.value("innerWidth") == width
            assert await tab.value(OVERHANG) == 0
            assert await tab.value("document.querySelectorAll('script, img').length") == 0
            assert await tab.value("document.querySelectorAll('.cluster').length") == causes
            assert tab.troubles() == []
            assert tab.requests() == [file.as_uri()]


async def test_causes_are_reached_and_opened_by_keyboard(chromium: str, tmp_path: Path) -> None:
    """Tab goes to the first of two hundred, Enter opens it, the space bar closes it."""
    async with browsing(chromium, tmp_path / "profile") as tab:
        await tab.open(written(tmp_path, 200), width=1280, dark=False)
        await reach(tab)
        await tab.press("Enter")
        assert await tab.value(OPENED)
        await tab.press(" ")
        assert not await tab.value(OPENED)
        assert tab.troubles() == []


async def test_no_cause_is_too_large_to_open_at_once(chromium: str, tmp_path: Path) -> None:
    """What opens is what is laid out: its elements are bounded, however long the prompts are."""
    async with browsing(chromium, tmp_path / "profile") as tab:
        await tab.open(written(tmp_path, 60), width=390, dark=False)
        assert 0 < await tab.value(LARGEST) < 1_500


async def test_causes_are_filtered_by_layer_without_a_script(chromium: str, tmp_path: Path) -> None:
    """A choice hides what is of another layer."""
    shown = "[...document.querySelectorAll('.clusters > li')].filter(li => li.offsetHeight).length"
    of_text = "document.querySelectorAll('.clusters > .in-text').length"
    async with browsing(chromium, tmp_path / "profile") as tab:
        await tab.open(written(tmp_path, 60), width=390, dark=True)
        assert await tab.value(shown) == 60
        await tab.value("document.querySelector('#show-text').click()")
        assert await tab.value(shown) == await tab.value(of_text) > 0


async def reach(tab: Tab) -> None:
    """Press Tab until the first cause has the focus."""
    for _ in range(TABS_AT_MOST):
        await tab.press("Tab")
        if await tab.value(FOCUSED):
            return
    pytest.fail("no cause can be reached by keyboard")
