"""The audit: one line a change, in the log and in a file."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from router.admin.audit import Change, write_audit

CHANGE = Change(
    at=1_790_000_000_000_000,
    who="alice",
    what="percent",
    flow="chat",
    before={"langgraph_percent": Decimal("10.000")},
    after={"langgraph_percent": Decimal("25.500")},
)
LINE = {
    "at": 1_790_000_000_000_000,
    "who": "alice",
    "what": "percent",
    "flow": "chat",
    "before": {"langgraph_percent": 10.0},
    "after": {"langgraph_percent": 25.5},
}


def test_changes_are_appended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who, when, what, before and after; the folder is made."""
    file = tmp_path / "var" / "audit.jsonl"
    write_audit(file, CHANGE)
    write_audit(file, CHANGE)
    lines = file.read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [LINE, LINE]
    assert caplog.messages == [f"changed: {lines[0]}"] * 2


def test_a_file_that_cannot_be_written_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was done stays done, and the log still says who did it."""
    (tmp_path / "file").write_text("")
    write_audit(tmp_path / "file" / "audit.jsonl", CHANGE)
    assert "alice" in caplog.messages[0]
    assert "cannot be written" in caplog.messages[1]
