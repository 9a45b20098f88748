"""Serving, where it is left or broken in unusual places."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest

from cutover import Event, Exchange, Request, Stack, effect
from cutover.errors import Completed, Failed, Left, Pause
from cutover.flow import Frame
from router.driver import Candidate
from router.exchange import Served, finish
from router.serve import serve
from rules.flows import FLOWS
from tests.support.ask import ASK, Ask, Done, Said
from tests.support.databases import audit_lines
from tests.support.served import ask
from tests.support.stage import Stage, Told, breaking, staged
from tests.support.virtual_time import VirtualLoop

pytestmark = pytest.mark.virtual

SUM = {"message_id": "m", "content": "What is 12 * 7?"}
STACKS = ("legacy", "graph")


class _Panic(BaseException):
    """What extensions written in other languages raise."""


def raising(error: type[BaseException]) -> Callable[[Stack], Stack]:
    """Return what makes a stack raise at its third event."""

    def change(stack: Stack) -> Stack:
        async def changed(request: Request[Any, Any]) -> AsyncIterator[Event]:
            count = 0
            async with aclosing(stack(request)) as events:  # type: ignore[type-var]
                async for event in events:
                    count += 1
                    if count == 3:
                        raise error
                    yield event

        return changed

    return change


def closing_with(last: Callable[[], Any]) -> Callable[[Stack], Stack]:
    """Return what makes a stack await `last()` when it has ended, or is closed."""

    def change(stack: Stack) -> Stack:
        async def changed(request: Request[Any, Any]) -> AsyncIterator[Event]:
            try:
                async with aclosing(stack(request)) as events:  # type: ignore[type-var]
                    async for event in events:
                        yield event
            finally:
                await last()

        return changed

    return change


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """A stage of its own, with a file that workers may delete."""
    (tmp_path / "a.log").write_text("x")
    async with staged(workers={"temporary_root": str(tmp_path)}) as opened:
        yield opened


async def leave(
    stage: Stage, served: Served, candidates: Sequence[Candidate], at: bytes
) -> list[bytes]:
    """Be a client that leaves at a frame that begins with `at`; return what it got."""
    got: list[bytes] = []
    async with aclosing(serve(served, candidates, stage.pauses.pause)) as frames:
        async for frame in frames:
            got.append(frame)
            if frame.startswith(at):
                break
    await finish(served)
    return got


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("error", [_Panic, GeneratorExit, SystemExit, KeyboardInterrupt])
def test_any_exception_of_a_stack_ends_its_run_alone(error: type[BaseException]) -> None:
    """Another stack goes on, whatever was raised; an interrupt stops the loop besides."""
    loop = VirtualLoop(guard_seconds=5.0)
    loop.set_exception_handler(lambda *_: None)

    async def told() -> Told:
        async with staged() as stage:
            broken = stage.candidate("chat", "legacy", raising(error))
            return await stage.tell("chat", stage.request("chat", SUM), [broken, "graph"])

    with asyncio.Runner(loop_factory=lambda: loop):
        telling = loop.create_task(told())
        with suppress(KeyboardInterrupt):
            loop.run_until_complete(telling)
        assert loop.run_until_complete(telling).outcome == Completed()


async def test_a_client_that_leaves_at_a_takeover_blames_no_successor(stage: Stage) -> None:
    """It leaves at the comment that names the successor: that run was left, and did not fail."""
    broken = stage.candidate("chat", "legacy", breaking(3, "exception"))
    served = Served("e", FLOWS["chat"], stage.request("chat", SUM), Exchange(), "legacy")
    got = await leave(stage, served, [broken, stage.candidate("chat", "graph")], b": served-by")
    assert got[-1] == b": served-by graph e\n\n"
    ended = [one.run.ended for one in served.runs]
    assert isinstance(ended[0], Failed)
    assert ended[1:] == [Left()]
    assert served.outcome == Left()


async def test_a_successor_whose_client_leaves_makes_no_write_again(stage: Stage) -> None:
    """Off the tape it would make once more what its predecessor had made."""
    written: list[str] = []

    @effect("notes.add", writes=True)
    async def note(text: str) -> None:
        written.append(text)

    def noting(stack: Stack) -> Stack:
        async def changed(request: Request[Any, Any]) -> AsyncIterator[Event]:
            await note("order")
            async with aclosing(stack(request)) as events:  # type: ignore[type-var]
                async for event in events:
                    yield event

        return raising(ZeroDivisionError)(changed)

    first = stage.candidate("chat", "legacy", noting)
    second = stage.candidate("chat", "graph", closing_with(lambda: note("order")))
    served = Served("e", FLOWS["chat"], stage.request("chat", SUM), Exchange(), "legacy")
    await leave(stage, served, [first, second], b'data: {"step":"SEND"')
    assert served.outcome == Left()
    assert written == ["order"]


@pytest.mark.parametrize(
    ("seconds", "lasts", "lines"),
    [(30.0, 30.0, []), (90.0, 60.0, ["stack=legacy not done 60 s after its end"])],
)
async def test_a_stack_may_go_on_for_a_minute_behind_its_terminal_event(
    stage: Stage, caplog: pytest.LogCaptureFixture, seconds: float, lasts: float, lines: list[str]
) -> None:
    """It owes no event any longer, so it is not stalled; one that takes longer is ended."""
    loop, done = asyncio.get_running_loop(), []

    async def learn() -> None:
        began = loop.time()
        try:
            await asyncio.sleep(seconds)
        finally:
            done.append(loop.time() - began)

    learning = stage.candidate("chat", "legacy", closing_with(learn))
    told = await stage.tell("chat", stage.request("chat", SUM), [learning])
    assert told.outcome == Completed()
    assert done == [pytest.approx(lasts, abs=0.1)]
    assert [one.message for one in caplog.records if one.levelname != "INFO"] == lines


async def _endless(_: Request[Any, Any]) -> AsyncIterator[Event]:
    for _number in range(1_000):
        yield Said("x" * 100)


async def _whole(_: Request[Any, Any]) -> AsyncIterator[Event]:
    yield Done()


async def _goes_on(request: Request[Any, Any]) -> AsyncIterator[Event]:
    yield Done()
    async for event in _endless(request):
        yield event


async def test_a_stream_without_end_is_stopped_wherever_it_is_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As it is served, in a shadow, and behind its terminal event, of which one line tells."""
    monkeypatch.setattr("router.driver.STREAM_BYTES", 10_000)
    runaway = Failed("runaway", detail="runaway: more than 10000 bytes")
    assert (await ask(ASK, Ask("q"), _endless)).outcome == runaway
    heard = await ask(ASK, Ask("q"), _whole)
    assert (await heard.shadow(_endless)).outcome == runaway
    caplog.clear()
    assert (await ask(ASK, Ask("q"), _goes_on)).outcome == Completed()
    assert [one.message for one in caplog.records if one.levelname == "WARNING"] == [
        "stack=stack 0 events=24 behind its terminal event"
    ]


async def test_what_was_sent_is_counted_beyond_the_limit_of_the_tape(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames and bytes where they are sent, tokens as the model's answers have them."""
    caplog.set_level("INFO", "cutover.exchange")
    lines = []
    for limit in (1 << 20, 0):
        monkeypatch.setitem(Exchange.__init__.__kwdefaults__ or {}, "tape_bytes", limit)
        told = await stage.tell("chat", stage.request("chat", SUM), ["legacy"])
        assert told.outcome == Completed()
        lines.append(dict(one.split("=", 1) for one in caplog.messages[-1].split() if "=" in one))
    within, beyond = lines
    for name in ("frames", "bytes", "calls", "input_tokens", "output_tokens"):
        assert int(beyond[name]) == int(within[name]) > 0, name


async def test_a_pause_is_stored_although_its_client_leaves(stage: Stage) -> None:
    """The client leaves while the store is at it: the question is there to be answered."""
    begun, go_on, stored = asyncio.Event(), asyncio.Event(), []

    async def slow(served: Served, question: str, frames: Sequence[Frame]) -> None:
        begun.set()
        await go_on.wait()
        await stage.pauses.pause(served, question, frames)
        stored.append(question)

    request = stage.request("ops", {"session_id": "s", "input": "restart web"})
    served = Served("e", FLOWS["ops"], request, Exchange(), "legacy")

    async def stream() -> None:
        async with aclosing(serve(served, [stage.candidate("ops", "legacy")], slow)) as frames:
            async for _ in frames:
                pass

    client = asyncio.create_task(stream())
    await begun.wait()
    client.cancel()
    await asyncio.wait({client})
    go_on.set()
    await finish(served)
    assert isinstance(served.outcome, Pause)
    assert stored == [served.outcome.question]


@pytest.mark.parametrize("at", [b"event: progress", b"event: result"])
@pytest.mark.parametrize("stack", STACKS)
async def test_a_continued_run_whose_client_leaves_writes_no_more(
    stage: Stage, stack: str, at: bytes
) -> None:
    """What it writes when it is closed would be in no journal, and made once more by the next."""
    written: list[str] = []

    @effect("notes.add", writes=True)
    async def note(text: str) -> None:
        written.append(text)

    body = {"session_id": "s", "input": "delete temporary files"}
    asked = await stage.tell("ops", stage.request("ops", body), ["legacy"])
    assert isinstance(asked.outcome, Pause)
    decision = {"approval_id": asked.outcome.question, "approved": True, "by": "ann"}
    noting = stage.candidate("ops", stack, closing_with(lambda: note("closed")))
    pausing = FLOWS["ops"].pausing
    assert pausing is not None
    request = pausing.resume_request(**decision)
    continued = await stage.pauses.resume(FLOWS["ops"], request, "left")
    await leave(stage, continued.served, [noting], at)
    await continued.end()
    assert continued.served.outcome == Left()
    assert written == []
    told = await stage.resume("ops", decision, [noting])
    assert told.outcome == Completed()
    assert written == ["closed"]
    lines = [one.what for one in await audit_lines("s")]
    assert lines == ["approved", "executed"]
