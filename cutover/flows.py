"""The flows of this deployment, the configuration that declares more, and what does not count."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from compare.rules import NO_RULES, Rules, read_rules
from contract.flow import FlowSpec
from contract.flows import SPECS
from contract.flows.declared import DeclaredFlow
from router.config.loader import configured_flows, load_settings, parse_settings
from router.config.schema import Settings

DEFAULT_CONFIG = Path("cutover.toml")
RULES = Path("diff.toml")


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


def rules_at(path: Path | None, settings: Settings) -> Rules:
    """Read what does not count: from a file, else the one that the configuration names.

    Without either, from `diff.toml` if it is there. Raises `DeclarationRefused`.
    """
    path = path or (Path(settings.shadow.rules) if settings.shadow.rules else None)
    return NO_RULES if path is None and not RULES.exists() else read_rules(path or RULES)


def flows_of(settings: Settings) -> dict[str, FlowSpec]:
    """Return the built-in flows and those a configuration declares."""
    return configured_flows(settings.flows, SPECS)
