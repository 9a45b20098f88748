"""The demonstration's question: put to the user by one stack, gone on from by the other."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from contract.human import Form, FormField, FormValue
from contract.wire.sse import SseDecoder
from cutover.flows import SPECS
from router.admin.config_file import edit_flow

if TYPE_CHECKING:
    from pathlib import Path

FLOW = "companion"
MESSAGE = "Remind me to call mum: ask me when first."
ANSWER = "tonight at eight"
"""What the user says where a text is asked for."""
_IN_FORCE_WITHIN = 20.0


@dataclass(frozen=True, slots=True)
class Stream:
    """One answer of the companion: who was assigned and who served it, and what came."""

    assigned: str
    served: str
    body: bytes

    @property
    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """The events: names and data."""
        return [(it.event, msgspec.json.decode(it.data)) for it in SseDecoder().feed(self.body)]

    @property
    def status(self) -> str:
        """How it ended; empty where it broke off."""
        events = self.events
        return str(events[-1][1]["status"]) if events and events[-1][0] == "done" else ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question: the stream that put it, what was answered, the stream that went on from it."""

    put: Stream
    answer: dict[str, FormValue]
    gone_on: Stream | None = None

    @property
    def streams(self) -> list[Stream]:
        """What there is of both."""
        return [self.put] if self.gone_on is None else [self.put, self.gone_on]


async def ask(url: str, config: Path) -> Asked:
    """Be asked on graph, take the flow back to legacy, answer, and go on.

    A model that asks nothing, as real ones may, leaves it at the first stream.
    """
    async with aiohttp.ClientSession() as session:
        turn = {"session_id": "demo-question", "message": MESSAGE}
        put = await _stream(session, f"{url}/chat", turn)
        question = next((data for name, data in put.events if name == "hitl"), None)
        if question is None:
            return Asked(put, {})
        edit_flow(config, SPECS, FLOW, {"enable_langgraph": False})
        await _in_force(session, url)
        answer = filled(msgspec.convert(question["form"], Form))
        named = {"hitl_id": question["hitl_id"]}
        said = {**named, "action": "edit", "data": answer}
        async with session.post(f"{url}/hitl/respond", json=said) as response:
            await response.read()
        return Asked(put, answer, await _stream(session, f"{url}/hitl/continue", named))


def filled(form: Form) -> dict[str, FormValue]:
    """Fill in whatever is asked."""
    return {field.name: _value(field) for field in form.fields}


def _value(field: FormField) -> FormValue:
    match field.type:
        case "text":
            return ANSWER
        case "number":
            return 8
        case "boolean":
            return True
        case "choice":
            return field.options[0]
        case "list":
            return field.options[:1] or (ANSWER,)


async def _stream(session: aiohttp.ClientSession, url: str, body: object) -> Stream:
    async with session.post(url, json=body) as response:
        headers = response.headers
        return Stream(
            assigned=headers.get("x-cutover-assigned", ""),
            served=headers.get("x-cutover-served", "").split(" ")[0],
            body=await response.read(),
        )


async def _in_force(session: aiohttp.ClientSession, url: str) -> None:
    """Wait until the router has read the file: it does so four times a second."""
    until = time.monotonic() + _IN_FORCE_WITHIN
    while time.monotonic() < until:
        async with session.get(f"{url}/readyz") as response:
            if (await response.json())["stages"][FLOW] == "off":
                return
        await asyncio.sleep(0.05)
