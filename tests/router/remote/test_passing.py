"""Frames pass to the client as they come, and wait where it does not take them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.deployment import Setup, deployed, until
from tests.support.scripted_service import FRAMES, HELLO, WHOLE, Asked, Stream, serving, streams

pytestmark = pytest.mark.sockets

LARGE = b'data: {"step":"SEND","content":"' + b"a" * 60_000 + b'"}\n\n'


async def test_each_frame_is_there_before_the_next_is_said(tmp_path: Path) -> None:
    """Byte for byte, and on record one by one."""
    goes_on = asyncio.Event()

    async def answer(_: Asked, stream: Stream) -> None:
        await stream.head()
        for frame in FRAMES:
            await stream.send(frame)
            await goes_on.wait()
            goes_on.clear()
        await stream.end()

    async with serving(answer) as service:
        stacks = f'[stacks.legacy]\nurl = "{service.url}"\n'
        async with deployed(tmp_path, Setup(more=stacks)) as place:
            async with place.post(HELLO) as response:
                for frame in FRAMES:
                    assert await response.content.readexactly(len(frame)) == frame
                    goes_on.set()
            run = await place.run()
        assert "".join(text for _, text in run.frames) == WHOLE.decode("utf-8", "replace")
        assert len({at for at, _ in run.frames}) == len(FRAMES)


async def test_a_stream_that_has_ended_leaves_no_task_behind(tmp_path: Path) -> None:
    """Nothing is left to wait for: its exchange is settled and written down without any."""
    made: list[asyncio.Task[object]] = []

    def noted(loop: asyncio.AbstractEventLoop, made_of: Any, /, **more: Any) -> Any:
        made.append(asyncio.Task(made_of, loop=loop, **more))
        return made[-1]

    async with serving(streams(WHOLE)) as service:
        stacks = f'[stacks.legacy]\nurl = "{service.url}"\n'
        async with deployed(tmp_path, Setup(more=stacks)) as place:
            asyncio.get_running_loop().set_task_factory(noted)
            assert (await place.ask(HELLO)).body == WHOLE
            await place.run()
            names = [task.get_name().partition(" ")[0] for task in made]
    assert "serving" in names
    assert not {"finish", "close"} & set(names)


@pytest.mark.slow
async def test_what_a_client_does_not_take_waits_and_the_stack_with_it(tmp_path: Path) -> None:
    """Nothing is lost and nothing overtakes."""
    frames = [LARGE.replace(b"a", b"%d" % (number % 10), 1) for number in range(200)]
    sent = 0

    async def answer(_: Asked, stream: Stream) -> None:
        nonlocal sent
        await stream.head()
        for frame in [FRAMES[0], *frames, FRAMES[-1]]:
            await stream.send(frame)
            sent += 1
        await stream.end()

    async with serving(answer) as service:
        stacks = f'[stacks.legacy]\nurl = "{service.url}"\n'
        async with (
            deployed(tmp_path, Setup(more=stacks)) as place,
            place.post(HELLO) as response,
        ):
            runs = place.services.router.runs(response.headers["x-cutover-exchange"])
            assert runs is not None
            await until(lambda: runs[-1].backpressure.waiting)
            assert sent < len(frames)
            body = await response.read()
        assert body == FRAMES[0] + b"".join(frames) + FRAMES[-1]
