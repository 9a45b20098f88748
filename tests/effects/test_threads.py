"""Threads of graphs: kept by the stock saver of each database, and never in a run's way."""

import asyncio
import logging
from contextlib import AsyncExitStack
from operator import add
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from cutover import graph_thread, wrap_graph
from effects.threads import open_threads
from effects.world import World

THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


class Said(TypedDict):
    """A state that grows."""

    said: Annotated[list[str], add]


def graph(saver: BaseCheckpointSaver[Any] | None) -> Any:
    """Return a graph that adds a word."""
    builder = StateGraph(Said)
    builder.add_node("speak", lambda _: {"said": ["word"]})
    builder.add_edge(START, "speak")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
async def test_threads_are_kept_and_deleted(world: World) -> None:
    """What one process keeps, the next reads; a deleted thread is gone."""
    for turn in range(2):
        async with open_threads(world.database) as saver:
            made = await graph(saver).ainvoke({"said": ["hi"]}, THREAD, durability="exit")
            assert made["said"] == ["hi", "word"] * (turn + 1)
            assert [one async for one in saver.alist(THREAD)]
            if turn:
                await saver.adelete_thread("t")
                assert await saver.aget_tuple(THREAD) is None


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_threads_have_a_file_of_their_own(world: World, tmp_path: Any) -> None:
    """It stands beside the database, whose one writer is never held up."""
    async with open_threads(world.database):
        assert {one.name for one in (tmp_path / "new").glob("*.db")} == {
            "cutover.db",
            "cutover.threads.db",
        }


@pytest.mark.slow
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_processes_that_start_together_create_the_tables_once(world: World) -> None:
    """Each of them starts."""
    async with AsyncExitStack() as opened:
        savers = await asyncio.gather(
            *(opened.enter_async_context(open_threads(world.database)) for _ in range(3))
        )
        for number, saver in enumerate(savers, 1):
            made = await graph(saver).ainvoke({"said": []}, THREAD, durability="exit")
            assert made["said"] == ["word"] * number


class Away(InMemorySaver):
    """A saver that fails, or never answers."""

    def __init__(self, *, hangs: bool) -> None:
        super().__init__()
        self._hangs = hangs

    async def _fail(self) -> None:
        if self._hangs:
            await asyncio.Event().wait()
        raise OSError("No space left on device")

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Fail."""
        await self._fail()
        return await super().aget_tuple(config)

    async def aput(self, config: RunnableConfig, *rest: Any) -> RunnableConfig:
        """Fail."""
        await self._fail()
        return await super().aput(config, *rest)


@pytest.mark.virtual
@pytest.mark.parametrize("hangs", [False, True])
async def test_a_run_goes_on_without_its_saver(
    caplog: pytest.LogCaptureFixture, *, hangs: bool
) -> None:
    """A full disk or a silent server loses the thread, says so, and takes seconds at most."""
    saver, began = Away(hangs=hangs), asyncio.get_running_loop().time()
    taped = wrap_graph(graph(None), saver=lambda: saver)
    with caplog.at_level(logging.WARNING, logger="cutover"):
        made = await taped.ainvoke({"said": []}, THREAD)
    assert made["said"] == ["word"]
    assert "thread=t was not kept" in caplog.text
    assert asyncio.get_running_loop().time() - began <= 2 * graph_thread.SECONDS
