"""The end of a stream: a client that has read it may send its next request at once."""

from __future__ import annotations

import asyncio

import pytest

from contract.errors import Fault
from contract.flows.chat import ChatOptions, End
from effects.model import Fail
from router.serving.stream import GRACE_SECONDS, PIECE_BYTES
from router.stack import StackName
from tests.support.asgi_client import AsgiClient
from tests.support.faulty_stacks import after, dawdle, hang, instead
from tests.support.flow_runs import Case
from tests.support.router_world import House, Rules
from tests.support.tool_replies import ASSIGNED, CASE, FLOWS, house, pieces, undisturbed

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_the_lock_is_free_when_the_last_frame_goes_out(assigned: StackName) -> None:
    """A stack that takes a moment to end, as engines do, locks no request out."""
    frames = len(await undisturbed(assigned))
    async with house(assigned, after(FLOWS[assigned], frames, dawdle(GRACE_SECONDS / 2))) as made:
        client = AsgiClient(made)
        await client.ask()
        assert (client.status, client.held) == (200, False)


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_the_lock_is_free_when_a_failure_is_told(assigned: StackName) -> None:
    """Who is told that the model failed asks again first of all."""
    case = Case(CASE.body, CASE.options, ((Fail(Fault("model_unavailable")),),))
    async with House(case, Rules(assigned=assigned)) as made:
        client = AsgiClient(made)
        await client.ask()
        assert (client.status, client.held) == (200, False)


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_the_lock_is_free_when_a_problem_is_told(assigned: StackName) -> None:
    """A refusal or a failure before the first frame is an end, too."""
    async with house(assigned, FLOWS[assigned]) as made:
        client = AsgiClient(made, message_id="unread", content=None)
        await client.ask()
        assert (client.status, client.held) == (404, False)
    async with house(assigned, instead(FLOWS[assigned], 0, End()), stand_in=False) as made:
        client = AsgiClient(made)
        await client.ask()
        assert (client.status, client.held) == (500, False)


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_stack_that_does_not_end_holds_the_last_frame_up_for_a_moment_only(
    assigned: StackName,
) -> None:
    """Its lock is its own trouble; the reader has waited long enough."""
    frames = len(await undisturbed(assigned))
    async with house(assigned, after(FLOWS[assigned], frames, hang)) as made:
        began = asyncio.get_running_loop().time()
        client = AsgiClient(made)
        await client.ask()
        whole = client.ended - began
        assert client.held
    async with house(assigned, FLOWS[assigned]) as made:
        began = asyncio.get_running_loop().time()
        client = AsgiClient(made)
        await client.ask()
        assert whole == pytest.approx(client.ended - began + GRACE_SECONDS)


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_what_waits_for_a_slow_reader_is_not_handed_over_in_one_piece(
    assigned: StackName,
) -> None:
    """The connection would hold a copy of everything while the reader takes none of it."""
    answers = (pieces(*["x" * 20_000] * 10),)
    case = Case(CASE.body, ChatOptions(yield_interval=0.0), answers)
    async with House(case, Rules(assigned=assigned)) as made:
        whole = b"".join((await made.ask()).wire)
    async with House(case, Rules(assigned=assigned)) as made:
        client = AsgiClient(made, pause=50.0)
        await client.ask()
        assert b"".join(client.parts) == whole
        assert all(len(part) <= PIECE_BYTES or part.count(b"\n\n") == 1 for part in client.parts)
