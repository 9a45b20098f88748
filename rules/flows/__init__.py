"""The five built-in flows: requests, options, events and grammars."""

from collections.abc import Mapping
from typing import Final

from cutover.flow_spec import FlowSpec
from rules.flows.chat import CHAT
from rules.flows.companion import COMPANION
from rules.flows.ops import OPS
from rules.flows.pipeline import PIPELINE
from rules.flows.session import SESSION

FLOWS: Final[Mapping[str, FlowSpec]] = {
    flow.name: flow for flow in (CHAT, COMPANION, SESSION, PIPELINE, OPS)
}
"""The built-in flows by name."""

__all__ = ["CHAT", "COMPANION", "FLOWS", "OPS", "PIPELINE", "SESSION"]
