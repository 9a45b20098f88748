"""Parameters every prompt gets."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from contract.chat import PromptValue


def parameters(
    now: datetime, timezone: str, overrides: Mapping[str, PromptValue] | None
) -> dict[str, PromptValue]:
    """Build the parameters of a prompt; what a request sends overrides the built-in ones."""
    local = now.astimezone(ZoneInfo(timezone))
    return {
        "current_date": local.strftime("%Y-%m-%d"),
        "current_time": local.strftime("%H:%M:%S"),
        **(overrides or {}),
    }
