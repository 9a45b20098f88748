"""Leaving: nothing that does not end keeps the process."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from cutover.server.serve import run_until_closed


class Process:
    """Stands for the process: `end` is called where it would end."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def end(self, status: int) -> None:
        """End."""
        assert status == 0
        self.ended.set()


@pytest.fixture(autouse=True)
def _open_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the log of the tests open."""
    monkeypatch.setattr(logging, "shutdown", lambda: None)


def test_a_task_that_does_not_end_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    """The loop would wait for it for ever."""
    process = Process()

    async def deaf() -> None:
        while not process.ended.is_set():
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                continue

    async def main() -> None:
        asyncio.create_task(deaf(), name="deaf")  # noqa: RUF006 - the loop holds it
        await asyncio.sleep(0)

    run_until_closed(main(), 0.0, process.end)
    assert process.ended.is_set()
    assert "are still running: tasks: deaf" in caplog.text


def test_a_thread_that_does_not_end_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    """The interpreter would wait for it for ever."""
    process = Process()
    thread = threading.Thread(target=process.ended.wait, name="blocked")

    async def main() -> None:
        thread.start()

    run_until_closed(main(), 0.01, process.end)
    thread.join()
    assert "are still running: threads: blocked" in caplog.text


def test_what_ends_is_waited_for() -> None:
    """What ends in time is waited for."""
    process = Process()
    go_on = threading.Event()

    async def main() -> None:
        threading.Thread(target=go_on.wait).start()
        threading.Timer(0.01, go_on.set).start()

    run_until_closed(main(), 30.0, process.end)
    assert not process.ended.is_set()
