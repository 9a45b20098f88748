"""A browser that is driven: what its console says, and what keeps people from reading a page."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]
from playwright.async_api import Page, async_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
IN_CHROMIUM = [
    pytest.mark.nightly,
    pytest.mark.sockets,
    pytest.mark.skipif(not CHROMIUM, reason="needs chromium"),
]
WIDE = """[...document.querySelectorAll("main *")].filter((one) => !one.closest(".wide")
  && one.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
  .map((one) => one.outerHTML.slice(0, 99))"""


@asynccontextmanager
async def browsing() -> AsyncIterator[tuple[Page, list[str]]]:
    """Open a page in Chromium; the list fills with what its console says."""
    async with async_playwright() as playwright:
        flags = ["--no-sandbox"]
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        page, said = await browser.new_page(), list[str]()
        page.on("console", lambda one: said.append(f"{one.type}: {one.text}"))
        page.on("pageerror", lambda one: said.append(f"error: {one}"))
        yield page, said
        await browser.close()


async def flaws(page: Page, width: int, *, dark: bool) -> list[str]:
    """Return what stands beyond the right edge at a width, and what axe calls serious."""
    await page.set_viewport_size({"width": width, "height": 1000})
    await page.emulate_media(color_scheme="dark" if dark else "light")
    found = await Axe().run(page)
    grave = [
        f"{one['id']}: {node['failureSummary']} {node['html'][:200]}"
        for one in found.response["violations"]
        if one["impact"] in {"serious", "critical"}
        for node in one["nodes"]
    ]
    over = await page.evaluate("document.documentElement.scrollWidth") > width
    wide: list[str] = await page.evaluate(WIDE)
    return grave + wide + ["the page scrolls"] * over
