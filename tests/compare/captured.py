"""Folders of captures: exchanges of chat that legacy serves and graph plays, right or wrong."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from cutover import Event, Request, Stack
from harness import root
from harness.config import CapturesTable, Settings
from router.captures import Captures
from tests.flows.samples import SAMPLES
from tests.support.stage import Stage, staged

KEY = "0123456789abcdef"
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>" + "w" * 200
"""What would act in a page that takes it for markup, and a word that is wider than a page."""


def texts(change: Callable[[str], str]) -> Callable[[Stack], Stack]:
    """Return what changes the texts of a stack of chat."""

    def changed(stack: Stack) -> Stack:
        async def run(request: Request[Any, Any]) -> AsyncIterator[Event]:
            async for event in stack(request):
                text: str = getattr(event, "content", None) or ""
                said = text.strip()
                yield msgspec.structs.replace(event, content=change(text)) if said else event

        return run

    return changed


@dataclass(slots=True)
class Capturing:
    """Serves exchanges of chat by legacy, and captures them."""

    stage: Stage
    captures: Captures
    count: int = 0

    async def exchange(
        self,
        content: str = "What is 12 * 7?",
        change: Callable[[Stack], Stack] | None = None,
        *,
        played: str = "graph",
    ) -> None:
        """Serve a request, and have a stack play it, "" for none."""
        self.count += 1
        body = dict(SAMPLES["chat"].body) | {"message_id": f"m{self.count}", "content": content}
        request = self.stage.request("chat", body, yield_interval=0.0)
        told = await self.stage.tell("chat", request, ["legacy"])
        told.exchange.id = f"{self.count:032x}"
        self.captures.served(told.exchange)
        if played:
            self.captures.played(told.exchange, await self.stage.play(told, played, change))


async def captured(folder: Path, serve: Callable[[Capturing], Any]) -> Path:
    """Fill a folder with what `serve` has served."""
    settings = Settings(captures=CapturesTable(url=str(folder), key=KEY))
    async with staged() as stage, root.capturing(settings) as captures:
        assert captures is not None
        await serve(Capturing(stage, captures))
    return folder


async def some_differ(capturing: Capturing) -> None:
    """Serve 24 exchanges: graph's text is another one in four, and hostile in one; two unplayed."""
    for number in range(24):
        if number == 5:
            loud = texts(lambda text: f"{text}{HOSTILE}")
            await capturing.exchange(f"What is 12 * 7? {HOSTILE}", loud)
            continue
        wrong = None if number % 6 else texts(lambda text: text.replace("8", "9"))
        await capturing.exchange(change=wrong, played="" if number in {1, 2} else "graph")
