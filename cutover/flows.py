"""The flows this deployment knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.chat import CHAT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.flow import FlowSpec

SPECS: Mapping[str, FlowSpec] = {spec.name: spec for spec in (CHAT,)}
