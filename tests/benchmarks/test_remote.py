"""The bench of stacks behind an address: the service, its reader, the rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from benchmarks.harness import BenchServer
from benchmarks.remote.pass_through import (
    Many,
    first_rows,
    many_rows,
    open_streams,
    throughput_rows,
)
from benchmarks.remote.stream_reader import StreamBroken, connect, request
from benchmarks.remote.upstream import Upstream, answer
from contract.flows.chat import CHAT
from contract.wire import FrameReader
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.sockets


@asynccontextmanager
async def serving(protocol: type[asyncio.Protocol] = Upstream) -> AsyncIterator[BenchServer]:
    """Serve in this process."""
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield BenchServer("direct", f"http://{host}:{port}", 0)
    finally:
        server.close()


class Refusing(asyncio.Protocol):
    """Answers anything with 503."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answer before anything was asked."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"HTTP/1.1 503 Unavailable\r\ncontent-length: 0\r\n\r\n")


def test_the_service_speaks_chat() -> None:
    """So many events, each of them the flow's."""
    frames, reader = answer(64), FrameReader(CHAT.dialect)
    assert len(frames) == 64
    events = [event for event in map(reader.event, frames) if event]
    assert len(events) == 64
    assert None not in map(CHAT.decoded, events)
    assert [reader.notable(frame) for frame in frames[-2:]] == [None, "END"]


async def test_a_reader_sees_first_frame_and_every_event() -> None:
    """On one connection, one stream after the other."""
    async with serving() as server:
        reader = await connect(server.url)
        for number in range(2):
            seen = await reader.ask(request(server.url, "", number))
            assert 0 < seen.first < PATIENCE_S
        reader.stamped = True
        seen = await reader.ask(request(server.url, "rate=1000&events=9"))
        assert len(seen.delays) == 5
        assert all(0 <= delay < PATIENCE_S * 1_000 for delay in seen.delays)
        reader.close()


async def test_streams_side_by_side_lose_nothing() -> None:
    """Each with its own events."""
    async with serving() as server:
        assert len(await open_streams(server, 3, 5, ramp=0.0)) == 3


async def test_a_broken_stream_is_no_figure() -> None:
    """Neither a refusal nor a connection that closes."""
    async with serving(Refusing) as server:
        reader = await connect(server.url)
        with pytest.raises(StreamBroken, match="503"):
            await reader.ask(request(server.url))
        reader.close()


def test_rows_are_judged_beside_nginx() -> None:
    """By the rounds' ratios; without nginx there is none."""
    rates = {"nginx": [100.0], "mirror": [100.0], "router": [56.0], "shadowed": [49.0]}
    rows = {row.name: row for row in throughput_rows(rates, 10, 99.0)}
    assert rows["remote.pass_over_nginx"].ok is True
    assert rows["remote.shadowed_over_mirror"].ok is False
    assert rows["remote.shadowed.compared"].value == 99.0
    alone = throughput_rows({"router": [1.0], "shadowed": [1.0]}, 1, 1.0)
    assert not [row.name for row in alone if row.unit == "×"]


def test_what_is_added_and_what_is_lost() -> None:
    """Pairs for the first frame; nothing at all may be lost."""
    half, most = first_rows([(1.0, 1.5), (1.0, 1.7), (1.0, 9.0)], 200)
    assert (half.value, half.ok, most.ok) == (0.7, True, False)
    delay, memory, lost = many_rows(Many(2, 5, [1.0, 1.0], [2.0, 2.0], 100.0, 2))
    assert (delay.value, memory.value, lost.value, lost.ok) == (1.0, 100.0, 0.0, True)
    (_, _, lost) = many_rows(Many(2, 5, [1.0, 1.0], [2.0], 100.0, 1))
    assert (lost.value, lost.ok) == (2.0, False)
