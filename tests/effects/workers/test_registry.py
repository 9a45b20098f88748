"""The workers port: what every adapter keeps, then the limits the registry holds actions to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import EffectFailed
from contract.ports import Workers
from contract.workers import (
    WORKER_ACTIONS,
    BadWorkerArguments,
    WorkerArgument,
    WorkerCall,
    WorkerResult,
)
from effects.local import ManualClock
from effects.workers import AuditedWorkers, MemoryAudit, ScriptedWorkers, WorkerRegistry
from effects.workers.action import Action, ActionFailed, Arguments, ReportLine
from effects.workers.progress import ProgressBounds, shown
from tests.support.worker_calls import instruct

pytestmark = pytest.mark.virtual

DISK = WorkerCall("system", "disk")
DONE = WorkerResult(ok=True, message="done", data={"disks": [1]})


def registry(action: Action, bounds: ProgressBounds | None = None) -> WorkerRegistry:
    """Make a registry whose only action is `system.disk`."""
    return WorkerRegistry(
        {("system", "disk"): action}, seconds=30.0, bounds=bounds or ProgressBounds()
    )


async def told(_: Arguments, report: ReportLine) -> WorkerResult:
    """Report two lines, and be done."""
    report("one")
    await asyncio.sleep(1.0)
    report("two")
    return DONE


async def never() -> WorkerResult:
    """Wait for ever."""
    future: asyncio.Future[WorkerResult] = asyncio.get_running_loop().create_future()
    return await future


@pytest.fixture(params=["registry", "scripted", "audited"])
async def workers(request: pytest.FixtureRequest) -> AsyncIterator[Workers]:
    """Return workers that can do `system.disk`, in a second."""
    scripted = ScriptedWorkers({"system.disk": ("one", "two", DONE)})
    if request.param == "scripted":
        yield scripted
        return
    if request.param == "audited":
        yield AuditedWorkers(scripted, MemoryAudit(), ManualClock())
        return
    real = registry(told)
    yield real
    await real.aclose()


async def test_progress_comes_before_the_result(workers: Workers) -> None:
    """Which is the last update, with its data."""
    assert await instruct(workers, "system.disk") == (["one", "two"], DONE)


async def test_an_unknown_action_is_a_result(workers: Workers) -> None:
    """Of an unknown worker, too."""
    for name in ("system.rm -rf /", "kernel.disk"):
        lines, result = await instruct(workers, name)
        assert (lines, result.ok, result.code) == ([], False, "unknown_action")


async def test_progress_streams() -> None:
    """A line is there before the next one is reported."""
    loop = asyncio.get_running_loop()
    moments = [(loop.time(), update.progress) async for update in registry(told).run("", DISK)]
    assert [moment for moment, _ in moments] == [0.0, 1.0, 1.0]


async def test_wrong_arguments_are_named_and_nothing_is_done() -> None:
    """Checked before the action; one that refuses them itself has the same code."""
    _, result = await instruct(registry(told), "system.disk", path="/")
    assert (result.code, result.message) == ("bad_arguments", "argument 'path': 'disk' has none")

    async def refuse(_: Arguments, __: ReportLine) -> WorkerResult:
        raise BadWorkerArguments(argument="by", reason="allowed: 'cpu'")

    _, result = await instruct(registry(refuse), "system.disk")
    assert (result.code, result.message) == ("bad_arguments", "argument 'by': allowed: 'cpu'")


@pytest.mark.parametrize("key", sorted(WORKER_ACTIONS))
async def test_what_is_not_configured_says_so(key: tuple[str, str]) -> None:
    """Every action there is."""
    required: dict[str, WorkerArgument] = {"host": "h", "port": 1, "name": "n", "release": "r"}
    names = {one.name for one in WORKER_ACTIONS[key].arguments if one.required}
    arguments = {name: required[name] for name in names}
    _, result = await instruct(WorkerRegistry({}), ".".join(key), **arguments)
    assert (result.ok, result.code) == (False, "not_configured")


async def test_a_hanging_action_ends_at_its_limit() -> None:
    """It is cancelled, and what it cleans up then is waited for."""
    cleaned = False

    async def hang(_: Arguments, report: ReportLine) -> WorkerResult:
        nonlocal cleaned
        report("hanging")
        try:
            return await never()
        finally:
            await asyncio.sleep(2.0)
            cleaned = True

    lines, result = await instruct(registry(hang), "system.disk")
    assert (lines, result.code) == (["hanging"], "worker_timeout")
    assert asyncio.get_running_loop().time() == 32.0
    assert cleaned


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        (ActionFailed("busy", "another one"), "busy", "another one"),
        (OSError(28, "No space left on device", "/secret"), "worker_failed", "No space left"),
        (ZeroDivisionError("secret"), "worker_failed", "the worker failed"),
        (SystemExit("secret"), "worker_failed", "the worker failed"),
    ],
)
async def test_no_failure_leaves_the_port(
    failure: BaseException, code: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And no text of one that was not foreseen, nor the path of one of the system's."""

    async def fail(_: Arguments, __: ReportLine) -> WorkerResult:
        raise failure

    with caplog.at_level(logging.WARNING):
        _, result = await instruct(registry(fail), "system.disk")
    assert (result.ok, result.code) == (False, code)
    assert result.message.startswith(message)
    assert "secret" not in result.message + caplog.text


async def test_closing_the_stream_or_the_registry_ends_the_action() -> None:
    """And waits until nothing of it is left; a closed registry takes no instruction."""
    ended = []

    async def hang(_: Arguments, report: ReportLine) -> WorkerResult:
        report("hanging")
        try:
            return await never()
        finally:
            await asyncio.sleep(1.0)
            ended.append(asyncio.get_running_loop().time())

    workers = registry(hang)
    async with aclosing(workers.run("", DISK)) as stream:
        await anext(stream)
    assert ended == [1.0]
    stream = workers.run("", DISK)
    await anext(stream)
    await workers.aclose()
    assert ended == [1.0, 2.0]
    with pytest.raises(EffectFailed, match="'worker_unavailable'"):
        await anext(stream)
    with pytest.raises(EffectFailed, match="'worker_unavailable'"):
        await instruct(workers, "system.disk")
    await workers.aclose()


async def test_progress_is_bounded_in_rate_and_number() -> None:
    """What is left out is counted, where it is left out."""

    async def flood(_: Arguments, report: ReportLine) -> WorkerResult:
        for number in range(10):
            report(f"a{number}")
        await asyncio.sleep(1.0)
        for number in range(1_000):
            report(f"b{number}")
        return DONE

    bounds = ProgressBounds(burst=3, per_second=2.0, lines=4)
    lines, result = await instruct(registry(flood, bounds), "system.disk")
    assert lines == ["a0", "a1", "a2", "[7 lines left out]", "b0", "[999 lines left out]"]
    assert result == DONE


async def test_lines_that_are_left_out_cost_the_loop_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread may report a million of them: the loop hears of those that pass."""
    loop, woken = asyncio.get_running_loop(), 0

    async def flood(_: Arguments, report: ReportLine) -> WorkerResult:
        def lines() -> None:
            for number in range(1_000):
                report(f"line {number}", 9)

        await asyncio.to_thread(lines)
        return DONE

    call = loop.call_soon_threadsafe

    def counted(*given: Any, **more: Any) -> asyncio.Handle:
        nonlocal woken
        woken += 1
        return call(*given, **more)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    lines, _ = await instruct(registry(flood, ProgressBounds(burst=2)), "system.disk")
    assert lines == [
        *("[9 lines left out]", "line 0", "[9 lines left out]", "line 1"),
        "[9980 lines left out]",
    ]
    assert woken < 10


async def test_lines_come_from_any_thread() -> None:
    """As from a library that blocks."""

    async def in_thread(_: Arguments, report: ReportLine) -> WorkerResult:
        await asyncio.to_thread(report, "from a thread")
        return DONE

    assert await instruct(registry(in_thread), "system.disk") == (["from a thread"], DONE)


@given(st.text(), st.integers(min_value=1, max_value=20))
def test_what_is_shown_is_short_and_can_be_seen(text: str, characters: int) -> None:
    """Whatever a program writes."""
    line = shown(text, characters)
    assert len(line) <= characters
    assert not {"\x1b", "\x00", "\u202e"} & set(line)


async def test_names_that_are_no_text_can_be_stored() -> None:
    """Names of files are bytes: what UTF-8 cannot encode becomes `?`."""
    name = b"caf\xe9".decode("utf-8", "surrogateescape")

    async def find(_: Arguments, __: ReportLine) -> WorkerResult:
        return WorkerResult(ok=True, message=name, data={"files": [{"path": name, "bytes": 1}]})

    _, result = await instruct(registry(find), "system.disk")
    assert result.message == "caf?"
    assert result.data == {"files": [{"path": "caf?", "bytes": 1}]}


async def test_a_limit_of_its_own_holds_for_an_action() -> None:
    """A build takes longer than all others."""

    async def slow(_: Arguments, __: ReportLine) -> WorkerResult:
        await asyncio.sleep(100.0)
        return DONE

    key = "system", "disk"
    workers = WorkerRegistry({key: slow}, seconds=30.0, limits={key: 101.0})
    assert await instruct(workers, "system.disk") == ([], DONE)
