"""Traces: captured requests are sent again when they came, with what they asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cutover.load_trace import NothingCaptured, captured_requests, trace_of
from tests.support.capture_files import BEGAN
from tests.support.records import a_request, a_run


def line(began: int, content: str, **changed: Any) -> bytes:
    """One line of captures: a run that began so many microseconds after the first."""
    request = a_request({"message_id": "m", "content": content})
    run = a_run(f"e{began}", began=BEGAN + began, request=request)
    return msgspec.json.encode(msgspec.structs.replace(run, **changed))


def test_requests_are_sent_as_they_came(tmp_path: Path) -> None:
    """Served requests of the flow alone, in their order; shadows and torn lines are left out."""
    lines = [
        line(2_500_000, "second"),
        line(0, "first"),
        line(1, "shadowed", role="shadow"),
        line(2, "another flow", flow="session"),
        line(3, "no request", request=None),
        b'{"torn',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    found = captured_requests(str(tmp_path), "chat")
    assert trace_of(found, tmp_path / "bodies") == (0.0, 2.5)
    bodies = (tmp_path / "bodies").read_bytes().splitlines()
    assert [msgspec.json.decode(body)["content"] for body in bodies] == ["first", "second"]


def test_captures_without_the_flow_are_refused(tmp_path: Path) -> None:
    """With the flow's name."""
    (tmp_path / "a.jsonl").write_bytes(line(0, "first"))
    with pytest.raises(NothingCaptured, match="'ops'"):
        captured_requests(str(tmp_path), "ops")
