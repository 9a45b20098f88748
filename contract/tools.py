"""Tools: what is offered to a model, what it calls, what comes back."""

from __future__ import annotations

from typing import Literal

import msgspec

ToolErrorCode = Literal["unknown_tool", "bad_arguments", "tool_failed", "tool_timeout"]


class NoArguments(msgspec.Struct, frozen=True):
    """Arguments of an operation that takes none."""


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as a model is told of it; `parameters` is its JSON schema, already encoded."""

    name: str
    description: str
    parameters: msgspec.Raw


class OfferedTools(msgspec.Struct, frozen=True):
    """Result of `tools.list`."""

    tools: tuple[ToolSpec, ...]


class ToolCall(msgspec.Struct, frozen=True):
    """A call the model asked for; `arguments` is the text it wrote, valid JSON or not."""

    id: str
    name: str
    arguments: str


class ToolResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tool answered: text, or an error code. `at` as in `Chunk`."""

    content: str = ""
    error: ToolErrorCode | None = None
    at: int = 0

    @property
    def ok(self) -> bool:
        """Whether the tool answered with a result."""
        return self.error is None
