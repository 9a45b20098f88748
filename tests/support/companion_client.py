"""What the companion is asked over HTTP, and how it is deployed for that."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tests.support.deployment import Answer, Setup, moment
from tests.support.pictures import PNG, url

if TYPE_CHECKING:
    import aiohttp

    from router.stack import StackName


def flow(stack: StackName, more: str = "", shadow: int = 0) -> str:
    """Write the flow's configuration."""
    return f"""
[flows.companion]
enable_langgraph = true
langgraph_percent = {100 if stack == "graph" else 0}
shadow_percent = {shadow}
sticky = "none"

[flows.companion.options]
lock_ttl = 1.5
{more}
"""


def setup(folder: Path, stack: StackName, more: str = "", shadow: int = 0) -> Setup:
    """Keep all that a restart needs in one file."""
    store = f"sqlite:///{folder}/store.sqlite"
    return Setup(others=store, locks=store, more=flow(stack, more, shadow))


def picture(image: str = url(PNG), session: str = "s") -> dict[str, Any]:
    """Ask about a picture."""
    return {"session_id": session, "image": image, "action": "analyze_for_memory"}


async def post(session: aiohttp.ClientSession, place: str, body: Any) -> Answer:
    """Ask, and read everything."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    async with session.post(place, data=BytesIO(data)) as response:
        return Answer(response.status, response.headers, await response.read())


def hitl_id(answer: Answer) -> str:
    """Return the id of the question in an answer."""
    return str(next(event["hitl_id"] for event in answer.events if "hitl_id" in event))


async def after_its_end(session: aiohttp.ClientSession, place: str, body: Any) -> Answer:
    """Post what continues a pause until that is settled: the router does so after the stream."""
    while True:
        again = await post(session, place, body)
        if again.status == 200 or again.problem["code"] != "continued_already":
            return again
        await moment()
