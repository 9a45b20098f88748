"""`cutover.toml`, read once at the edge into one frozen, typed value."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

import msgspec

from contract.flow import FlowSpec
from contract.flows.declared import declared_spec
from router.declared_flows import KEYS as DECLARING
from router.declared_flows import declared_in
from router.flow_settings import FlowSettings, flow_settings, percent
from router.patterns import Patterns, compiled
from router.sections import (
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
from router.settings_check import check
from router.toml_table import (
    ConfigRefused,
    Table,
    converted,
    read_toml,
    section,
    shown,
    tables,
    unknown,
)
from router.tool_servers import tools_section

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


_SECTIONS = tuple(
    name for name in Settings.__struct_fields__ if name not in ("version", _CHANGED_BY)
)


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
        rollout=section(table, "rollout", Rollout, where),
        flows=_flows(table, where, specs),
        server=section(table, "server", Server, where),
        limits=section(table, "limits", Limits, where),
        rate=section(table, "rate", Rate, where),
        breaker=section(table, "breaker", BreakerRules, where),
        admin=section(table, "admin", Admin, where),
        shadow=section(table, "shadow", Shadow, where),
        captures=_captures(table, where),
        metrics=section(table, "metrics", Metrics, where),
        tracing=_tracing(table, where),
        log=section(table, "log", Log, where),
        stores=section(table, "stores", Stores, where),
        embeddings=section(table, "embeddings", Embeddings, where),
        pauses=section(table, "pauses", Pauses, where),
        stacks=section(table, "stacks", Stacks, where),
        flags=section(table, "flags", Flags, where),
        providers=_providers(table, where),
        models=_models(table, where),
        changed_by=_changed_by(table, where),
        rescue=section(table, "rescue", Rescue, where),
        gateway=section(table, "gateway", Gateway, where),
        tools=tools_section(table, where),
        prompts=section(table, "prompts", Prompts, where),
    )
    check(settings, where)
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
    found = section(table, "captures", Captures, where)
    share = percent(found.percent, where, "captures.percent")
    return msgspec.structs.replace(found, percent=share)


def _tracing(table: Table, where: str) -> Tracing:
    found = section(table, "tracing", Tracing, where)
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
