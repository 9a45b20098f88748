"""Recorded streams without captures: each file is a run, and has its line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cutover.errors import CutoverError, Failed, Outcome
from cutover.flow import Flow
from cutover.records import FrameRecord, RunRecord
from cutover.wire import End, Piece

SUFFIXES: Final = frozenset({".sse", ".ndjson", ".jsonl", ".txt"})


def recorded(folder: Path, stack: str, flow: Flow) -> Iterator[RunRecord]:
    """Yield the runs of a folder's streams; those of one name, its suffix apart, are a pair.

    `flow` reads them as the router reads a service's answer. Raises `OSError`.
    """
    for path in sorted(one for one in folder.rglob("*") if one.suffix in SUFFIXES):
        body = path.read_bytes()
        yield RunRecord(
            exchange=path.relative_to(folder).with_suffix("").as_posix(),
            flow=flow.name,
            path="",
            role="serving" if stack == "legacy" else "replay",
            policy="live",
            stack=stack,
            assigned="legacy",
            served="legacy",
            at=0,
            outcome=_outcome(body, flow),
            request="{}",
            options="null",
            frames=(FrameRecord.of(0, body),),
        )


def _outcome(body: bytes, flow: Flow) -> Outcome:
    framing = flow.framer()
    try:
        for event in (Piece(body), End()):
            framing.read(event)
    except CutoverError as error:
        return Failed("stack_failed", detail=str(error))
    return framing.ending
