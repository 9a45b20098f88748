"""`cutover.toml`, read once at the edge into one frozen, typed value."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

import msgspec

from contract.flow import FlowSpec
from contract.flows.declared import declared_spec
from router.config.declared_flows import DECLARATION_KEYS, declared_in
from router.config.flow_settings import FlowSettings, checked_percent, flow_settings
from router.config.patterns import Patterns, compile_patterns
from router.config.sections import (
    AdminSettings,
    BreakerSettings,
    CaptureSettings,
    EmbeddingSettings,
    FlagSettings,
    GatewaySettings,
    LimitSettings,
    LogSettings,
    MetricsSettings,
    ModelSettings,
    PauseSettings,
    PromptSettings,
    ProviderSettings,
    RateSettings,
    RescueSettings,
    RolloutSettings,
    ServerSettings,
    ShadowSettings,
    StackSettings,
    StoreSettings,
    ToolSettings,
    TracingSettings,
)
from router.config.settings_check import check
from router.config.toml_table import (
    ConfigRefused,
    Table,
    convert_table,
    display_value,
    read_toml,
    section,
    tables,
    unknown_name,
)
from router.config.tool_servers import tools_section

_CHANGED_BY = "changed_by"
_VERSION_BYTES = 6


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a deployment configures; every known flow is in `flows`, named in it or not.

    `version` is a short digest of the content, equal for files that mean the same. `changed_by` is
    who says to have written it, and no part of what it means; nor is `prompts`, to the router.
    """

    rollout: RolloutSettings = RolloutSettings()
    flows: dict[str, FlowSettings] = {}
    server: ServerSettings = ServerSettings()
    limits: LimitSettings = LimitSettings()
    rate: RateSettings = RateSettings()
    breaker: BreakerSettings = BreakerSettings()
    admin: AdminSettings = AdminSettings()
    shadow: ShadowSettings = ShadowSettings()
    captures: CaptureSettings = CaptureSettings()
    metrics: MetricsSettings = MetricsSettings()
    tracing: TracingSettings = TracingSettings()
    log: LogSettings = LogSettings()
    stores: StoreSettings = StoreSettings()
    embeddings: EmbeddingSettings = EmbeddingSettings()
    pauses: PauseSettings = PauseSettings()
    stacks: StackSettings = StackSettings()
    flags: FlagSettings = FlagSettings()
    providers: dict[str, ProviderSettings] = {}
    models: dict[str, ModelSettings] = {}
    rescue: RescueSettings = RescueSettings()
    gateway: GatewaySettings = GatewaySettings()
    tools: ToolSettings = ToolSettings()
    prompts: PromptSettings = PromptSettings()
    version: str = ""
    changed_by: str = ""

    @property
    def patterns(self) -> Patterns:
        """The compiled patterns of `[captures.redact]`."""
        return compile_patterns(self.captures.redact.patterns)


_SECTIONS = tuple(
    name for name in Settings.__struct_fields__ if name not in ("version", _CHANGED_BY)
)


def load_settings(path: Path, specs: Mapping[str, FlowSpec]) -> Settings:
    """Read the file; raises `ConfigRefused`, also where it cannot be read."""
    return parse_settings(read_config_text(path), str(path), specs)


def read_config_text(path: Path) -> str:
    """Give the text of a configuration file, without a byte order mark; raises `ConfigRefused`."""
    try:
        return path.read_bytes().decode("utf-8-sig")  # line ends as they are
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigRefused(str(path), "", f"cannot be read: {reason}") from error
    except UnicodeDecodeError as error:
        raise ConfigRefused(str(path), "", f"not UTF-8 at byte {error.start}") from error


def parse_settings(text: str, where: str, specs: Mapping[str, FlowSpec]) -> Settings:
    """Read the text of a file called `where`; raises `ConfigRefused`."""
    table = read_toml(text, where)
    for name in table:
        if name not in _SECTIONS and name != _CHANGED_BY:
            raise unknown_name(where, name, _SECTIONS, "section")
    settings = Settings(
        rollout=section(table, "rollout", RolloutSettings, where),
        flows=_flows(table, where, specs),
        server=section(table, "server", ServerSettings, where),
        limits=section(table, "limits", LimitSettings, where),
        rate=section(table, "rate", RateSettings, where),
        breaker=section(table, "breaker", BreakerSettings, where),
        admin=section(table, "admin", AdminSettings, where),
        shadow=section(table, "shadow", ShadowSettings, where),
        captures=_captures(table, where),
        metrics=section(table, "metrics", MetricsSettings, where),
        tracing=_tracing(table, where),
        log=section(table, "log", LogSettings, where),
        stores=section(table, "stores", StoreSettings, where),
        embeddings=section(table, "embeddings", EmbeddingSettings, where),
        pauses=section(table, "pauses", PauseSettings, where),
        stacks=section(table, "stacks", StackSettings, where),
        flags=section(table, "flags", FlagSettings, where),
        providers=_providers(table, where),
        models=_models(table, where),
        changed_by=_changed_by(table, where),
        rescue=section(table, "rescue", RescueSettings, where),
        gateway=section(table, "gateway", GatewaySettings, where),
        tools=tools_section(table, where),
        prompts=section(table, "prompts", PromptSettings, where),
    )
    check(settings, where)
    return msgspec.structs.replace(settings, version=_version(settings))


def _version(settings: Settings) -> str:
    content = msgspec.json.encode(
        msgspec.structs.replace(settings, changed_by="", prompts=PromptSettings()),
        order="deterministic",
    )
    return blake2b(content, digest_size=_VERSION_BYTES).hexdigest()


def _changed_by(table: Table, where: str) -> str:
    name = table.get(_CHANGED_BY, "")
    if not isinstance(name, str):
        raise ConfigRefused(where, _CHANGED_BY, "a name is due", display_value(_CHANGED_BY, name))
    return name


def _flows(table: Table, where: str, specs: Mapping[str, FlowSpec]) -> dict[str, FlowSettings]:
    named = tables(table, "flows", where)
    own = declared_in(named, specs, where)
    found = {name: flow_settings(named.get(name, {}), spec, where) for name, spec in specs.items()}
    for name, declared in own.items():
        rollout = {key: value for key, value in named[name].items() if key not in DECLARATION_KEYS}
        spec = declared_spec(name, declared)
        found[name] = flow_settings(rollout, spec, where, declared)
    return found


def _captures(table: Table, where: str) -> CaptureSettings:
    found = section(table, "captures", CaptureSettings, where)
    share = checked_percent(found.percent, where, "captures.percent")
    return msgspec.structs.replace(found, percent=share)


def _tracing(table: Table, where: str) -> TracingSettings:
    found = section(table, "tracing", TracingSettings, where)
    share = checked_percent(found.percent, where, "tracing.percent")
    return msgspec.structs.replace(found, percent=share)


def _providers(table: Table, where: str) -> dict[str, ProviderSettings]:
    return {
        name: convert_table(below, ProviderSettings, where, f"providers.{name}.")
        for name, below in tables(table, "providers", where).items()
    }


def _models(table: Table, where: str) -> dict[str, ModelSettings]:
    found: dict[str, ModelSettings] = {}
    for name, below in tables(table, "models", where).items():
        _refuse_unquoted(name, below, where)
        entry = convert_table(below, ModelSettings, where, f"models.{name}.")
        found[name] = msgspec.structs.replace(entry, model=entry.model or name)
    return found


def _refuse_unquoted(name: str, table: Table, where: str) -> None:
    # `[models.gpt-4.1]` is TOML for the table "1" inside "gpt-4".
    for key, value in table.items():
        if isinstance(value, Mapping):
            quoted = f'[models."{name}.{key}"]'
            raise ConfigRefused(where, f"models.{name}.{key}", f"a dot needs quotes: {quoted}")
