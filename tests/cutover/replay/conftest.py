"""Captured exchanges of every kind, made once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from contract.flows import SPECS
from contract.flows.chat import ChatRequest
from contract.model import Chunk
from contract.records import RunRecord
from cutover.selftest.cases import case
from router.capture.writer import (
    CaptureWriter,
)
from router.config.schema import CaptureSettings, RedactionSettings
from tests.support.flow_runs import Case
from tests.support.planted_faults import served

MANY = 140
"""More than one part of a replay takes; every kind of ending is among them."""
OPEN = RedactionSettings(paths=(), patterns={})
"""Nothing is redacted in these exchanges: they hold no personal data but names."""


def store(batches: list[list[RunRecord]], folder: Path, redact: RedactionSettings = OPEN) -> Path:
    """Write exchanges down as the router does; gives the folder."""
    asyncio.run(_store(batches, folder, redact))
    return folder


async def _store(batches: list[list[RunRecord]], folder: Path, redact: RedactionSettings) -> None:
    captures = CaptureSettings(path=str(folder), queue=10_000, redact=redact)
    writer = CaptureWriter(captures, SPECS, salt="replay", key=b"replay")
    for batch in batches:
        writer.put(batch)
    assert await writer.aclose(60.0) == 0


@pytest.fixture(scope="session")
def exchanges() -> list[list[RunRecord]]:
    """Return enough exchanges for two parts: legacy serves, graph runs in the shadow."""
    return served(map(case, range(MANY)))


@pytest.fixture(scope="session")
def alone(exchanges: list[list[RunRecord]]) -> list[list[RunRecord]]:
    """Return the same exchanges as they are without a shadow."""
    return [[run for run in batch if run.role == "serving"] for batch in exchanges]


def answered(names: Iterable[str]) -> list[list[RunRecord]]:
    """Serve a greeting for every name, on legacy alone."""
    said = (Chunk(text="Hello"), Chunk(text=" there.", finish="stop"))
    batches = served(
        Case(ChatRequest(message_id=name, content="hi"), answers=(said,)) for name in names
    )
    return [[run for run in batch if run.role == "serving"] for batch in batches]
