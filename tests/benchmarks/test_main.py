"""`python -m benchmarks`: names, rows in a file, progress of each bench."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.__main__ import BENCHES, main, run
from benchmarks.harness import QUICK, Effort
from benchmarks.rows import BenchRow, reported


async def one(effort: Effort) -> Sequence[BenchRow]:
    """Measure nothing, and tell how far that is."""
    effort.advance(0.5)
    return [reported("one", 1.0, "ms", "made up")]


async def two(_: Effort) -> Sequence[BenchRow]:
    """Measure nothing either."""
    return [reported("two", 2.0, "ms", "made up")]


async def test_benches_run_one_after_the_other() -> None:
    """Their rows come in the order of the registry."""
    rows = await run({"one": one, "two": two}, QUICK, Console(file=StringIO()))
    assert [row.name for row in rows] == ["one", "two"]


def test_sigterm_ends_what_a_bench_has_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It unwinds; the exit status is a shell's."""
    ended = []

    async def hangs(_: Effort) -> Sequence[BenchRow]:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            ended.append("hangs")
        return []

    monkeypatch.setitem(BENCHES, "hangs", hangs)
    monkeypatch.setattr(sys, "argv", ["bench", "hangs", "--out", str(tmp_path / "rows.json")])
    with pytest.raises(SystemExit) as left:
        main()
    assert (left.value.code, ended) == (143, ["hangs"])


def test_an_unknown_bench_is_refused_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is measured."""
    monkeypatch.setattr(sys, "argv", ["bench", "speed"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err
    assert all(name in said for name in ("'speed'", *BENCHES))
