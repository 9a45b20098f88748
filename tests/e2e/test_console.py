"""A whole rollout driven from the console in a browser, which says what an operator would see."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import httpx
from playwright.async_api import Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from typer.testing import CliRunner

from cutover.records import encode
from harness.cli import cli
from router.captures import Store
from tests.compare.captured import HOSTILE
from tests.router.captures.records import line
from tests.support.browser import IN_CHROMIUM, browsing, flaws
from tests.support.processes import RouterProcess, free_port
from tests.support.services import serving
from tests.support.shop import event

pytestmark = IN_CHROMIUM
TOKEN = "the token of the flags"
PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "console.png"
BATCHES = 200  # of 500 exchanges


@dataclass
class Talker:
    """A service of chat completions; `broken` in the midst of each answer, `odd` in some."""

    odd: bool = False
    broken: bool = False

    @property
    def app(self) -> Starlette:
        """The service."""
        return Starlette(routes=[Route("/ask", self.answer, methods=["POST"])])

    async def answer(self, request: Request) -> Response:
        """Say what was asked, and some words."""
        asked = await request.json()

        async def words() -> AsyncIterator[str]:
            said = ["You ", "asked: ", asked["content"], " and ", "got ", "this."]
            if self.odd and asked["number"] % 4 == 0:
                said[-1] = "that."
            for number, word in enumerate(said):
                if self.broken and number == 3:
                    message = "broke"
                    raise RuntimeError(message)
                await asyncio.sleep(0.01)
                yield event({"content": word})
            yield event({}, "stop") + "data: [DONE]\n\n"

        return StreamingResponse(words(), media_type="text/event-stream")


@dataclass
class Rollout:
    """A router between two services, one of its flows watched in a browser."""

    router: RouterProcess
    graph: Talker
    page: Page
    said: list[str]
    """What the browser's console said, and requests that failed."""
    count: int = 0

    async def ask(self, count: int) -> Counter[str]:
        """Ask as many times; return by which stack the requests were assigned."""
        async with httpx.AsyncClient(timeout=60) as client:

            async def one(number: int) -> str:
                content = HOSTILE if number % 10 == 0 else f"item {number}"
                body = {"user": f"u{number}", "number": number, "content": content}
                answer = await client.post(f"{self.router.url}/ask", json=body)
                return answer.headers["x-cutover-assigned"]

            found: Counter[str] = Counter()
            for _ in range(count // 10):
                self.count += 10
                found.update(await asyncio.gather(*map(one, range(self.count, self.count + 10))))
            return found

    async def change(self, button: str, percent: str = "") -> None:
        """Use a form as an operator would, with the keyboard."""
        await self.page.get_by_role("button", name=button).press("Enter")
        dialog = self.page.get_by_role("dialog")
        if percent:
            await dialog.get_by_label("Percent").fill(percent)
        await dialog.get_by_label("Who").fill("Ann")
        await dialog.get_by_label("Why").fill("it was decided")
        await dialog.get_by_label("Token").fill(TOKEN)
        await dialog.get_by_label("Token").press("Enter")
        await expect(dialog.locator("output")).to_contain_text("In force")
        await self.page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)

    async def run(self, *command: str) -> int:
        """Run a command with the router's configuration."""
        line = [*command, "--config", f"{self.router.folder}/{self.router.port}.toml"]
        return (await asyncio.to_thread(CliRunner().invoke, cli, line)).exit_code


@asynccontextmanager
async def rollout(folder: Path, *, odd: bool = True) -> AsyncIterator[Rollout]:
    """Serve two services, a router with a console, and open that in a browser."""
    legacy, graph, port = Talker(), Talker(odd), free_port()
    async with (
        serving(legacy.app) as old,
        serving(graph.app) as new,
        RouterProcess(
            folder,
            {
                "server": {"flag_token": TOKEN},
                "stores": {"database": f"sqlite+aiosqlite:///{folder}/world.db"},
                "console": {"port": port, "reports": str(folder / "report")},
                "captures": {"url": str(folder / "captures"), "key": "0123456789abcdef"},
                "stacks": {
                    "legacy": {"url": old, "shadow_safe": True},
                    "graph": {"url": new, "shadow_safe": True},
                },
                "flows": {"bot": {"paths": ["/ask"], "keys": {"user": "body.user"}}},
            },
        ) as router,
        browsing() as (page, said),
    ):
        await page.goto(f"http://127.0.0.1:{port}/console")
        yield Rollout(router, graph, page, said)


async def looks_well(page: Page, folder: Path, name: str) -> None:
    """Look at a view at two widths, dark and light, and keep what is seen."""
    for dark, width in product((True, False), (390, 1280)):
        assert await flaws(page, width, dark=dark) == []
        path = folder / f"{name}-{'dark' if dark else 'light'}-{width}.png"
        await page.screenshot(path=path, full_page=True)


async def take_picture(bot: Rollout) -> None:
    """Take the picture of the documents, once the charts have some spans."""
    for _ in range(12):
        bot.graph.broken = not bot.graph.broken
        await bot.ask(30)
        await asyncio.sleep(12)
    await bot.page.evaluate("scrollTo(0, 0)")
    await bot.page.screenshot(path=PICTURE)


async def test_a_rollout_is_driven_from_the_page(tmp_path: Path) -> None:
    """Mirror, differences, a share, a fault, the gate's verdict, switched off: no curl, no JSON."""
    async with rollout(tmp_path) as bot:
        page, captures = bot.page, str(tmp_path / "captures")
        await expect(page.locator("#connection")).to_have_text("live")
        await expect(page.locator("#newest")).to_contain_text("No exchange of bot has ended")
        await looks_well(page, tmp_path, "empty")

        await bot.change("Set shadow share …", "100")
        await bot.ask(40)
        await expect(page.locator("dl")).to_contain_text("different", timeout=30_000)
        await expect(page.locator("#newest tbody tr")).to_have_count(40)
        await asyncio.sleep(6)  # until they are stored
        assert await bot.run("diff", captures, "-o", f"{tmp_path}/report") == 1
        await expect(page.locator("#causes li")).to_have_count(1, timeout=30_000)
        await page.locator("#causes li a").click()
        await expect(page.locator("tr:target")).to_be_visible()
        await page.go_back()

        await bot.change("Set share …", "50")
        await expect(page.locator("#now h1")).to_have_text("50 % of bot goes to graph")
        await bot.ask(100)
        await expect(page.locator("#figures-graph .taken-over")).to_have_text("0")
        bot.graph.broken = True
        await bot.ask(60)
        await expect(page.locator("#figures-graph .served-legacy")).not_to_have_text("0")
        await expect(page.locator("#figures-graph .taken-over")).not_to_have_text("0")
        await asyncio.sleep(6)
        assert await bot.run("gate", captures) == 2
        await expect(page.locator("#gate h2")).to_have_text("Gate: roll back", timeout=30_000)

        await page.locator("#newest tbody button").nth(3).click()
        await expect(page.locator("#tape h2")).to_be_visible()
        await looks_well(page, tmp_path, "tape")
        await page.get_by_role("button", name="Close").press("Enter")
        await page.get_by_role("searchbox").fill("taken over")
        await expect(page.locator("#newest tbody tr:visible").first).to_contain_text("taken over")
        await page.get_by_role("searchbox").fill("")
        await expect(page.locator("#first canvas")).to_be_visible(timeout=30_000)
        await looks_well(page, tmp_path, "page")
        if os.environ.get("CUTOVER_PICTURES"):
            await take_picture(bot)

        await bot.change("Switch off …")
        assert await bot.ask(50) == {"legacy": 50}  # from the next request on
        await expect(page.locator("#now h1")).to_have_text("0 % of bot goes to graph")
        assert "who='Ann' why='it was decided'" in bot.router.log
        assert TOKEN not in bot.router.log
        assert bot.said == []

        await bot.router.stop()
        await expect(page.locator("#connection")).to_contain_text("connection lost")
        await bot.router.start()
        await expect(page.locator("#connection")).to_have_text("live", timeout=60_000)


def stored(folder: Path) -> tuple[str, int]:
    """Store many exchanges of the flow, as a router does; return the newest one, and its end."""
    store, today, ended, ids = Store(str(folder)), datetime.now(UTC).date(), 0, list[str]()
    for batch in range(BATCHES):
        if batch == BATCHES - 12:  # it waited for a minute
            ended = time.time_ns() // 1_000 + 2_000_000
        ids = [f"{batch:016x}{number:016x}" for number in range(500)]
        lines = (encode(line(exchange=one, flow="bot")) + b"\n" for one in ids)
        store.add("bot", today, b"".join(lines))
    return ids[-1], ended


async def test_every_view_comes_within_a_second_with_many_exchanges(tmp_path: Path) -> None:
    """Of 100 000 that are stored, the newest opens; the others are not read."""
    exchange, ended = await asyncio.to_thread(stored, tmp_path / "captures")
    async with rollout(tmp_path) as bot:
        await bot.ask(50)
        origin = bot.page.url
        for view in ("", f"/tape?exchange={exchange}&at={ended}", "/assets/style.css"):
            took = []
            for _ in range(5):
                began = time.monotonic()
                answer = await bot.page.goto(origin + view)
                assert answer is not None
                assert answer.ok
                took.append(time.monotonic() - began)
                if exchange in view:
                    assert exchange in await bot.page.content()
            assert sorted(took)[2] < 1, view
