"""The flows: what each takes, what it streams, how its broken streams end. One module a flow."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from contract.flow import FlowSpec
from contract.flows.chat import CHAT
from contract.flows.companion import COMPANION
from contract.flows.ops import OPS
from contract.flows.pipeline import PIPELINE
from contract.flows.session import SESSION

SPECS: Final[Mapping[str, FlowSpec]] = MappingProxyType(
    {spec.name: spec for spec in (CHAT, COMPANION, OPS, PIPELINE, SESSION)}
)
"""The built-in flows, by name."""

__all__ = ["SPECS"]
