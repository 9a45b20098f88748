"""The TypeScript client under Node.js, before a router: performed once, played to the other run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from contract.records import RunRecord
from cutover_client import Gateway, effect
from tests.support.assistants import needs_node
from tests.support.effects import Stack, ask, house, served

pytestmark = [pytest.mark.sockets, pytest.mark.slow, pytest.mark.untraced]

ROOT = Path(__file__).parents[2]
TSX = ROOT / "examples" / "node_service" / "node_modules" / "tsx" / "dist" / "loader.mjs"
SHOP = ROOT / "tests" / "support" / "shop_client.mts"


@dataclass
class Node:
    """A shop under Node.js: what its tasks returned or threw, and what they really did."""

    process: asyncio.subprocess.Process
    got: list[Any] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    async def do(self, task: str, url: str, headers: dict[str, str], **given: object) -> None:
        """Do a task for the exchange that headers name."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = {"task": task, "url": url, "headers": headers, **given}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        answer = json.loads(await self.process.stdout.readline())
        self.got.append(answer["got"])
        self.done += answer["done"]


@dataclass
class Service:
    """A stack that does a task with its shop; with `dies`, its process ends in the middle."""

    task: str
    fails: bool = False
    dies: bool = False
    given: dict[str, object] = field(default_factory=dict)
    node: Node = field(init=False)

    def stack(self) -> Stack:
        """Return it as a stack."""
        return Stack(self._work, self.fails or self.dies)

    async def _work(self, stack: Stack) -> None:
        assert stack.asked is not None
        await self.node.do(self.task, stack.gateway, dict(stack.asked.headers), **self.given)


@asynccontextmanager
async def shop(*arguments: str) -> AsyncIterator[Node]:
    """Start a shop."""
    needs_node("node_service")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "node", "--import", TSX, SHOP, *arguments, stdin=pipe, stdout=pipe
    )
    try:
        yield Node(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio leaves its pipes open


async def asked(folder: Path, legacy: Service, graph: Service, *, shadow: float = 100) -> RunRecord:
    """Serve one request with both services; returns the record with the tape."""
    async with (
        shop(*(["dies"] if legacy.dies else [])) as legacy.node,
        shop() as graph.node,
        house(folder, legacy.stack(), graph.stack(), shadow=shadow) as place,
    ):
        await ask(place)
        return await served(place)


@pytest.mark.parametrize(
    ("task", "got", "done"),
    [
        ("insert", 1, ["insert 2 tea by ann"]),
        ("find", [True, 7, 0], ["find 7"]),
        ("stream", [0, 1, 2], ["stream 0", "stream 1", "stream 2"]),
        ("first_of_stream", 0, ["stream 0"]),
        ("broken", [1, 2, {"error": "OutOfStock", "message": "tea"}], ["broken"]),
        ("too_much", {"error": "OutOfStock", "message": "tea"}, ["insert 9 tea by ann"]),
        ("read_outside", [0, 1, 2], ["stream 0", "stream 1", "stream 2"]),
        ("missing", "null", ["missing"]),
        ("slow", "done", ["slow"]),
    ],
)
async def test_a_shadow_gets_what_the_function_gave(
    tmp_path: Path, task: str, got: object, done: list[str]
) -> None:
    """Values, streams that are left early or break, errors of one kind, also after a long time."""
    legacy, graph = Service(task), Service(task)
    run = await asked(tmp_path, legacy, graph)
    assert legacy.node.got == graph.node.got == [got]
    assert (legacy.node.done, graph.node.done) == (done, [])
    assert [entry.end for entry in run.tape or ()] == ["complete"]


async def test_an_unforeseen_error_is_told_by_its_kind_alone(tmp_path: Path) -> None:
    """What it says stays where it was thrown."""
    legacy, graph = Service("fail"), Service("fail")
    run = await asked(tmp_path, legacy, graph)
    assert [legacy.node.got, graph.node.got] == [
        [{"error": "RangeError", "message": "RangeError"}],
        [{"error": "EffectFailed", "message": "RangeError"}],
    ]
    assert graph.node.done == []
    assert b"secret" not in b"".join(bytes(item) for item in (run.tape or ())[0].items)


@pytest.mark.parametrize(
    ("value", "here"),
    [("function", "undefined"), ("map", {}), ("nan", None), ("surrogate", "half of \ud83c")],
)
async def test_a_result_that_is_no_json_is_returned_where_it_happened(
    tmp_path: Path, value: str, here: object
) -> None:
    """Other runs fail there: it has happened, and nobody can say what came of it."""
    legacy, graph = (Service("give", given={"value": value}) for _ in range(2))
    run = await asked(tmp_path, legacy, graph)
    if value != "function":  # which JSON cannot show us
        assert legacy.node.got == [here]
    assert graph.node.got == [{"error": "EffectFailed", "message": "NotJson"}]
    assert graph.node.done == []
    assert [entry.end for entry in run.tape or ()] == ["complete"]


@pytest.mark.parametrize("value", ["bigint", "cycle", "function", "map", "nan", "surrogate"])
async def test_arguments_that_are_no_json_are_refused_before_anything_is_done(
    tmp_path: Path, value: str
) -> None:
    """Nothing of it is on the tape."""
    legacy, graph = (Service("take", given={"value": value}) for _ in range(2))
    run = await asked(tmp_path, legacy, graph)
    [error] = legacy.node.got
    assert error["error"] == "NotJson"
    assert legacy.node.done == []
    assert run.tape == ()


async def test_a_date_is_written_as_json_writes_it(tmp_path: Path) -> None:
    """An argument that has a form of its own in JSON is no error."""
    legacy, graph = (Service("take", given={"value": "date"}) for _ in range(2))
    run = await asked(tmp_path, legacy, graph)
    assert legacy.node.got == graph.node.got == ["object"]
    [entry] = run.tape or ()
    assert json.loads(bytes(entry.args))["arguments"] == "1970-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("task", "got", "done"),
    [
        ("pay", {"error": "EffectInDoubt", "message": "effect_in_doubt"}, []),
        ("pay_by_key", "paid 7", ["pay 7"]),
    ],
)
async def test_what_a_dead_process_began_is_done_again_by_its_key_alone(
    tmp_path: Path, task: str, got: object, done: list[str]
) -> None:
    """The successor is told that it is in doubt, or performs it with the same key."""
    legacy, graph = Service(task, dies=True), Service(task)
    run = await asked(tmp_path, legacy, graph, shadow=0)
    assert legacy.node.got == ["dead"]
    assert (graph.node.got, graph.node.done) == ([got], done)
    [doubted, *rest] = run.tape or ()
    assert doubted.fault is not None
    assert doubted.fault.code == "effect_in_doubt"
    assert len(rest) == len(done)


async def test_a_successor_in_python_gets_what_node_did(tmp_path: Path) -> None:
    """One call on the tape: named, and with arguments, alike."""
    ran: list[str] = []

    @effect("orders.insert")
    async def insert(item: str, count: int) -> int:
        ran.append(f"{count} {item}")
        return 0

    async def work(stack: Stack) -> None:
        assert stack.asked is not None
        gateway = Gateway(stack.gateway, stack.key)
        with gateway.exchange(dict(stack.asked.headers)):
            ran.append(str(await insert("tea", 2)))
        await gateway.aclose()

    legacy = Service("insert", fails=True)
    async with shop() as legacy.node, house(tmp_path, legacy.stack(), Stack(work)) as place:
        await ask(place)
    assert (legacy.node.got, ran) == ([1], ["1"])


async def test_an_exchange_that_is_over_performs_nothing(tmp_path: Path) -> None:
    """A run that asks late is refused: another one may have done it. Outside it is the function."""
    legacy, graph = Service("insert"), Service("insert")
    async with (
        shop() as legacy.node,
        house(tmp_path, legacy.stack(), graph.stack()) as place,
    ):
        await ask(place)
        exchange = (await served(place)).exchange
        headers = {"x-cutover-exchange": exchange, "x-cutover-role": "serving"}
        for task in ("insert", "stream"):
            await legacy.node.do(task, place.gateway, headers)
        await legacy.node.do("insert", place.gateway, {})
    over = {"error": "ExchangeOver", "message": "unknown_exchange"}
    assert legacy.node.got == [1, over, [over], 1]
    assert legacy.node.done == ["insert 2 tea by ann"] * 2


async def test_a_gateway_that_is_not_there_performs_nothing() -> None:
    """Its answer would go through the router, and nobody would read it."""
    async with shop() as node:
        await node.do("insert", "http://127.0.0.1:9", {"x-cutover-exchange": "e"})
    assert node.got == [{"error": "GatewayError", "message": "gateway_unreachable"}]
    assert node.done == []
