"""Effects that stacks perform themselves: performed once, reported, and played to the other run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compare.comparison import Comparer
from compare.input.pairing import Pair, pair_of
from contract.errors import CutoverError
from contract.flows.chat import CHAT
from tests.support.deployment import Setup, deployed
from tests.support.effects import INSERT, KEY, Reply, Stack, ask, house, served

pytestmark = pytest.mark.sockets


async def once(stack: Stack) -> None:
    """Insert an order."""
    await stack.run()


async def nothing(_: Stack) -> None:
    """Do nothing."""


def asked_otherwise(pair: Pair) -> list[str]:
    """Name what the calls of a pair differ in."""
    return [found.path for found in Comparer(CHAT).compare(pair) if found.layer == "effects"]


async def test_a_shadow_performs_nothing_and_gets_what_came_of_it(tmp_path: Path) -> None:
    """The effect is done once, on the tape of the serving run, and played to the shadow."""
    legacy, graph = Stack(once), Stack(once)
    async with house(tmp_path, legacy, graph, shadow=100) as place:
        await ask(place)
        pair = pair_of(tuple(await place.lines()))
    assert (legacy.performed, graph.performed) == (["orders.insert"], [])
    assert graph.replies == [(200, {"do": "play", "items": [], "result": {"id": 7}, "error": None})]
    assert isinstance(pair, Pair)
    [entry] = pair.control.tape or ()
    assert (entry.port, entry.op, entry.site, entry.end) == (
        "external",
        "run",
        "orders.insert",
        "complete",
    )
    assert [play.how for play in pair.candidate.plays] == ["exact"]
    assert asked_otherwise(pair) == []


async def test_a_trace_is_enough_to_know_whose_effect_it_is(tmp_path: Path) -> None:
    """Of services that are traced, and pass no header of the router on."""
    legacy, graph = Stack(once, traced=True), Stack(once, traced=True)
    async with house(tmp_path, legacy, graph, shadow=100) as place:
        await ask(place)
        pair = pair_of(tuple(await place.lines()))
    assert (legacy.performed, graph.performed) == (["orders.insert"], [])
    assert isinstance(pair, Pair)
    assert [play.how for play in pair.candidate.plays] == ["exact"]


async def test_a_shadow_with_other_arguments_is_a_finding_and_performs_nothing(
    tmp_path: Path,
) -> None:
    """It gets the nearest result; the report names the effect and the argument."""

    async def otherwise(stack: Stack) -> None:
        await stack.run(arguments={"item": "tea", "count": 3})

    legacy, graph = Stack(once), Stack(otherwise)
    async with house(tmp_path, legacy, graph, shadow=100) as place:
        await ask(place)
        pair = pair_of(tuple(await place.lines()))
    assert graph.performed == []
    assert isinstance(pair, Pair)
    assert asked_otherwise(pair) == ["external.run@orders.insert[0].arguments.count"]


async def test_who_stands_in_does_not_perform_it_again(tmp_path: Path) -> None:
    """The stack that failed had inserted the order: the other one gets its id."""
    legacy, graph = Stack(once, fails=True), Stack(once)
    async with house(tmp_path, legacy, graph) as place:
        await ask(place)
        run = await served(place)
    assert (legacy.performed, graph.performed) == (["orders.insert"], [])
    assert graph.replies[0][1]["result"] == {"id": 7}
    assert (run.served, len(run.tape or ())) == ("graph", 1)


async def test_an_effect_that_fails_fails_for_both(tmp_path: Path) -> None:
    """By the name and the words it was reported with."""

    async def refused(stack: Stack) -> None:
        await stack.run({"error": {"type": "OutOfStock", "message": "no tea"}})

    legacy, graph = Stack(refused), Stack(refused)
    async with house(tmp_path, legacy, graph, shadow=100) as place:
        await ask(place)
    [(_, played)] = graph.replies
    assert played["error"] == {"type": "OutOfStock", "message": "no tea"}
    assert graph.performed == []


async def test_what_an_effect_streams_is_played_in_order(tmp_path: Path) -> None:
    """Reports without a result go on; the last one ends it."""

    async def streamed(stack: Stack) -> None:
        status, told = await stack.begin()
        if told["do"] == "perform":
            path = f"/effects/{told['lease']}"
            assert (await stack.post(path, {"items": ["a"]}))[0] == 204
            assert (await stack.post(path, {"items": ["b", "c"], "result": None}))[0] == 204
        assert status == 200

    legacy, graph = Stack(streamed), Stack(streamed)
    async with house(tmp_path, legacy, graph, shadow=100) as place:
        await ask(place)
    [(_, played)] = graph.replies
    assert (played["items"], played["result"]) == (["a", "b", "c"], None)


async def test_an_effect_nobody_reported_is_in_doubt_and_not_performed_again(
    tmp_path: Path,
) -> None:
    """The one who stands in is told so, the record names it, and no stack does it."""

    async def when_over(stack: Stack) -> None:
        _, told = await stack.begin(seconds=0.05)
        if told.get("do") == "perform":
            path = f"/effects/{told['lease']}"
            legacy.replies.append(await _late(stack, path))

    async def _late(stack: Stack, path: str) -> Reply:
        """Report once it is in doubt, which the tape says."""
        router = place.services.router
        assert stack.asked is not None
        exchange = stack.asked.header("x-cutover-exchange")[0]
        [run] = router.runs(exchange) or ()
        entry = run.session.plays[0].entry
        assert entry is not None
        while entry.end == "open":
            await entry.changed.wait()
        return await stack.post(path, {"result": {"id": 8}})

    legacy, graph = Stack(when_over, fails=True), Stack(once)
    async with house(tmp_path, legacy, graph) as place:
        await ask(place)
        run = await served(place)
    assert _code(legacy.replies[-1]) == (410, "lease_over")
    assert graph.performed == []
    assert _code(graph.replies[0]) == (409, "effect_in_doubt")
    [entry] = run.tape or ()
    assert entry.fault is not None
    assert (entry.end, entry.fault.code) == ("error", "effect_in_doubt")


async def test_an_effect_in_doubt_with_a_key_is_performed_once_more(tmp_path: Path) -> None:
    """Whoever carries it out recognises the key."""

    async def lost(stack: Stack) -> None:
        await stack.begin(seconds=0.02, key="order-1")

    async def again(stack: Stack) -> None:
        await stack.run(key="order-1")

    legacy, graph = Stack(lost, fails=True), Stack(again)
    async with house(tmp_path, legacy, graph) as place:
        await ask(place)
        run = await served(place)
    assert graph.performed == ["orders.insert"]
    assert [entry.end for entry in run.tape or ()] == ["error", "complete"]


async def test_reports_that_are_refused(tmp_path: Path) -> None:
    """Each with a code of its own, and what was reported first stays."""

    async def careless(stack: Stack) -> None:
        _, told = await stack.begin()
        path = f"/effects/{told['lease']}"
        stack.replies += [
            await stack.post(path, b"{"),
            await stack.post(path, {"outcome": 1}),
            await stack.post(path, {"result": [1], "error": {"type": "E", "message": ""}}),
            await stack.post(path, {"result": 1}),
            await stack.post(path, {"result": 2}),
            await stack.post("/effects/nobody", {"result": 2}),
        ]

    legacy = Stack(careless)
    async with house(tmp_path, legacy, Stack(nothing)) as place:
        await ask(place)
        run = await served(place)
    assert [_code(reply) for reply in legacy.replies[1:]] == [
        (400, "invalid_request"),
        (400, "invalid_request"),
        (400, "invalid_request"),
        (204, None),
        (409, "effect_reported"),
        (404, "unknown_lease"),
    ]
    [entry] = run.tape or ()
    assert json.loads(bytes(entry.items[-1]))["result"] == {"value": 1}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_request"),
        (b"[]", "invalid_request"),
        ({}, "invalid_request"),
        ({"effect": ""}, "invalid_request"),
        ({"effect": 3}, "invalid_request"),
        ({"effect": "a", "seconds": 0}, "invalid_request"),
        ({"effect": "a", "more": 1}, "invalid_request"),
        (b'{"effect": "a", "arguments": ' + b"[" * 5_000, "invalid_request"),
        (b'{"effect": "\xff"}', "invalid_request"),
    ],
)
async def test_requests_that_are_refused(tmp_path: Path, body: object, code: str) -> None:
    """Nothing of them is on the tape."""

    async def careless(stack: Stack) -> None:
        stack.replies.append(await stack.post("/effects", body))

    legacy = Stack(careless)
    async with house(tmp_path, legacy, Stack(nothing)) as place:
        await ask(place)
        run = await served(place)
    assert [_code(reply) for reply in legacy.replies] == [(400, code)]
    assert run.tape == ()


async def test_who_may_begin_an_effect(tmp_path: Path) -> None:
    """Who shows the key, for an exchange that is open: its id alone opens nothing."""

    async def careless(stack: Stack) -> None:
        stack.key = "wrong"
        stack.replies.append(await stack.begin())
        stack.key = KEY
        stack.replies.append(await stack.post("/effects", INSERT, named=True))

    legacy = Stack(careless)
    async with house(tmp_path, legacy, Stack(nothing)) as place:
        await ask(place)
        late = [await legacy.begin(), await legacy.post("/effects", INSERT, named=True)]
    assert _code(legacy.replies[0]) == (401, "invalid_api_key")
    assert legacy.replies[2][1]["do"] == "perform"
    assert [_code(reply) for reply in late] == [(404, "unknown_exchange")] * 2


async def test_effects_need_a_key_and_are_off_unless_asked_for(tmp_path: Path) -> None:
    """A configuration without a key is refused, and says where."""
    with pytest.raises(CutoverError, match=r"gateway\.effects"):
        async with deployed(tmp_path, Setup(more="[gateway]\nenabled = true\neffects = true")):
            pass
    async with (
        deployed(tmp_path) as place,
        place.session.post(f"{place.url}/effects", json=INSERT) as response,
    ):
        assert response.status == 404


def _code(reply: Reply) -> tuple[int, str | None]:
    status, body = reply
    return status, body["error"]["code"] if body and "error" in body else None
