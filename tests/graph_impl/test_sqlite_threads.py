"""Threads in an SQLite file: what is kept takes the place of what was, or nothing does."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, empty_checkpoint

from graph_impl.threads import STORED_BEFORE, sqlite_threads
from tests.flows.session.threads import Place

CONFIG: RunnableConfig = {"configurable": {"thread_id": "s-1", "checkpoint_ns": ""}}
METADATA: CheckpointMetadata = {"source": "loop", "step": 1}


def state(value: object) -> Checkpoint:
    """Give a state that holds a value; later ones have later ids."""
    values = {"messages": value, f"branch:to:{STORED_BEFORE}": None}
    return {**empty_checkpoint(), "channel_values": values}


async def test_only_the_newest_state_of_a_thread_is_kept(tmp_path: Path) -> None:
    """In one transaction: nobody sees two, or none."""
    async with sqlite_threads(tmp_path / "t.db") as threads:
        for value in ("one", "two"):
            await threads.aput(CONFIG, state(value), METADATA, {})
        other: RunnableConfig = {"configurable": {"thread_id": "s-2", "checkpoint_ns": ""}}
        await threads.aput(other, state("three"), METADATA, {})
        found = await threads.read("s-1")
    assert found is not None
    assert found.checkpoint["channel_values"] == {"messages": "two"}
    assert Place(f"sqlite:///{tmp_path / 't.db'}").rows() == {"checkpoints": 2, "writes": 0}


async def test_what_cannot_be_kept_leaves_what_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does it leave anything undone that the next turn of another thread would complete."""
    async with sqlite_threads(tmp_path / "t.db") as threads:
        await threads.aput(CONFIG, state("one"), METADATA, {})
        await threads.aput(CONFIG, state(object()), METADATA, {})
        other: RunnableConfig = {"configurable": {"thread_id": "s-2", "checkpoint_ns": ""}}
        await threads.aput(other, state("two"), METADATA, {})
        found = await threads.read("s-1")
    assert found is not None
    assert found.checkpoint["channel_values"] == {"messages": "one"}
    assert "a thread is not stored: TypeError" in caplog.text


async def test_what_the_file_refuses_leaves_what_was(tmp_path: Path) -> None:
    """Also where what was is out of the way already."""
    place = Place(f"sqlite:///{tmp_path / 't.db'}")
    async with sqlite_threads(tmp_path / "t.db") as threads:
        await threads.aput(CONFIG, state("one"), METADATA, {})
        place.execute(
            "CREATE TRIGGER refuses BEFORE INSERT ON checkpoints "
            "BEGIN SELECT RAISE(ABORT, 'not this'); END"
        )
        await threads.aput(CONFIG, state("two"), METADATA, {})
        found = await threads.read("s-1")
    assert found is not None
    assert found.checkpoint["channel_values"] == {"messages": "one"}


async def test_who_waits_for_the_file_and_gives_up_keeps_nothing(tmp_path: Path) -> None:
    """By then the session may be deleted, by another process."""
    path, began = tmp_path / "t.db", threading.Event()
    async with sqlite_threads(path) as threads:
        await threads.hop(lambda: threads.conn.set_trace_callback(lambda _: began.set()))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            keeping = asyncio.create_task(threads.aput(CONFIG, state("late"), METADATA, {}))
            await asyncio.to_thread(began.wait)
            keeping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await keeping
            other.execute("ROLLBACK")
    assert Place(f"sqlite:///{path}").rows() == {"checkpoints": 0, "writes": 0}
