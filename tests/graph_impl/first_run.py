"""Runs the chat flow for the first time in a process; prints its ending, then what came late.

A script of its own: in the process of the tests a graph has run already.
"""

import asyncio
import sys

from contract.flows.chat import ChatRequest
from contract.model import Chunk, ToolCallDelta
from cutover.selftest.cases import Case
from effects.tape import TapeSession
from graph_impl import FLOWS

CASE = Case(
    ChatRequest(message_id="m", content="x"),
    answers=(
        (Chunk(tool_calls=(ToolCallDelta(0, "c", "dice", "{}"),)), Chunk(finish="tool_calls")),
        (Chunk(text="t"),),
    ),
    tools={"dice": "4"},
)


async def first_run() -> list[str]:
    """Play the flow to its end; gives how it ended and the modules imported meanwhile."""
    exchange = CASE.world().exchange()
    effects = TapeSession(exchange, "first").effects()
    before = set(sys.modules)
    events = [event async for event in FLOWS["chat"](CASE.request, effects)]
    late = set(sys.modules) - before
    await exchange.close()
    return [repr(events[-2]), *sorted(late)]


if __name__ == "__main__":
    sys.stdout.write("\n".join(asyncio.run(first_run())))
