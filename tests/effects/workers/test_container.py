"""The worker `container`, against an engine on a unix socket."""

from __future__ import annotations

import resource
import struct
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effects.workers import WorkerRegistry
from effects.workers.container import ContainerWorker, LogFrames
from effects.workers.threads import WorkerThreads
from tests.support.container_engine import ContainerEngine, FakeContainer
from tests.support.worker_calls import instruct

pytestmark = [pytest.mark.sockets, pytest.mark.slow, pytest.mark.virtual]

MOST = 200


@pytest.fixture
def engine() -> ContainerEngine:
    """Return an engine with four containers."""
    return ContainerEngine(
        [
            FakeContainer("web", log=b"one\ntwo\n\x1b[31mthree\x1b[0m\n"),
            FakeContainer("web-old", state="exited"),
            FakeContainer("crash", after_restart="exited"),
            FakeContainer("database"),
        ]
    )


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """Return a folder whose path is short enough for a socket."""
    with TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
async def workers(engine: ContainerEngine, socket_folder: Path) -> AsyncIterator[WorkerRegistry]:
    """Return the worker, allowed all of them but the database."""
    threads = WorkerThreads()
    async with engine.serving(socket_folder) as address:
        worker = ContainerWorker(threads, address, ["web*", "crash", "6*"], most=MOST)
        yield WorkerRegistry(worker.actions())
        threads.close()


async def test_containers_are_numbered_by_name(workers: WorkerRegistry) -> None:
    """Those that run, or all; one that is not configured is not there."""
    _, result = await instruct(workers, "container.list")
    assert [(one["number"], one["name"]) for one in result.data["containers"]] == [
        (1, "crash"),
        (2, "web"),
    ]
    _, result = await instruct(workers, "container.list", all=True)
    assert result.data["containers"][2] == {
        "number": 3,
        "name": "web-old",
        "image": "service:1",
        "state": "exited",
        "status": "Exited (0)",
    }
    assert result.message.endswith("3. web-old (service:1): Exited (0)")


async def test_the_last_lines_of_a_log_are_read(workers: WorkerRegistry) -> None:
    """Without the codes of a terminal."""
    _, result = await instruct(workers, "container.logs", name="web", lines=2)
    assert result.data == {"name": "web", "lines": ["two", "three"], "left_out": 0}
    assert result.message == "the last 2 lines of web"


async def test_a_long_log_is_cut_off(workers: WorkerRegistry, engine: ContainerEngine) -> None:
    """Its end is shown, and how much came before."""
    engine.containers[0].log = b"x" * 1_000_000 + b"\nlast\n"
    _, result = await instruct(workers, "container.logs", name="web")
    assert sum(map(len, result.data["lines"])) == MOST - 2
    assert result.data["lines"][-1] == "last"
    assert result.message.endswith(f"{1_000_006 - MOST} bytes are left out")


@pytest.mark.parametrize("terminal", [False, True])
async def test_a_log_of_100_mb_is_not_held_in_memory(
    workers: WorkerRegistry, engine: ContainerEngine, *, terminal: bool
) -> None:
    """Neither one frame of that size, nor what a terminal was sent."""
    (web, *_), flood = engine.containers, 100 << 20
    web.flood, web.terminal = flood, terminal
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _, result = await instruct(workers, "container.logs", name="web", lines=1)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert result.data["lines"] == ["x" * MOST]
    assert result.data["left_out"] == flood + len("\x1b[31mthree\x1b[0m\n") - MOST
    assert grown < 20 * 1024  # KiB


async def test_a_log_that_hangs_is_given_up(
    workers: WorkerRegistry, engine: ContainerEngine
) -> None:
    """As is any other call: a thread that waits for ever would be lost."""
    engine.containers[0].hangs = True
    _, result = await instruct(workers, "container.logs", name="web")
    assert (result.ok, result.code) == (False, "no_engine")


@given(st.lists(st.binary(max_size=20)), st.lists(st.integers(min_value=1, max_value=9)))
def test_frames_are_read_however_they_come(frames: list[bytes], cuts: list[int]) -> None:
    """In pieces that end anywhere, also within a header."""
    wire = b"".join(struct.pack(">BxxxL", 1, len(one)) + one for one in frames)
    reader, read, at = LogFrames(), b"", 0
    for cut in (*cuts, len(wire)):
        read += reader.feed(wire[at : at + cut])
        at += cut
    assert read == b"".join(frames)


async def test_a_container_is_restarted(workers: WorkerRegistry, engine: ContainerEngine) -> None:
    """With the time it has to stop; one that does not run then is a failure."""
    lines, result = await instruct(workers, "container.restart", name="web", grace=3)
    assert (lines, result.ok) == (["restarting web"], True)
    assert any("/restart?t=3" in request for request in engine.requests)
    _, result = await instruct(workers, "container.restart", name="crash")
    assert (result.ok, result.code) == (False, "not_running")
    assert result.message == "crash was restarted, and is exited now"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("nothing", "not_found"),
        ("database", "not_allowed"),
        ("6461746162617365", "not_allowed"),  # the beginning of its id, which a pattern allows
        ("../../volumes/data", "bad_arguments"),
        ("web/../database", "bad_arguments"),
        ("web?all=1", "bad_arguments"),
        ("$(id)", "bad_arguments"),
        ("-web", "bad_arguments"),
    ],
)
async def test_other_names_are_refused(
    workers: WorkerRegistry, engine: ContainerEngine, name: str, code: str
) -> None:
    """Nothing is restarted."""
    for action in ("logs", "restart"):
        _, result = await instruct(workers, f"container.{action}", name=name)
        assert (result.ok, result.code) == (False, code)
    assert not [request for request in engine.requests if "/restart" in request]


async def test_without_an_engine_the_code_says_so(
    workers: WorkerRegistry, engine: ContainerEngine, socket_folder: Path
) -> None:
    """No socket, no answer, or an answer that refuses: never a text of the engine."""
    engine.refuses = 500
    _, result = await instruct(workers, "container.list")
    assert (result.ok, result.code) == (False, "no_engine")
    engine.answers = False
    threads, silent = WorkerThreads(), f"unix://{socket_folder}/engine.sock"
    hasty = ContainerWorker(threads, silent, ["*"], seconds=0.1)
    _, result = await instruct(WorkerRegistry(hasty.actions()), "container.list")
    assert (result.ok, result.code) == (False, "no_engine")
    worker = ContainerWorker(threads, f"unix://{socket_folder}/none.sock", ["*"])
    _, result = await instruct(WorkerRegistry(worker.actions()), "container.list")
    assert (result.ok, result.code) == (False, "no_engine")
    assert result.message == "there is no container engine: its socket takes no connections"
    threads.close()


async def test_without_the_extra_the_code_says_so(
    workers: WorkerRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And names it."""
    monkeypatch.setitem(sys.modules, "docker", None)
    _, result = await instruct(workers, "container.list")
    assert (result.ok, result.code) == (False, "no_engine")
    assert result.message.endswith("the extra 'containers' is not installed")
