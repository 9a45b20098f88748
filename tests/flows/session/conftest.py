"""Stores of threads are waited for as long as a busy machine takes."""

from __future__ import annotations

import pytest

from graph_impl import postgres_threads, threads
from tests.support.patience import PATIENCE_S


@pytest.fixture(autouse=True)
def _threads_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no thread be done without because the machine stood still: these tests look at them."""
    for module in (threads, postgres_threads):
        monkeypatch.setattr(module, "WAIT_SECONDS", PATIENCE_S)
