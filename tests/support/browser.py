"""A browser without a window, driven over its debugging protocol (Chromium's DevTools)."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse

from tests.support.patience import PATIENCE_S

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--remote-debugging-port=0",
)
_ADDRESS = re.compile(rb"ws://([^/]+)/")
_TROUBLE = frozenset({"Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"})


OVERHANG = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
"""How much wider than its window a page is."""


def chromium_program() -> str:
    """Find the program; without one skip, and fail under CI."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("no Chromium, and CI=true asks for it")
    return found or pytest.skip("no Chromium on this machine")


class Tab:
    """One page of the browser; `events` is everything it told since it was opened."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._calls = 0
        self.events: list[dict[str, Any]] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        self._calls += 1
        call = {"id": self._calls, "method": method, "params": parameters}
        await self._socket.send_json(call)
        while True:
            told = await self._socket.receive_json(timeout=PATIENCE_S)
            if told.get("id") == self._calls:
                assert "error" not in told, told
                result: dict[str, Any] = told["result"]
                return result
            self.events.append(told)

    async def open(self, page: Path, *, width: int, dark: bool) -> None:
        """Open a page from disk in a window of some width, and wait for all of it."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        await self.call("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(await self._socket.receive_json(timeout=PATIENCE_S))

    async def value(self, script: str) -> Any:
        """Evaluate an expression in the page."""
        said = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    async def press(self, key: str) -> None:
        """Press a key: Tab, Enter or ' '."""
        code = {"Tab": 9, "Enter": 13, " ": 32}[key]
        text = {"Tab": "", "Enter": "\r", " ": " "}[key]
        down = {"key": key, "windowsVirtualKeyCode": code}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **down)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **down)

    def troubles(self) -> list[dict[str, Any]]:
        """List what the console would show."""
        return [event["params"] for event in self.events if event["method"] in _TROUBLE]

    def requests(self) -> list[str]:
        """List the addresses asked for."""
        asked = [e["params"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [str(request["request"]["url"]) for request in asked]


@asynccontextmanager
async def browsing(program: str, profile: Path) -> AsyncIterator[Tab]:
    """Start a browser with a profile of its own, and end it with everything it started."""
    process = await asyncio.create_subprocess_exec(
        program, *FLAGS, f"--user-data-dir={profile}", "about:blank", stdout=DEVNULL, stderr=PIPE
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE_S), ClientSession() as session:
            address = await _address(process.stderr)
            async with session.get(f"http://{address}/json") as answer:
                tabs = await answer.json(content_type=None)
            url = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
            async with session.ws_connect(url, max_msg_size=0) as socket:
                tab = Tab(socket)
                for domain in ("Page", "Runtime", "Network", "Log"):
                    await tab.call(f"{domain}.enable")
                yield tab
                await tab.call("Browser.close")
    finally:
        if process.returncode is None:
            process.terminate()
        # Read to the end, so that neither the pipe nor the process stays behind.
        await process.communicate()


async def _address(said: asyncio.StreamReader) -> str:
    """Read where the browser listens."""
    async for line in said:
        found = _ADDRESS.search(line)
        if found:
            return found[1].decode()
    raise AssertionError("the browser ended before it listened")
