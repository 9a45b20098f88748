"""The flows this deployment knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from contract.flows.chat import CHAT
from contract.flows.companion import COMPANION
from contract.flows.session import SESSION
from router.config import configured_flows, load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.flow import FlowSpec
    from contract.flows.declared import DeclaredFlow
    from router.config import Settings

SPECS: Mapping[str, FlowSpec] = {spec.name: spec for spec in (CHAT, COMPANION, SESSION)}
"""The built-in ones."""

DEFAULT_CONFIG = Path("cutover.toml")


def flows_at(config: Path | None) -> Mapping[str, FlowSpec]:
    """Give the flows a file knows, the file at the default place if there is one.

    Raises `ConfigRefused`.
    """
    if config is None and not DEFAULT_CONFIG.exists():
        return SPECS
    return flows_of(load_settings(config or DEFAULT_CONFIG, SPECS))


def declared_at(config: Path | None, name: str) -> DeclaredFlow | None:
    """Give what a file says of the wire of a flow, None of one that is built in or unknown.

    Raises `ConfigRefused`.
    """
    if name in SPECS or (config is None and not DEFAULT_CONFIG.exists()):
        return None
    flow = load_settings(config or DEFAULT_CONFIG, SPECS).flows.get(name)
    return None if flow is None else flow.declared


def flows_of(settings: Settings) -> dict[str, FlowSpec]:
    """Give the flows a configuration knows: the built-in ones, and those it declares."""
    return configured_flows(settings.flows, SPECS)
