"""Contract structs as plain values: what a graph's state, and a checkpoint, can hold."""

from __future__ import annotations

from typing import Any

import msgspec

from contract.tools import ToolSpec

Plain = dict[str, Any]
"""A struct as plain values."""


def plain_tool(offered: ToolSpec) -> Plain:
    """Turn an offered tool into plain values."""
    return {
        "name": offered.name,
        "description": offered.description,
        "parameters": bytes(offered.parameters).decode(),
    }


def tool(plain: Plain) -> ToolSpec:
    """Turn plain values back into an offered tool."""
    parameters = msgspec.Raw(plain["parameters"].encode())
    return ToolSpec(plain["name"], plain["description"], parameters)
