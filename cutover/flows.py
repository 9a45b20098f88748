"""The flows of this deployment, and the configuration that declares further ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from contract.flow import FlowSpec
from contract.flows.chat import CHAT
from contract.flows.companion import COMPANION
from contract.flows.declared import DeclaredFlow
from contract.flows.ops import OPS
from contract.flows.pipeline import PIPELINE
from contract.flows.session import SESSION
from router.config.loader import configured_flows, load_settings, parse_settings
from router.config.schema import Settings

SPECS: Mapping[str, FlowSpec] = {
    spec.name: spec for spec in (CHAT, COMPANION, OPS, PIPELINE, SESSION)
}
"""The built-in flows."""

DEFAULT_CONFIG = Path("cutover.toml")


def settings_at(config: Path | None) -> Settings:
    """Read a configuration; without a file at the default place, return the defaults.

    Raises `ConfigRefused`.
    """
    path = config or DEFAULT_CONFIG
    if path == DEFAULT_CONFIG and not path.exists():
        return parse_settings("", str(path), SPECS)
    return load_settings(path, SPECS)


def flows_at(config: Path | None) -> Mapping[str, FlowSpec]:
    """Return the flows a configuration knows; raises `ConfigRefused`."""
    return flows_of(settings_at(config))


def declared_at(config: Path | None, name: str) -> DeclaredFlow | None:
    """Return the declaration of a flow, None for a built-in or unknown one.

    Raises `ConfigRefused`.
    """
    flow = settings_at(config).flows.get(name) if name not in SPECS else None
    return None if flow is None else flow.declared


def flows_of(settings: Settings) -> dict[str, FlowSpec]:
    """Return the built-in flows and those a configuration declares."""
    return configured_flows(settings.flows, SPECS)
