"""The new stack: the same files as the old one, driven by the graph engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graph_impl.chat import chat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.flow import Flow

FLOWS: Mapping[str, Flow] = {"chat": chat()}

__all__ = ["FLOWS"]
