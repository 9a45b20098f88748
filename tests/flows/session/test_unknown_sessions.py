"""Unknown sessions: begun under the id of the request, or refused; alike on both stacks."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from contract.flows.session import SESSION, SessionOptions, SessionRequest
from contract.model import Chunk
from contract.records import RequestRecord
from effects.tape import Tape
from router.serving.stack import LocalStack
from tests.support.flow_runs import DIRECTIONS, FOREVER, STACKS, begin, replay, same_on_both
from tests.support.session_turns import House, Saying

pytestmark = pytest.mark.virtual

HEARD = (Chunk(text="heard"), Chunk(finish="stop"))
BODY = SessionRequest(message="hello", session_id="mine")


def saying(options: SessionOptions, house: House) -> Saying:
    """Take a turn in a session."""
    return Saying(body=BODY, options=options, house=house, answers=(HEARD,))


@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
async def test_an_unknown_session_begins_under_its_id(first: str, second: str) -> None:
    """It is announced in its first turn, and goes on in the next."""
    house = House()
    turns = [await same_on_both(saying(SessionOptions(), house), first, second) for _ in range(2)]
    created = {"type": "session_created", "data": {"session_id": "mine"}}
    assert [created in turn.events for turn in turns] == [True, False]
    assert [turn.ended[0] for turn in turns] == ["completed", "completed"]
    assert len(await house.conversations.history("", "mine", before="", limit=9)) == 4


@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
async def test_an_unknown_session_is_refused_where_the_flow_is_to(first: str, second: str) -> None:
    """Before any frame; nothing is stored."""
    house = House()
    turn = saying(SessionOptions(unknown_session="refuse"), house)
    played = await same_on_both(turn, first, second)
    assert played.ended[:2] == ("refused", "unknown_session")
    assert played.frames == []
    assert not await house.conversations.history("", "mine", before="", limit=9)


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
async def test_of_two_first_turns_at_once_one_is_answered(stack: LocalStack) -> None:
    """The other one is refused while the session is busy, and announces nothing."""
    turn = saying(SessionOptions(), House())
    world = turn.world()
    live = [world.live(), world.live()]
    exchanges = [world.exchange(Tape(), live=one) for one in live]
    runs = [begin(stack, turn, exchange) for exchange in exchanges]
    for run, exchange in zip(runs, exchanges, strict=True):
        assert await run.wait_stopped(FOREVER)
        await exchange.close()
    ended = sorted((run.outcome.kind, len(run.frames)) for run in runs if run.outcome)
    assert ended == [("completed", 4), ("refused", 0)]
    (refused,) = (run.outcome for run in runs if not run.frames)
    assert refused is not None
    assert refused.error is not None
    assert refused.error.code == "session_busy"
    assert len(await turn.house.conversations.history("", "mine", before="", limit=9)) == 2


@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
async def test_a_refusal_captured_by_an_earlier_version_is_one_on_replay(
    first: str, second: str
) -> None:
    """Its record does not state the option, whose default was to refuse."""
    turn = saying(SessionOptions(unknown_session="refuse"), House())
    served = await same_on_both(turn, first, second)
    record = RequestRecord(msgspec.Raw(msgspec.json.encode(BODY)), msgspec.Raw(b"{}"))
    earlier = replace(turn, options=SESSION.request_of(record).options)
    for name in (first, second):
        played = await replay(STACKS[name], earlier, served.tape)
        assert (played.ended, played.calls) == (served.ended, served.calls)
