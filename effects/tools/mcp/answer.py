"""The answer of an MCP tool as text for a model: what is no text is named, not written out."""

from __future__ import annotations

from typing import assert_never

import msgspec
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)


def answer_text(result: CallToolResult) -> str:
    """Put the blocks of an answer below each other; without any, its structure as JSON.

    A tool with a structured answer repeats it as text (MCP asks for it), so text is enough.
    """
    blocks = "\n".join(_block(one) for one in result.content)
    if blocks or result.structured_content is None:
        return blocks
    return msgspec.json.encode(result.structured_content).decode()


def _block(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return f"[{block.type} {block.mime_type}, {_bytes(block.data)} bytes, not shown]"
        case ResourceLink():
            return f"[resource {block.name}: {block.uri}]"
        case EmbeddedResource():
            return _resource(block)
        case _:
            assert_never(block)


def _resource(block: EmbeddedResource) -> str:
    inside = block.resource
    match inside:
        case TextResourceContents():
            size = len(inside.text.encode())
        case BlobResourceContents():
            size = _bytes(inside.blob)
        case _:
            assert_never(inside)
    return f"[resource {inside.uri}, {inside.mime_type or 'of no type'}, {size} bytes, not shown]"


def _bytes(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")
