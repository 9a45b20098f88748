"""`cutover demo` from end to end, small: it ends well and leaves no process behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from cutover.cli import app
from cutover.demo.messages import BUNDLED
from tests.e2e.deployment import captured


def children() -> set[int]:
    """Give the processes this one has started and that have not ended."""
    return set(_children(os.getpid()))


def _children(parent: int) -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(fields[1]) == parent:
            yield int(stat.parent.name)


@pytest.mark.slow
@pytest.mark.sockets
def test_the_whole_story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 0, a takeover that was seen, reports that exist, and nobody left."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    messages = tmp_path / "messages.jsonl"
    messages.write_bytes(b"\n".join(BUNDLED.read_bytes().split(b"\n")[:6]))
    out = tmp_path / "out"
    before = children()
    arguments = ["--messages", messages, "--out", out, "--seconds", 1, "--users", 2]
    result = CliRunner().invoke(app, ["demo", *map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert children() == before
    assert ": served-by legacy" in result.output
    assert "the planted crash, and nothing else" in result.output
    for name in ("report/report.html", "report/report.json", "load/load.html", "cutover.toml"):
        assert (out / name).stat().st_size > 0
    lines = [msgspec.json.decode(line) for line in captured(out, "flow=*").splitlines()]
    assert {line["role"] for line in lines} == {"serving", "fallback", "shadow"}
    assert "Traceback" not in result.output
