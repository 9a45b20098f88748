"""Serves requests of any flow by any stack, and a simulated provider with a loop of its own."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from cutover import Exchange, FlowSpec, Request, Stack
from cutover.errors import Outcome
from cutover.flow import Frame
from cutover.records import TapeRecord, decode, encode
from cutover.tape import load, tape_record
from loadtests.simulator import Simulator
from router.driver import Candidate
from router.exchange import Served, finish
from router.serve import NotServed, serve
from router.shadow import Played, play
from router.takeover import Sent
from tests.support.stage import read


@dataclass(slots=True)
class Heard:
    """What a client heard: the events as it reads them, and how the exchange ended."""

    served: Served
    events: list[Any] = field(default_factory=list)
    error: Exception | None = None
    stored: Sent | None = None
    """What the client had when the exchange paused: all but the event that ends its stream."""

    @property
    def outcome(self) -> Outcome:
        """How the exchange ended."""
        return self.served.outcome

    @property
    def text(self) -> str:
        """What was said."""
        return "".join(one["text"] for one in self.events if one["type"] == "said")

    async def shadow(self, stack: Stack) -> Played:
        """Play the exchange's tape to a stack."""
        served = self.served
        return await play(served.tape, served.flow, served.request, Candidate("shadow", stack))


async def ask(
    flow: FlowSpec, body: Any, *stacks: Stack, resumes: Heard | None = None, each: float = 0.0
) -> Heard:
    """Serve a request by the first of several stacks, the others its fallbacks, to its end.

    With `resumes`, from the stored tape of an exchange that paused; `each` are the seconds that the
    client takes for a frame.
    """
    request: Request[Any, Any] = Request(body, flow.options(), flow.path)
    heard = Heard(Served("exchange", flow, request, Exchange(), "stack 0"))
    if resumes is not None:
        stored = encode(tape_record(resumes.served.tape))
        load(heard.served.tape, decode(stored, TapeRecord))
        heard.served.tape.answered = False
        assert resumes.stored is not None
        heard.served.sent = deepcopy(resumes.stored)

    async def store(served: Served, _: str, questions: Sequence[Frame]) -> None:
        heard.stored = deepcopy(served.sent)
        for question in questions:
            heard.stored.add(question)

    candidates = [Candidate(f"stack {place}", stack) for place, stack in enumerate(stacks)]
    frames = serve(heard.served, candidates, store)
    try:
        async for frame in frames:
            if (event := read(frame)) is not None:
                heard.events.append(event[1])
            if each:
                await asyncio.sleep(each)
    except Exception as error:  # noqa: BLE001 - what the client would be told
        heard.error = error.failed if isinstance(error, NotServed) else error  # type: ignore[assignment]  # a value
    finally:
        await frames.aclose()
        await finish(heard.served)
    return heard


@contextmanager
def provider() -> Iterator[Simulator]:
    """Run a simulated provider in a thread: it answers code that blocks the test's own loop."""
    loop, sim = asyncio.new_event_loop(), Simulator()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(sim.__aenter__(), loop).result()
        yield sim
        asyncio.run_coroutine_threadsafe(sim.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
