"""The end of a stream: a client that has read it may send its next request at once."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from starlette.types import Message

from contract.errors import Fault
from contract.flows.chat import CHAT, ChatOptions, End
from effects.model import Fail
from router.http.endpoints import FlowEndpoint
from router.serving.stream import GRACE_SECONDS, PIECE_BYTES
from router.stack import StackName
from rules.chat import lock_key
from tests.support.faulty_stacks import after, dawdle, hang, instead
from tests.support.flow_runs import Case
from tests.support.router_world import House, Rules, memory
from tests.support.tool_replies import ASSIGNED, CASE, FLOWS, house, pieces, undisturbed

pytestmark = pytest.mark.virtual


class Client:
    """An ASGI server with one request; notes when the end went out, and who held the lock then.

    `pause` is how many seconds its connection takes for each piece of the body.
    """

    def __init__(self, made: House, pause: float = 0.0, **body: object) -> None:
        self.made = made
        self.pause = pause
        self.body: dict[str, Any] = msgspec.to_builtins(CASE.body) | body
        self.status = 0
        self.held = False
        self.ended = 0.0
        self.parts: list[bytes] = []
        self._read = False

    async def ask(self) -> None:
        """Send the request and take the answer."""
        scope: dict[str, Any] = {"type": "http", "headers": [], "query_string": b""}
        await FlowEndpoint(self.made.router, memory(self.made), CHAT)(
            scope, self._receive, self._send
        )

    async def _receive(self) -> dict[str, Any]:
        if self._read:
            await asyncio.get_running_loop().create_future()
        self._read = True
        content = {name: value for name, value in self.body.items() if value is not None}
        return {"type": "http.request", "body": msgspec.json.encode(content)}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        self.parts.append(message["body"])
        await asyncio.sleep(self.pause)
        if not message.get("more_body"):
            key = lock_key(self.body["message_id"])
            self.ended = asyncio.get_running_loop().time()
            self.held = not await self.made.world.locks.acquire("test", key, 1.0)


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_the_lock_is_free_when_the_last_frame_goes_out(assigned: StackName) -> None:
    """A stack that takes a moment to end, as engines do, locks no request out."""
    frames = len(await undisturbed(assigned))
    async with house(assigned, after(FLOWS[assigned], frames, dawdle(GRACE_SECONDS / 2))) as made:
        client = Client(made)
        await client.ask()
        assert (client.status, client.held) == (200, False)


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_the_lock_is_free_when_a_failure_is_told(assigned: StackName) -> None:
    """Who is told that the model failed asks again first of all."""
    case = Case(CASE.body, CASE.options, ((Fail(Fault("model_unavailable")),),))
    async with House(case, Rules(assigned=assigned)) as made:
        client = Client(made)
        await client.ask()
        assert (client.status, client.held) == (200, False)


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_the_lock_is_free_when_a_problem_is_told(assigned: StackName) -> None:
    """A refusal or a failure before the first frame is an end, too."""
    async with house(assigned, FLOWS[assigned]) as made:
        client = Client(made, message_id="unread", content=None)
        await client.ask()
        assert (client.status, client.held) == (404, False)
    async with house(assigned, instead(FLOWS[assigned], 0, End()), stand_in=False) as made:
        client = Client(made)
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
        client = Client(made)
        await client.ask()
        whole = client.ended - began
        assert client.held
    async with house(assigned, FLOWS[assigned]) as made:
        began = asyncio.get_running_loop().time()
        client = Client(made)
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
        client = Client(made, pause=50.0)
        await client.ask()
        assert b"".join(client.parts) == whole
        assert all(len(part) <= PIECE_BYTES or part.count(b"\n\n") == 1 for part in client.parts)
