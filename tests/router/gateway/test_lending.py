"""The effect protocol, call by call: what is answered, and what becomes of calls lent out."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from cutover import EffectFailed, Exchange, Run, effect
from cutover.errors import Completed, Failed, Left
from cutover.tape import current_run
from cutover.tape.run import Policy
from router.gateway.effects import Effects
from router.gateway.runs import OpenRuns

pytestmark = pytest.mark.virtual

TEA = {"name": "orders.create", "arguments": {"item": "tea"}, "writes": True, "seconds": 5}
COUNT = {"name": "orders.count", "arguments": {}, "seconds": 5}


@effect("orders.create", writes=True)
async def create(item: str) -> str:
    """Order something in this process: no test gets as far."""
    raise AssertionError(item)


class Desk:
    """An exchange, its runs, and what services ask of them."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange, self.runs = exchange, OpenRuns()
        self.effects = Effects(self.runs)

    def run(self, stack: str, policy: Policy = "live") -> tuple[Run, str]:
        """Return a run, and the id that services know it by."""
        run = Run(self.exchange, stack, policy=policy)
        return run, self.runs.open(run)

    async def ask(self, name: str, question: dict[str, Any], number: str = "") -> tuple[int, Any]:
        """Post a question, or a report; return status and body."""
        status, body = await self.effects.answer(name, number, msgspec.json.encode(question))
        return status, msgspec.json.decode(body)

    async def lend(self, name: str, question: dict[str, Any]) -> str:
        """Ask for a call that is due; return its number."""
        status, answer = await self.ask(name, question)
        assert status == 200
        return str(answer["perform"])


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    """An exchange that closes."""
    async with Exchange() as exchange:
        yield Desk(exchange)


async def test_a_call_is_lent_reported_and_found(desk: Desk) -> None:
    """Arguments in any order are the same call, the next occurrence is due again."""
    _, name = desk.run("legacy")
    question = {"name": "pay", "arguments": {"to": "x", "sum": 1.0}, "writes": True}
    assert await desk.ask(name, question) == (200, {"perform": 0})
    assert await desk.ask(name, {"items": [{"id": 7}]}, "0") == (200, {})
    assert await desk.ask(name, question) == (200, {"perform": 1})
    assert await desk.ask(name, {"fault": {"kind": "Poor"}}, "1") == (200, {})
    turned = {**question, "arguments": {"sum": 1.0, "to": "x"}}
    fault = {"kind": "Poor", "message": "", "args": []}
    for stack, policy in (("graph", "live"), ("shadow", "play")):
        _, other = desk.run(stack, policy)  # type: ignore[arg-type]
        assert await desk.ask(other, turned) == (200, {"items": [{"id": 7}]})
        assert await desk.ask(other, turned) == (200, {"items": [], "fault": fault})


async def test_stacks_of_this_process_read_what_a_service_did(desk: Desk) -> None:
    """The decorator and the protocol name a call alike."""
    _, name = desk.run("legacy")
    number = await desk.lend(name, TEA)
    await desk.ask(name, {"items": ["Order 17"]}, number)
    graph, _ = desk.run("graph")
    with graph.current():
        assert await create("tea") == "Order 17"


async def test_another_run_waits_for_a_call_that_is_under_way(desk: Desk) -> None:
    """It gets what the first service reports, and is not stalled meanwhile; nor is the first."""
    first, name = desk.run("legacy")
    number = await desk.lend(name, TEA)
    second, other = desk.run("graph")
    waiting = asyncio.create_task(desk.ask(other, TEA))
    await asyncio.sleep(4)
    assert (first.waiting, second.waiting) == (1, 1)
    await desk.ask(name, {"items": ["Order 17"]}, number)
    assert await waiting == (200, {"items": ["Order 17"]})
    assert (first.waiting, second.waiting) == (0, 0)


async def test_a_write_without_a_report_is_in_doubt_and_not_made_again(desk: Desk) -> None:
    """The service was killed: its successor is told so when the call's time is up."""
    legacy, name = desk.run("legacy")
    number = await desk.lend(name, TEA)
    legacy.fence()
    _, other = desk.run("graph")
    status, answer = await desk.ask(other, TEA)
    assert (status, answer["items"], answer["fault"]["kind"]) == (200, [], "OutcomeUnknown")
    assert desk.exchange.stamp() == 7_000_000
    assert await desk.ask(name, {"items": ["Order 17"]}, number) == (409, {})
    graph, _ = desk.run("third")
    with graph.current(), pytest.raises(EffectFailed, match="OutcomeUnknown"):
        await create("tea")


async def test_a_report_counts_though_its_run_is_fenced(desk: Desk) -> None:
    """What was done was done: the successor finds it."""
    legacy, name = desk.run("legacy")
    number = await desk.lend(name, TEA)
    legacy.fence()
    assert await desk.ask(name, {"items": ["Order 17"]}, number) == (200, {})
    _, other = desk.run("graph")
    assert await desk.ask(other, TEA) == (200, {"items": ["Order 17"]})


async def test_a_read_of_a_fenced_run_is_made_anew(desk: Desk) -> None:
    """The service that performs it may be gone: its successor waits for nothing."""
    legacy, name = desk.run("legacy")
    number = await desk.lend(name, COUNT)
    legacy.fence()
    _, other = desk.run("graph")
    await asyncio.sleep(0)
    assert await desk.ask(other, COUNT) == (200, {"perform": 0})
    assert await desk.ask(name, {"items": [1]}, number) == (409, {})
    assert await desk.ask(other, {"items": [2]}, "0") == (200, {})
    assert [one.items[0][1] for one in desk.exchange.entries] == [b"2"]


async def test_a_read_without_a_report_fails_when_its_time_is_up(desk: Desk) -> None:
    """As one that this process performs."""
    _, name = desk.run("legacy")
    await desk.lend(name, COUNT)
    _, other = desk.run("graph")
    _, answer = await desk.ask(other, COUNT)
    assert answer["fault"]["kind"] == "TimeoutError"


async def test_code_that_blocks_is_not_answered_later(desk: Desk) -> None:
    """Its event loop may be the one that performs the call."""
    _, name = desk.run("legacy")
    await desk.lend(name, COUNT)
    _, other = desk.run("graph")
    _, answer = await desk.ask(other, {**COUNT, "wait": False})
    assert answer["fault"]["kind"] == "Blocking"


async def test_a_run_that_plays_performs_nothing(desk: Desk) -> None:
    """A miss is recorded on the run, whatever the service makes of the refusal."""
    desk.exchange.finish_recording()
    run, name = desk.run("shadow", "play")
    refused = {"refused": "tape_miss", "subject": "orders.create"}
    assert await desk.ask(name, TEA) == (409, refused)
    assert isinstance(run.ended, Failed)
    assert run.ended.code == "tape_miss"
    assert await desk.ask(name, COUNT) == (409, {"refused": "fenced", "subject": "shadow"})


async def test_a_pause_reaches_the_service() -> None:
    """A question of this process, which is not answered."""
    async with Exchange() as exchange:
        desk = Desk(exchange)
        exchange.question = "sure?"
        exchange.finish_recording()
        _, name = desk.run("shadow", "play")
        answer = await desk.ask(name, {"name": "human.answer", "arguments": {}})
        assert answer == (409, {"refused": "paused", "subject": "sure?"})


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize("how", ["completed", "left", "fenced", "played"])
async def test_calls_behind_the_end_are_off_the_tape_or_refused(
    desk: Desk, how: str, forgotten: bool
) -> None:
    """A live run goes on to learn from what was said; one that was fenced or played does not."""
    run, name = desk.run("legacy", "play" if how == "played" else "live")
    run.end(Left() if how == "left" else Completed())
    if how == "fenced":
        run.fence()
    if forgotten:
        del run
        gc.collect()
        assert desk.runs.find(name) is None
    status, answer = await desk.ask(name, TEA)
    if how in {"completed", "left"}:
        assert (status, answer) == (200, {"outside": True})
        assert desk.exchange.off_tape["orders.create"] == (0 if forgotten else 1)
    else:
        assert (status, answer["refused"]) == (409, "fenced")
    assert desk.exchange.entries == []


async def test_an_id_that_nobody_gave_is_refused(desk: Desk) -> None:
    """Nothing is performed under it."""
    assert await desk.ask("0" * 32, TEA) == (409, {"refused": "fenced", "subject": "an id"})


@pytest.mark.parametrize(
    ("number", "body", "status"),
    [
        ("", b"", 422),
        ("", b"[]", 422),
        ("", b'{"name":"x"}', 422),
        ("", b'{"name":"x","arguments":[1]}', 422),
        ("", b'{"name":"x","arguments":{"a":' + b"[" * 100_000, 422),
        ("9" * 5_000, b"{}", 422),
        ("", b'{"name":"","arguments":{}}', 422),
        ("", b'{"name":"x","arguments":{},"seconds":601}', 422),
        ("", b'{"name":"x","arguments":{},"seconds":0}', 422),
        ("", b'{"name":"x","key":"zz","canonical":"{}"}', 422),
        ("0", b'{"items":[', 422),
        ("0", b'{"items":[nope]}', 422),
        ("1", b"{}", 404),
        ("-1", b"{}", 404),
        ("\u00b2", b"{}", 404),
        ("0/1", b"{}", 404),
    ],
)
async def test_what_is_malformed_changes_nothing(
    desk: Desk, number: str, body: bytes, status: int
) -> None:
    """The call that is lent stays lent."""
    _, name = desk.run("legacy")
    assert await desk.lend(name, TEA) == "0"
    assert (await desk.effects.answer(name, number, body)).status == status
    assert [one.end for one in desk.exchange.entries] == ["open"]
    assert (await desk.ask(name, {"items": [1]}, "0"))[0] == 200


async def test_bytes_are_sent_in_base64(desk: Desk) -> None:
    """An HTTP request that a service sent itself: its items are no JSON."""
    _, name = desk.run("legacy")
    asked = {**COUNT, "name": "http POST /orders", "raw": True}
    number = await desk.lend(name, asked)
    assert (await desk.ask(name, {"items": ["/w==", "!"]}, number))[0] == 422
    assert (await desk.ask(name, {"items": ["/w=="]}, number))[0] == 200
    assert desk.exchange.entries[0].items[0][1] == b"\xff"
    _, other = desk.run("graph")
    assert await desk.ask(other, asked) == (200, {"items": ["/w=="]})


async def test_a_result_that_is_no_json_marks_the_tape(desk: Desk) -> None:
    """The service has it, and no other run ever will."""
    _, name = desk.run("legacy")
    number = await desk.lend(name, COUNT)
    await desk.ask(name, {"incomplete": "object is no JSON"}, number)
    assert desk.exchange.incomplete == {"orders.count": "object is no JSON"}
    _, other = desk.run("graph")
    assert await desk.ask(other, COUNT) == (200, {"items": []})


async def test_a_service_that_leaves_waits_no_longer(desk: Desk) -> None:
    """Its answer is cancelled, and the call goes on."""
    _, name = desk.run("legacy")
    number = await desk.lend(name, TEA)
    run, other = desk.run("graph")
    waiting = asyncio.create_task(desk.ask(other, TEA))
    await asyncio.sleep(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert run.waiting == 0
    assert (await desk.ask(name, {"items": [1]}, number))[0] == 200
    assert current_run() is None
