"""The watchdog of the event loop: once an episode, with the code that holds it and no value."""

from __future__ import annotations

import logging
import threading

import pytest

from router.telemetry.watchdog import Heartbeat, Watchdog
from tests.support.patience import PATIENCE_S

USER = "what the user said"


class Heard(logging.Filter):
    """Knows when the watchdog has logged something."""

    def __init__(self) -> None:
        super().__init__()
        self.logged = threading.Event()

    def filter(self, record: logging.LogRecord) -> bool:
        """Let everything pass."""
        if record.name == "router.telemetry.watchdog":
            self.logged.set()
        return True


def test_an_episode_is_told_once_and_remembered_for_a_minute() -> None:
    """While it lasts and after: a blocked loop answers no request."""
    heartbeat = Heartbeat(1.0, 100.0)
    assert not heartbeat.check(100.9)
    assert heartbeat.fault(100.9) is None
    assert heartbeat.check(101.0)
    assert not heartbeat.check(103.5)
    assert heartbeat.fault(103.5) == "was blocked for 3.5 s; 1 times since the start"
    heartbeat.beat = 104.0
    assert not heartbeat.check(104.1)
    assert heartbeat.fault(163.9) == "was blocked for 3.5 s; 1 times since the start"
    assert heartbeat.fault(164.0) is None


def test_the_next_episode_is_another() -> None:
    """Counted, and told with its own length, also when it follows at once."""
    heartbeat = Heartbeat(1.0, 0.0)
    assert heartbeat.check(5.0)
    heartbeat.beat = 5.0
    assert heartbeat.check(6.5), "it turned once in between"
    assert heartbeat.fault(6.5) == "was blocked for 1.5 s; 2 times since the start"


async def test_the_code_that_blocks_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """File, line and function of what holds the loop; not what it holds."""
    heard = Heard()
    now = 100.0

    def careless(said: str) -> bool:
        # The clock moves here alone: a busy machine cannot make another line the one that blocks.
        nonlocal now
        now += 1.0
        return bool(said) and heard.logged.wait(PATIENCE_S)

    watchdog = Watchdog(0.02, lambda: now)
    with caplog.filtering(heard), watchdog.watching():
        assert careless(USER), "nothing was logged"
        assert watchdog.heartbeat.episodes == 1
        assert watchdog.fault is not None
    assert "careless" in caplog.text
    assert "test_watchdog.py" in caplog.text
    assert USER not in caplog.text
    assert not [thread for thread in threading.enumerate() if thread.name == "watchdog"]
