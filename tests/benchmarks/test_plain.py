"""The plain baseline does the same job: the same bytes, and the refusals a team would write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import pytest

from benchmarks.capacity import same_bytes
from benchmarks.harness import (
    PATH,
    PROBES,
    BenchServer,
    Shares,
    ask,
    bodies,
    children,
    client,
    other_load,
    plain_server,
    router_server,
    serving,
)
from loadtests.processes import ServerDidNotStart
from loadtests.simulator import Profile, spawn

pytestmark = [pytest.mark.slow, pytest.mark.sockets]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BenchServer, BenchServer]]:
    """Give the baseline and a router, both on one simulated provider."""
    folder = tmp_path_factory.mktemp("bench")
    with ExitStack() as stack:
        provider = stack.enter_context(spawn(Profile(tokens=16, split=True)))
        yield (
            stack.enter_context(plain_server(folder, provider)),
            stack.enter_context(router_server("graph", folder, provider, Shares(graph=100))),
        )


async def test_both_put_the_same_bytes_on_the_wire(
    servers: tuple[BenchServer, BenchServer],
) -> None:
    """Plain answers, Chinese ones, and those with tools."""
    async with client(1) as session:
        assert await same_bytes(session, servers)


async def test_a_message_is_found_again_without_its_content(
    servers: tuple[BenchServer, BenchServer],
) -> None:
    """The baseline keeps messages as the stacks do."""
    body = next(bodies("again", PROBES))
    async with client(1) as session:
        first = await ask(session, servers[0], body)
        again = {key: value for key, value in body.items() if key != "content"}
        assert await ask(session, servers[0], again) == first


@pytest.mark.parametrize(
    ("body", "status"),
    [({"message_id": "nobody"}, 404), ({"content": "hi"}, 422), ({"message_id": ""}, 422)],
)
async def test_bad_requests_are_refused(
    servers: tuple[BenchServer, BenchServer], body: dict[str, str], status: int
) -> None:
    """Before the stream begins."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(servers[0].url + PATH, json=body) as response,
    ):
        assert response.status == status


async def test_a_message_cannot_become_another_one(
    servers: tuple[BenchServer, BenchServer],
) -> None:
    """409, as in the stacks."""
    body = next(bodies("taken"))
    async with client(1) as session:
        await ask(session, servers[0], body)
        other = {**body, "content": "something else"}
        async with session.post(servers[0].url + PATH, json=other) as response:
            assert response.status == 409


async def test_processor_time_of_others_can_be_read(
    servers: tuple[BenchServer, BenchServer],
) -> None:
    """It grows with requests, and children are no neighbours."""
    before = servers[0].cpu()
    with other_load() as neighbours:
        async with client(1) as session:
            await ask(session, servers[0], next(bodies()))
    assert servers[0].cpu() > before
    assert servers[0].pid in children()
    assert 0.0 <= neighbours.share <= 1.0


def test_a_server_that_does_not_start_is_told_with_what_it_said(tmp_path: Path) -> None:
    """The end of its log is in the error."""
    with (
        pytest.raises(ServerDidNotStart, match="oops"),
        serving("x", "loadtests.simulator", "--oops", log=tmp_path / "log"),
    ):
        pass
