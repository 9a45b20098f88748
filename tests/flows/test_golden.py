"""Golden tapes: each file's tape, played to both stacks, tells the client what is expected."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from cutover import Event, Exchange, Request, Stack
from cutover.errors import Failed, Refusal
from cutover.flow_spec import Framer
from cutover.tape import Fork, current_run, load
from harness.root import equal_shadow
from loadtests.simulator import Answer
from router.shadow import Played, play
from rules.flows import FLOWS
from tests.flows import golden
from tests.flows.golden import CASES
from tests.flows.golden_case import SETTINGS, Case
from tests.support.stage import STACKS, Stage, staged

pytestmark = pytest.mark.virtual

TAPES = golden.load()
RECORDINGS = Path(__file__).parents[3] / "shared" / "data" / "provider_streams.jsonl"
SUCCESS = {
    "chat": "SUCCESS",
    "companion": "done",
    "ops": "final",
    "pipeline": "message",
    "session": "done",
}
"""The event of each flow that tells the client of success."""
STORED_BEFORE_SUCCESS = {"conversations.add", "audit.write"}


@pytest.fixture(scope="module", autouse=True)
def _enough() -> None:
    assert len(TAPES) >= 80
    assert TAPES.keys() == CASES.keys(), "python -m tests.flows.golden records them anew"


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A world whose stores are empty: all that is asked is on the tape."""
    async with staged(**SETTINGS) as opened:
        yield opened


async def played(
    stage: Stage, case: Case, stack: str, fork: Fork | None = None
) -> tuple[Played, int]:
    """Play a case's tape to a stack; return the calls made before the event that reports success.

    The calls are all of them where no such event comes. A graph may be ahead of its events, so for
    it the number is the most that can be.
    """
    exchange = Exchange()
    load(exchange, TAPES[case.name].tape)
    exchange.finish_recording()
    request = stage.request(case.flow, dict(case.body), case.path, **case.options)
    made: list[int] = []
    framer = Framer(FLOWS[case.flow])

    def noting(stack: Stack) -> Stack:
        async def noted(request: Request[Any, Any]) -> AsyncIterator[Event]:
            async with aclosing(stack(request)) as events:  # type: ignore[type-var] # a generator
                async for event in events:
                    run = current_run()
                    if framer.frame(event).name == SUCCESS[case.flow] and run is not None:
                        made.append(len(run.plays))
                    yield event

        return noted

    candidate = stage.candidate(case.flow, stack, noting)
    found = await play(exchange, FLOWS[case.flow], request, candidate, fork=fork)
    return found, made[0] if made else len(found.run.plays)


def lines_of(found: Played) -> list[str]:
    """Return what a client is told of a played stream, with the endings that the router adds."""
    match found.outcome:
        case Refusal(status=status, code=code):
            return [f"refused {status} {code}"]
        case Failed(code=code) if not found.frames:
            return [f"not served {code}"]
        case _:
            return golden.lines_of(found.frames)


async def faults(stage: Stage, case: Case, stack: str) -> list[str]:
    """Play a case's tape to a stack; return what is not as it must be."""
    (found, before_success), wanted = await played(stage, case, stack), TAPES[case.name]
    plays, wrong = found.run.plays, list[str]()
    if (lines := lines_of(found)) != list(case.expected):
        wrong.append(f"told {lines}")
    if golden.digest(found.sent) != wanted.told:
        wrong.append("the stream differs from the recorded one")
    wrong += [f"asked otherwise: {p.call.name}" for p in plays if p.how != "tape"]
    late = {play.call.name for play in plays[before_success:]} & STORED_BEFORE_SUCCESS
    wrong += [f"after {SUCCESS[case.flow]}: {name}" for name in late]
    writes = [(play.call.name, play.call.key.hex()) for play in plays if play.call.writes]
    if writes != [(entry.name, entry.key) for entry in wanted.tape.entries if entry.writes]:
        wrong.append(f"wrote in another order: {[name for name, _ in writes]}")
    made = Counter(play.call.name for play in plays)
    due = Counter(entry.name for entry in wanted.tape.entries)
    if made != due:
        wrong.append(f"asked {made}, and {due} was due")
    return wrong


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("name", CASES)
async def test_both_stacks_tell_the_client_what_is_expected(
    stage: Stage, name: str, stack: str
) -> None:
    """The same events, the same joined text, and every call found exactly, and made."""
    assert await faults(stage, CASES[name], stack) == []
    assert stage.sim.requests == []


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # as outside of tests
@pytest.mark.skipif(not RECORDINGS.exists(), reason="the recordings are not here")
@pytest.mark.parametrize("number", range(36))
async def test_recorded_answers_of_providers_are_told_alike(stage: Stage, number: int) -> None:
    """36 real streams as the model's answers: each stack's tape, played to both, is equal."""
    recording = json.loads(RECORDINGS.read_text("utf-8").splitlines()[number])
    for stack in STACKS:
        stage.sim.script([Answer(raw=recording["sse"]), Answer(text="So.")])
        body = {"message_id": f"m-{stack}", "content": "Hello"}
        told = await stage.tell("chat", stage.request("chat", body), [stack])
        for other in STACKS:
            assert equal_shadow(told.exchange, await stage.play(told, other)), (stack, other)
        stage.sim.script([])
