"""Any interleaving of runs on one tape keeps what a tape promises."""

import asyncio
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutover import CutoverError, Exchange, Run, effect
from cutover.tape import Entry
from tests.support.tapes import Broken, ended, start, turn

Kind = Literal["read", "write", "stream"]


class Step(msgspec.Struct, frozen=True):
    """One call of a program: `leave` closes a stream after so many items; `beside` runs along."""

    kind: Kind
    key: str
    leave: int | None = None
    beside: bool = False
    blocking: bool = False


class Move(msgspec.Struct, frozen=True):
    """What happens to the run `who` or to the world, before the loop turns `times` times."""

    what: Literal["turn", "open", "fence", "cancel", "play", "wait"]
    who: int = 0
    times: int = 1


steps = st.builds(
    Step,
    st.sampled_from(["read", "write", "stream"]),
    st.sampled_from(["a", "b"]),
    st.none() | st.integers(0, 3),
    st.booleans(),
    st.booleans(),
)
programs = st.lists(steps, min_size=1, max_size=5)
moves = st.lists(
    st.builds(
        Move,
        st.sampled_from(["turn", "open", "open", "open", "fence", "cancel", "play", "wait"]),
        st.integers(0, 3),
        st.integers(1, 6),
    ),
    min_size=4,
    max_size=16,
)


class Scene:
    """A world whose calls wait to be let go on, and the runs that call it."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str]] = []
        self.ended: list[str] = []
        self.waiting: list[asyncio.Event] = []
        self.opened = False
        self.seen: list[tuple[Run, Entry, list[Any]]] = []
        self.runs: list[Run] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def _gate(self) -> None:
        if not self.opened:
            event = asyncio.Event()
            self.waiting.append(event)
            await event.wait()

    def open(self, times: int) -> None:
        """Let the calls that have waited longest go on."""
        for event in self.waiting[:times]:
            event.set()
        del self.waiting[:times]

    @effect("scene.read", raises=(Broken,))
    async def read(self, key: str) -> int:
        """Return a number; every third read fails."""
        self.begun.append(("read", key))
        await self._gate()
        if len(self.begun) % 3 == 0:
            raise Broken(key)
        return len(self.begun)

    @effect("scene.write", writes=True)
    async def write(self, key: str) -> int:
        """Change the world; the number is the write's own."""
        self.begun.append(("write", key))
        number = len(self.begun)
        await self._gate()
        self.ended.append("write")
        return number

    @effect("scene.write", writes=True)
    def write_now(self, key: str) -> int:
        """Change the world at once, on the loop's own thread."""
        self.begun.append(("write", key))
        self.ended.append("write")
        return len(self.begun)

    @effect("scene.stream", raises=(Broken,))
    async def stream(self, key: str) -> Any:
        """Yield three numbers."""
        self.begun.append(("stream", key))
        number = len(self.begun)
        for place in range(3):
            await self._gate()
            yield number * 10 + place

    async def program(self, run: Run, todo: list[Step]) -> None:
        """Make the calls of a program, those `beside` in tasks of their own."""
        children: list[asyncio.Task[None]] = []
        try:
            for step in todo:
                work = self._step(run, step)
                if step.beside:
                    children.append(asyncio.get_running_loop().create_task(work))
                else:
                    await work
            for child in children:
                await child
        finally:
            for child in children:
                child.cancel()
            await asyncio.gather(*children, return_exceptions=True)

    async def _step(self, run: Run, step: Step) -> None:
        try:
            match step.kind:
                case "read":
                    await self.read(step.key)
                case "write" if step.blocking:
                    self.write_now(step.key)
                case "write":
                    await self.write(step.key)
                case "stream":
                    await self._stream(run, step)
        except (CutoverError, Broken):
            if run.ended is not None:
                raise

    async def _stream(self, run: Run, step: Step) -> None:
        items = self.stream(step.key)
        got: list[Any] = []
        made = len(run.plays)
        try:
            async for item in items:
                if not got:
                    plays = [one for one in run.plays[made:] if one.call.name == "scene.stream"]
                    self.seen.append((run, plays[0].entry, got)) if len(plays) == 1 else None
                got.append(item)
                if step.leave is not None and len(got) > step.leave:
                    return
        finally:
            await items.aclose()

    def begin(self, exchange: Exchange, policy: Literal["live", "play"], todo: list[Step]) -> None:
        """Begin a run, of which this scene allows four."""
        run = Run(exchange, f"run {len(self.runs)}", "serving", policy)
        self.runs.append(run)
        self.tasks.append(start(run, lambda: self.program(run, todo)))


async def _scenario(todo: list[list[Step]], script: list[Move]) -> Scene:
    scene = Scene()
    async with Exchange() as exchange:
        scene.begin(exchange, "live", todo[0])
        for move in script:
            await _move(scene, exchange, move, todo)
            await turn(move.times)
        scene.opened = True
        scene.open(len(scene.waiting))
        _end_serving(scene)
        await exchange.aclose()
        _check(scene, exchange)
        for task in scene.tasks:
            task.cancel()
            await ended(task)
        _check(scene, exchange)
    await asyncio.sleep(0.1)
    reading = {run for entry in exchange.entries for run in entry.readers}
    assert all(run.fenced for run in reading), "a run reads for ever"
    assert [run.waiting for run in scene.runs] == [0] * len(scene.runs), "a reader waits for ever"
    return scene


async def _move(scene: Scene, exchange: Exchange, move: Move, todo: list[list[Step]]) -> None:
    who = move.who % len(scene.runs)
    match move.what:
        case "open":
            scene.open(move.times)
        case "wait":
            await asyncio.sleep(0.03 * move.times)
        case "cancel":
            scene.tasks[who].cancel()
        case "play" if len(scene.runs) < 4:
            scene.begin(exchange, "play", todo[len(scene.runs) % len(todo)])
        case "fence" if scene.runs[who].policy == "live" and not scene.runs[who].fenced:
            scene.runs[who].fence()
            scene.tasks[who].cancel()
            if len(scene.runs) < 4:
                scene.begin(exchange, "live", todo[len(scene.runs) % len(todo)])
        case _:
            pass


def _end_serving(scene: Scene) -> None:
    for run in scene.runs:
        if run.policy == "live":
            run.fence()


def _check(scene: Scene, exchange: Exchange) -> None:
    """Assert what holds of every tape that has closed."""
    entries = exchange.entries
    assert not exchange.off_tape
    assert {entry.end for entry in entries} <= {"done", "failed", "cut"}
    performed = [one for one in scene.begun if one[0] == "write"]
    writes = [entry for entry in entries if entry.call.writes]
    assert len(writes) == len(performed), "a write was made twice"
    assert all(entry.end == "done" for entry in writes), "a write that began was not finished"
    assert scene.ended.count("write") == len(performed), "a write is lost"
    for run, entry, got in scene.seen:
        items = [msgspec.json.decode(item) for _, item in entry.items if isinstance(item, bytes)]
        assert got == items[: len(got)], f"{run} saw other items than the tape has"
    for run in scene.runs:
        own = [play.entry for play in run.plays if play.how != "nearest"]
        assert len(set(map(id, own))) == len(own), "two calls of a run share an entry"
        live = [play for play in run.plays if play.how == "live"]
        assert not live or run.policy == "live", "a play has performed"


@pytest.mark.virtual
@given(st.lists(programs, min_size=2, max_size=3), moves)
@settings(max_examples=150)
async def test_no_interleaving_breaks_a_tape(todo: list[list[Step]], script: list[Move]) -> None:
    """No effect twice, no write lost, no reader left waiting; all see the same sequence."""
    scene = await _scenario(todo, script)
    await turn()
    assert all(task.done() for task in scene.tasks)
