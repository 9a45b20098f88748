"""What a server says on its standard error, line by line."""

from __future__ import annotations

import logging

import pytest

from effects.tools.mcp.client import MAX_LINE_BYTES, LineLogger


def told(caplog: pytest.LogCaptureFixture, *pieces: bytes) -> list[str]:
    """Return the lines the log gets."""
    caplog.set_level(logging.INFO)
    lines = LineLogger("s")
    for piece in pieces:
        lines.data_received(piece)
    lines.eof_received()
    return [one.getMessage().removeprefix("MCP server 's': ") for one in caplog.records]


def test_lines_are_put_together(caplog: pytest.LogCaptureFixture) -> None:
    """However they are cut; empty ones say nothing, the last may lack its end."""
    assert told(caplog, b"on", b"e\n\ntw", b"o\r\n", b"\xe5\xae\xb6\xff\nend") == [
        "one",
        "two",
        "家\ufffd",
        "end",
    ]


def test_a_long_line_is_told_by_its_beginning(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of it is kept, and the next is told again."""
    long = [b"x" * 700] * 10
    assert told(caplog, *long, b"\nnext\n") == ["x" * MAX_LINE_BYTES, "next"]
