"""Captured pairs of answers of the chat flow, to be judged."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from contract.records import RunRecord, encode_run
from tests.support.capture_files import BEGAN
from tests.support.records import a_request, a_run


def replied(exchange: str, text: str, **fields: Any) -> RunRecord:
    """Return a run that replied with a text."""
    events = [
        {"step": "ACCEPT"},
        {"step": "START_REPLY"},
        {"step": "SEND", "content": text},
        {"step": "SUCCESS", "content": text},
        {"step": "END"},
    ]
    frames = tuple(
        (k, f"data: {msgspec.json.encode(e).decode()}\n\n") for k, e in enumerate(events)
    )
    return a_run(exchange, began=BEGAN, frames=frames, **fields)


def answered(
    exchange: str, legacy: str, graph: str, question: str = "Why?", **shadow: Any
) -> tuple[RunRecord, RunRecord]:
    """Return the runs of an exchange that both stacks answered."""
    request = a_request({"message_id": exchange, "content": question})
    return (
        replied(exchange, legacy, request=request, shadow="due"),
        replied(exchange, graph, **{"role": "shadow", "stack": "graph", **shadow}),
    )


def captured(folder: Path, exchanges: Iterable[Iterable[RunRecord]]) -> Path:
    """Write exchanges as captures; returns the folder."""
    folder.mkdir(exist_ok=True)
    lines = [encode_run(run) for runs in exchanges for run in runs]
    (folder / "part.jsonl").write_bytes(b"".join(lines))
    return folder
