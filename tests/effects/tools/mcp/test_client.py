"""What a model is given of an answer."""

from __future__ import annotations

import base64
import logging

import pytest
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    TextContent,
    TextResourceContents,
)

from effects.tools.mcp.client import MAX_LINE_BYTES, LineLogger, answer_text


def encoded(size: int) -> str:
    """Return so many bytes as they travel."""
    return base64.b64encode(b"x" * size).decode()


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (TextContent(text="家"), "家"),
        *(
            (
                AudioContent(data=encoded(size), mime_type="audio/wav"),
                f"[audio audio/wav, {size} bytes, not shown]",
            )
            for size in (0, 1, 2, 3)
        ),
        (
            EmbeddedResource(resource=TextResourceContents(uri="file:///a", text="家")),
            "[resource file:///a, of no type, 3 bytes, not shown]",
        ),
        (
            EmbeddedResource(
                resource=BlobResourceContents(
                    uri="file:///b", blob=encoded(5), mime_type="image/png"
                )
            ),
            "[resource file:///b, image/png, 5 bytes, not shown]",
        ),
    ],
)
def test_what_is_no_text_is_named(block: ContentBlock, text: str) -> None:
    """With its kind and size, so that the model knows there is something."""
    assert answer_text(CallToolResult(content=[block])) == text


def test_a_structure_is_told_where_there_is_no_text() -> None:
    """Servers repeat it as text, which would be told twice."""
    structure = {"b": 1, "a": ["家"]}
    assert answer_text(CallToolResult(content=[], structured_content=structure)) == (
        '{"b":1,"a":["家"]}'
    )
    both = CallToolResult(content=[TextContent(text="one")], structured_content=structure)
    assert answer_text(both) == "one"
    assert answer_text(CallToolResult(content=[])) == ""


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
