"""The old stack: hand-written pipelines with Jinja2 prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from legacy.chat import chat
from legacy.companion import companion
from legacy.session import session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.flow import Flow

FLOWS: Mapping[str, Flow] = {"chat": chat(), "companion": companion(), "session": session()}

__all__ = ["FLOWS"]
