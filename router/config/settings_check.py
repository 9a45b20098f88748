"""What a configuration may hold beside the types of its values, and what fits together."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from router.config.addresses import (
    STORES,
    attribute_fault,
    endpoint_fault,
    network_fault,
    on_loopback,
    path_fault,
    place_fault,
    service_fault,
    variable_fault,
)
from router.config.capabilities import (
    powers_of,
    resumable_fault,
    service_gap,
    shadow_fault,
    stacks_without,
)
from router.config.flow_settings import FLAG_KINDS
from router.config.patterns import compile_patterns
from router.config.sections import RemoteStackSettings
from router.config.toml_table import ConfigRefused, checked, display_value, unknown_name
from router.stack import StackName

if TYPE_CHECKING:
    from router.config.sections import (
        CaptureSettings,
        EmbeddingSettings,
        FlagSettings,
        LimitSettings,
    )
    from router.config.settings import Settings


def check(settings: Settings, where: str) -> None:
    """Refuse values that are not allowed, or do not fit together; raises `ConfigRefused`."""
    checked(variable_fault, settings.server.qa_key_env, where, "server.qa_key_env")
    for index, proxy in enumerate(settings.server.trusted_proxies):
        checked(network_fault, proxy, where, f"server.trusted_proxies[{index}]")
    checked(variable_fault, settings.admin.token_env, where, "admin.token_env")
    checked(
        variable_fault, settings.captures.pseudonym_key_env, where, "captures.pseudonym_key_env"
    )
    checked(variable_fault, settings.tracing.endpoint_env, where, "tracing.endpoint_env")
    checked(place_fault, settings.captures.path, where, "captures.path")
    for name, fault in STORES.items():
        checked(fault, getattr(settings.stores, name), where, f"stores.{name}")
    checked(variable_fault, settings.pauses.key_env, where, "pauses.key_env")
    _check_embeddings(settings.embeddings, where)
    _check_limits(settings.limits, where)
    _check_shadow(settings, where)
    _check_flags(settings.flags, where)
    _check_gateway(settings, where)
    for name, provider in settings.providers.items():
        checked(endpoint_fault, provider.base_url, where, f"providers.{name}.base_url")
        checked(variable_fault, provider.key_env, where, f"providers.{name}.key_env")
    for name in settings.models:
        _check_model(name, settings, where)
    _check_redaction(settings.captures, where)
    _check_stacks(settings, where)


def _check_embeddings(embeddings: EmbeddingSettings, where: str) -> None:
    checked(variable_fault, embeddings.key_env, where, "embeddings.key_env")
    if not embeddings.base_url:
        return
    checked(endpoint_fault, embeddings.base_url, where, "embeddings.base_url")
    if embeddings.local:
        why = "allowed: an endpoint or the local model, not both"
        raise ConfigRefused(where, "embeddings.local", why, "true")
    for key in ("model", "dimensions"):
        if not (value := getattr(embeddings, key)):
            why = "required with base_url: it says whose vectors they are"
            raise ConfigRefused(where, f"embeddings.{key}", why, repr(value))


def _check_limits(limits: LimitSettings, where: str) -> None:
    if limits.tool_seconds >= limits.write_seconds:
        # A tool stopped from outside has no result: the reply would fail instead of going on.
        why = f"allowed: less than write_seconds, which is {limits.write_seconds:g}"
        raise ConfigRefused(where, "limits.tool_seconds", why, repr(limits.tool_seconds))


def _check_shadow(settings: Settings, where: str) -> None:
    shadow = settings.shadow
    if shadow.mode == "live" and not (shadow.tokens_per_day or shadow.cost_per_day):
        why = "shadows that ask the model need a budget: tokens_per_day or cost_per_day"
        raise ConfigRefused(where, "shadow.mode", why, repr(shadow.mode))
    if shadow.history == "own" and shadow.mode != "live":
        why = 'a shadow has replies of its own where it asks the model: mode = "live" is due'
        raise ConfigRefused(where, "shadow.history", why, repr(shadow.history))
    if shadow.mode == "live" and not shadow.tokens_per_day:
        _check_prices(settings, where)


def _check_prices(settings: Settings, where: str) -> None:
    """Refuse a budget in money where what is asked has no price: it would never be too much."""
    unpriced = [name for name, one in settings.models.items() if not one.priced]
    if unpriced or not settings.models:
        which = f"models.{unpriced[0]} has no price" if unpriced else "no model has a price"
        why = f"{which}, so this is no budget: set both its prices, or tokens_per_day"
        raise ConfigRefused(where, "shadow.cost_per_day", why, repr(settings.shadow.cost_per_day))


def _check_gateway(settings: Settings, where: str) -> None:
    gateway = settings.gateway
    checked(variable_fault, gateway.key_env, where, "gateway.key_env")
    if gateway.enabled and not gateway.key_env and not on_loopback(settings.server.host):
        why = "a key is required where others can reach the router ([server] host)"
        raise ConfigRefused(where, "gateway.key_env", why, repr(gateway.key_env))


def _check_flags(flags: FlagSettings, where: str) -> None:
    checked(attribute_fault, flags.user, where, "flags.user")
    checked(attribute_fault, flags.tenant, where, "flags.tenant")
    for name in flags.ask:
        if name not in FLAG_KINDS:
            raise unknown_name(where, "flags.ask", FLAG_KINDS, "flag", name)


def _check_model(name: str, settings: Settings, where: str) -> None:
    entry = settings.models[name]
    if entry.provider not in settings.providers:
        key = f"models.{name}.provider"
        raise unknown_name(where, key, settings.providers, "provider", entry.provider)
    for fallback in entry.fallbacks:
        key = f"models.{name}.fallbacks"
        if fallback == name:
            raise ConfigRefused(where, key, "a model cannot be its own fallback", repr(name))
        if fallback not in settings.models:
            raise unknown_name(where, key, settings.models, "model", fallback)


def _check_redaction(captures: CaptureSettings, where: str) -> None:
    for index, path in enumerate(captures.redact.paths):
        key = f"captures.redact.paths[{index}]"
        first = path.partition(".")[0]
        if first not in ("request", "tape", "frames") or not all(path.split(".")):
            why = "allowed: dotted paths that begin with request, tape or frames"
            raise ConfigRefused(where, key, why, display_value(key, path))
    for name, expression in captures.redact.patterns.items():
        key = f"captures.redact.patterns.{name}"
        try:
            compile_patterns({name: expression})
        except ValueError as error:
            raise ConfigRefused(where, key, str(error), display_value(key, expression)) from error


def _check_stacks(settings: Settings, where: str) -> None:
    for name in get_args(StackName):
        place = settings.stacks.place(name)
        if isinstance(place, RemoteStackSettings):
            checked(service_fault, place.url, where, f"stacks.{name}.url")
            for named, path in place.paths.items():
                key = f"stacks.{name}.paths.{named}"
                if named not in settings.flows:
                    raise unknown_name(where, key, settings.flows, "flow")
                checked(path_fault, path, where, key)
            if why := resumable_fault(place, settings.gateway):
                raise ConfigRefused(where, f"stacks.{name}.resumable", why, "true")
            for named in sorted(place.flows - settings.flows.keys()):
                raise unknown_name(where, f"stacks.{name}.flows", settings.flows, "flow", named)
    powers = powers_of(settings.stacks)
    for name, flow in settings.flows.items():
        if why := service_gap(name, flow, settings.stacks):
            raise ConfigRefused(where, f"flows.{name}", why)
        if why := shadow_fault(flow, powers, stacks_without(name, flow, settings.stacks)):
            key = f"flows.{name}.shadow_percent"
            raise ConfigRefused(where, key, why, display_value(key, flow.shadow_percent))
