"""The first user of a process waits no longer than the next one.

As a script, in a process where no graph has run, it prints how a chat ends, then what was imported.
"""

import asyncio
import subprocess
import sys

import pytest

from contract.flows.chat import ChatRequest
from contract.model import Chunk, ToolCallDelta
from cutover.selftest.cases import Case
from effects.tape import TapeSession
from graph_impl import FLOWS
from tests.support.project import ROOT

CALLS = Chunk(tool_calls=(ToolCallDelta(0, "c", "dice", "{}"),), finish="tool_calls")
CASE = Case(
    ChatRequest(message_id="m", content="x"),
    answers=((CALLS,), (Chunk(text="t"),)),
    tools={"dice": "4"},
)


async def first_run() -> list[str]:
    """Play the flow; return how it ended and the modules imported meanwhile."""
    exchange = CASE.world().exchange()
    effects = TapeSession(exchange, "first").effects()
    before = set(sys.modules)
    events = [event async for event in FLOWS["chat"](CASE.request, effects)]
    late = set(sys.modules) - before
    await exchange.close()
    return [repr(events[-2]), *sorted(late)]


@pytest.mark.slow
def test_the_first_run_of_a_process_imports_nothing() -> None:
    """All the engine needs was imported with the stack, for a round of tools and an answer."""
    script = [sys.executable, "-m", "tests.graph_impl.test_first_run"]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, check=True, text=True)
    assert done.stdout.splitlines() == ["Success(content='t')"]


if __name__ == "__main__":
    sys.stdout.write("\n".join(asyncio.run(first_run())))
