"""`cutover.toml`, read once at the edge into one frozen, typed value."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import get_args

import msgspec

from contract.declared_flow import declared_spec
from contract.flow import FlowSpec
from router.abilities import (
    lacking,
    powers_of,
    resumable_fault,
    service_gap,
    shadow_fault,
)
from router.addresses import (
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
from router.declared_flows import KEYS as DECLARING
from router.declared_flows import declared_in
from router.flags.values import KINDS
from router.flow_settings import FlowSettings, flow_settings, percent
from router.patterns import Patterns, compiled
from router.rollout import Stack as StackName
from router.sections import (
    Address,
    Admin,
    BreakerRules,
    Captures,
    Embeddings,
    Flags,
    Gateway,
    Limits,
    Log,
    Metrics,
    ModelEntry,
    Pauses,
    Prompts,
    Provider,
    Rate,
    Rescue,
    Rollout,
    Server,
    Shadow,
    Stacks,
    Stores,
    Tools,
    Tracing,
)
from router.toml_table import (
    ConfigRefused,
    Table,
    checked,
    converted,
    read_toml,
    shown,
    subtable,
    tables,
    unknown,
)
from router.tool_servers import tools_section

_SECTIONS = (
    "rollout",
    "flows",
    "server",
    "limits",
    "rate",
    "breaker",
    "admin",
    "shadow",
    "captures",
    "metrics",
    "tracing",
    "log",
    "stores",
    "embeddings",
    "pauses",
    "stacks",
    "flags",
    "providers",
    "models",
    "rescue",
    "gateway",
    "tools",
    "prompts",
)
_CHANGED_BY = "changed_by"
_VERSION_BYTES = 6


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a deployment configures; every known flow is in `flows`, named in it or not.

    `version` is a short digest of the content, equal for files that mean the same. `changed_by` is
    who says to have written it, and no part of what it means; nor is `prompts`, to the router.
    """

    rollout: Rollout = Rollout()
    flows: dict[str, FlowSettings] = {}
    server: Server = Server()
    limits: Limits = Limits()
    rate: Rate = Rate()
    breaker: BreakerRules = BreakerRules()
    admin: Admin = Admin()
    shadow: Shadow = Shadow()
    captures: Captures = Captures()
    metrics: Metrics = Metrics()
    tracing: Tracing = Tracing()
    log: Log = Log()
    stores: Stores = Stores()
    embeddings: Embeddings = Embeddings()
    pauses: Pauses = Pauses()
    stacks: Stacks = Stacks()
    flags: Flags = Flags()
    providers: dict[str, Provider] = {}
    models: dict[str, ModelEntry] = {}
    rescue: Rescue = Rescue()
    gateway: Gateway = Gateway()
    tools: Tools = Tools()
    prompts: Prompts = Prompts()
    version: str = ""
    changed_by: str = ""

    @property
    def patterns(self) -> Patterns:
        """The compiled patterns of `[captures.redact]`."""
        return compiled(self.captures.redact.patterns)


def load(path: Path, specs: Mapping[str, FlowSpec]) -> Settings:
    """Read the file; raises `ConfigRefused`, also where it cannot be read."""
    return parse(read_text(path), str(path), specs)


def read_text(path: Path) -> str:
    """Give the text of a configuration file, without a byte order mark; raises `ConfigRefused`."""
    try:
        return path.read_bytes().decode("utf-8-sig")  # line ends as they are
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigRefused(str(path), "", f"cannot be read: {reason}") from error
    except UnicodeDecodeError as error:
        raise ConfigRefused(str(path), "", f"not UTF-8 at byte {error.start}") from error


def parse(text: str, where: str, specs: Mapping[str, FlowSpec]) -> Settings:
    """Read the text of a file called `where`; raises `ConfigRefused`."""
    table = read_toml(text, where)
    for name in table:
        if name not in _SECTIONS and name != _CHANGED_BY:
            raise unknown(where, name, _SECTIONS, "section")
    settings = Settings(
        rollout=converted(subtable(table, "rollout", where), Rollout, where, "rollout."),
        flows=_flows(table, where, specs),
        server=converted(subtable(table, "server", where), Server, where, "server."),
        limits=converted(subtable(table, "limits", where), Limits, where, "limits."),
        rate=converted(subtable(table, "rate", where), Rate, where, "rate."),
        breaker=converted(subtable(table, "breaker", where), BreakerRules, where, "breaker."),
        admin=converted(subtable(table, "admin", where), Admin, where, "admin."),
        shadow=converted(subtable(table, "shadow", where), Shadow, where, "shadow."),
        captures=_captures(table, where),
        metrics=converted(subtable(table, "metrics", where), Metrics, where, "metrics."),
        tracing=_tracing(table, where),
        log=converted(subtable(table, "log", where), Log, where, "log."),
        stores=converted(subtable(table, "stores", where), Stores, where, "stores."),
        embeddings=converted(
            subtable(table, "embeddings", where), Embeddings, where, "embeddings."
        ),
        pauses=converted(subtable(table, "pauses", where), Pauses, where, "pauses."),
        stacks=converted(subtable(table, "stacks", where), Stacks, where, "stacks."),
        flags=converted(subtable(table, "flags", where), Flags, where, "flags."),
        providers=_providers(table, where),
        models=_models(table, where),
        changed_by=_changed_by(table, where),
        rescue=converted(subtable(table, "rescue", where), Rescue, where, "rescue."),
        gateway=converted(subtable(table, "gateway", where), Gateway, where, "gateway."),
        tools=tools_section(table, where),
        prompts=converted(subtable(table, "prompts", where), Prompts, where, "prompts."),
    )
    _check(settings, where)
    return msgspec.structs.replace(settings, version=_version(settings))


def _version(settings: Settings) -> str:
    content = msgspec.json.encode(
        msgspec.structs.replace(settings, changed_by="", prompts=Prompts()), order="deterministic"
    )
    return blake2b(content, digest_size=_VERSION_BYTES).hexdigest()


def _changed_by(table: Table, where: str) -> str:
    name = table.get(_CHANGED_BY, "")
    if not isinstance(name, str):
        raise ConfigRefused(where, _CHANGED_BY, "a name is due", shown(_CHANGED_BY, name))
    return name


def _flows(table: Table, where: str, specs: Mapping[str, FlowSpec]) -> dict[str, FlowSettings]:
    named = tables(table, "flows", where)
    own = declared_in(named, specs, where)
    found = {name: flow_settings(named.get(name, {}), spec, where) for name, spec in specs.items()}
    for name, declared in own.items():
        rollout = {key: value for key, value in named[name].items() if key not in DECLARING}
        spec = declared_spec(name, declared)
        found[name] = flow_settings(rollout, spec, where, declared)
    return found


def _captures(table: Table, where: str) -> Captures:
    found = converted(subtable(table, "captures", where), Captures, where, "captures.")
    share = percent(found.percent, where, "captures.percent")
    return msgspec.structs.replace(found, percent=share)


def _tracing(table: Table, where: str) -> Tracing:
    found = converted(subtable(table, "tracing", where), Tracing, where, "tracing.")
    share = percent(found.percent, where, "tracing.percent")
    return msgspec.structs.replace(found, percent=share)


def _providers(table: Table, where: str) -> dict[str, Provider]:
    return {
        name: converted(below, Provider, where, f"providers.{name}.")
        for name, below in tables(table, "providers", where).items()
    }


def _models(table: Table, where: str) -> dict[str, ModelEntry]:
    found: dict[str, ModelEntry] = {}
    for name, below in tables(table, "models", where).items():
        _refuse_unquoted(name, below, where)
        entry = converted(below, ModelEntry, where, f"models.{name}.")
        found[name] = msgspec.structs.replace(entry, model=entry.model or name)
    return found


def _refuse_unquoted(name: str, table: Table, where: str) -> None:
    # `[models.gpt-4.1]` is TOML for the table "1" inside "gpt-4".
    for key, value in table.items():
        if isinstance(value, Mapping):
            quoted = f'[models."{name}.{key}"]'
            raise ConfigRefused(where, f"models.{name}.{key}", f"a dot needs quotes: {quoted}")


def _check(settings: Settings, where: str) -> None:
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


def _check_embeddings(embeddings: Embeddings, where: str) -> None:
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


def _check_limits(limits: Limits, where: str) -> None:
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


def _check_flags(flags: Flags, where: str) -> None:
    checked(attribute_fault, flags.user, where, "flags.user")
    checked(attribute_fault, flags.tenant, where, "flags.tenant")
    for name in flags.ask:
        if name not in KINDS:
            raise unknown(where, "flags.ask", KINDS, "flag", name)


def _check_model(name: str, settings: Settings, where: str) -> None:
    entry = settings.models[name]
    if entry.provider not in settings.providers:
        key = f"models.{name}.provider"
        raise unknown(where, key, settings.providers, "provider", entry.provider)
    for fallback in entry.fallbacks:
        key = f"models.{name}.fallbacks"
        if fallback == name:
            raise ConfigRefused(where, key, "a model cannot be its own fallback", repr(name))
        if fallback not in settings.models:
            raise unknown(where, key, settings.models, "model", fallback)


def _check_redaction(captures: Captures, where: str) -> None:
    for index, path in enumerate(captures.redact.paths):
        key = f"captures.redact.paths[{index}]"
        first = path.partition(".")[0]
        if first not in ("request", "tape", "frames") or not all(path.split(".")):
            why = "allowed: dotted paths that begin with request, tape or frames"
            raise ConfigRefused(where, key, why, shown(key, path))
    for name, expression in captures.redact.patterns.items():
        key = f"captures.redact.patterns.{name}"
        try:
            compiled({name: expression})
        except ValueError as error:
            raise ConfigRefused(where, key, str(error), shown(key, expression)) from error


def _check_stacks(settings: Settings, where: str) -> None:
    for name in get_args(StackName):
        place = settings.stacks.place(name)
        if isinstance(place, Address):
            checked(service_fault, place.url, where, f"stacks.{name}.url")
            for named, path in place.paths.items():
                key = f"stacks.{name}.paths.{named}"
                if named not in settings.flows:
                    raise unknown(where, key, settings.flows, "flow")
                checked(path_fault, path, where, key)
            if why := resumable_fault(place, settings.gateway):
                raise ConfigRefused(where, f"stacks.{name}.resumable", why, "true")
            for named in sorted(place.flows - settings.flows.keys()):
                raise unknown(where, f"stacks.{name}.flows", settings.flows, "flow", named)
    powers = powers_of(settings.stacks)
    for name, flow in settings.flows.items():
        if why := service_gap(name, flow, settings.stacks):
            raise ConfigRefused(where, f"flows.{name}", why)
        if why := shadow_fault(flow, powers, lacking(name, flow, settings.stacks)):
            key = f"flows.{name}.shadow_percent"
            raise ConfigRefused(where, key, why, shown(key, flow.shadow_percent))
