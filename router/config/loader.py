"""Reading `cutover.toml` into `Settings`, or refusing it with file, key, value and what to do."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from hashlib import blake2b
from itertools import permutations
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from contract.declarations import (
    MOST_BYTES,
    DeclarationRefused,
    convert_to_struct,
    decode_text,
    not_a_file,
)
from contract.flow import SESSION, FlowSpec
from contract.flows.declared import DeclaredFlow, DeclaredPause, declared_spec
from contract.operations import TOOLS_RUN, WRITES
from contract.wire import Dialect, built_in, dialect_in
from router.config.addresses import USERS, on_loopback
from router.config.capabilities import has_stack, powers_of, stack_faults
from router.config.errors import ConfigRefused, display_value, unknown_name
from router.config.schema import (
    FLAG_KINDS,
    UNKNOWN_KEY,
    FlowDeclaration,
    FlowSettings,
    PauseDeclaration,
    PromptSettings,
    RampSettings,
    RemoteStackSettings,
    Settings,
    Sticky,
)
from router.stack import StackName

M = TypeVar("M", bound=BaseModel)

_DERIVED = frozenset({"declared", "version"})
"""Fields that no file has: they follow from the others."""
_VERSION_BYTES = 6
_FLOW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_OPTION = re.compile(r"^(?P<reason>.*?)(?: - at `(?:key in )?\$\.?(?P<path>.*)`)?$", re.DOTALL)
_encoder = msgspec.json.Encoder(order="deterministic", enc_hook=vars)


def load_settings(path: Path, specs: Mapping[str, FlowSpec]) -> Settings:
    """Read the file; raises `ConfigRefused`, also where it cannot be read."""
    return parse_settings(read_config_text(path), str(path), specs)


def read_config_text(path: Path) -> str:
    """Return the text of a configuration file, without byte order mark; raises `ConfigRefused`."""
    try:
        if kind := not_a_file(path.stat().st_mode):
            raise ConfigRefused(str(path), "", f"cannot be read: {kind}")
        with path.open("rb") as file:
            return decode_text(file.read(MOST_BYTES + 1), str(path))  # line ends as they are
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigRefused(str(path), "", f"cannot be read: {reason}") from error
    except DeclarationRefused as refused:
        raise ConfigRefused(str(path), "", refused.why) from refused


def read_toml(text: str, where: str) -> dict[str, Any]:
    """Parse TOML, fractions as `Decimal`; raises `ConfigRefused`."""
    try:
        return tomllib.loads(text, parse_float=Decimal)
    # Not only its own error: thousands of digits raise a plain one.
    except ValueError as error:
        raise ConfigRefused(where, "", f"not TOML: {error}") from error
    except RecursionError as error:
        raise ConfigRefused(where, "", "nested too deeply") from error


def parse_settings(text: str, where: str, specs: Mapping[str, FlowSpec]) -> Settings:
    """Read the text of a file called `where`; raises `ConfigRefused`."""
    table = read_toml(text, where)
    flows = _flows(_subtable(table, "flows", where), where, specs)
    settings = convert_table({**table, "flows": flows}, Settings, where)
    _check_references(settings, where)
    _check_paths(settings, where, specs)
    faults = (*_conflicts(settings), *_tool_faults(settings), *_worker_faults(settings))
    for key, why in (*faults, *stack_faults(settings)):
        raise ConfigRefused(where, key, why, _shown(table, key))
    meaning = settings.model_copy(
        update={"changed_by": "", "prompts": PromptSettings(), "ramp": RampSettings()}
    )
    digest = blake2b(_encoder.encode(meaning), digest_size=_VERSION_BYTES).hexdigest()
    return settings.model_copy(update={"version": digest})


def convert_table(table: Mapping[str, Any], kind: type[M], where: str, prefix: str = "") -> M:
    """Turn a table into a section; raises `ConfigRefused` naming the key below `prefix`."""
    try:
        return kind.model_validate(table, context=_DERIVED)
    except ValidationError as error:
        raise _refusal(error, table, where, prefix) from error


def configured_flows(
    flows: Mapping[str, FlowSettings], built_ins: Mapping[str, FlowSpec]
) -> dict[str, FlowSpec]:
    """Return all flows a configuration knows: the built-in ones and those it declares."""
    declared = {
        name: declared_spec(name, flow.declared)
        for name, flow in flows.items()
        if flow.declared is not None
    }
    return {**built_ins, **declared}


def _refusal(
    error: ValidationError, table: Mapping[str, Any], where: str, prefix: str
) -> ConfigRefused:
    """Describe the error deepest in the table, a misspelt key before any other."""
    found = [(_path_in(table, one), one) for one in error.errors()]
    path, first = max(
        found, key=lambda one: (one[1]["type"] == UNKNOWN_KEY, len(one[0]), len(one[1]["loc"]))
    )
    key = prefix + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    key = key.replace("..", ".").removeprefix(".")
    if first["type"] == UNKNOWN_KEY:
        if path[:1] == ["models"] and isinstance(first["input"][path[-1]], Mapping):
            # `[models.gpt-4.1]` is TOML for the table "1" inside "gpt-4".
            why = f'a dot needs quotes: [models."{path[1]}.{path[2]}"]'
            return ConfigRefused(where, key, why)
        kind = "key" if prefix or len(path) > 1 else "section"
        return unknown_name(where, key, first["ctx"]["known"], kind)
    shown = None if first["type"] == "missing" else display_value(key, first["input"])
    return ConfigRefused(where, key, _reason(first), shown)


def _path_in(table: object, error: ErrorDetails) -> list[str | int]:
    """Return where an error is: pydantic's location without the names of union members."""
    path: list[str | int] = []
    here: Any = table
    for step in error["loc"]:
        named = isinstance(here, list) or (isinstance(here, Mapping) and step in here)
        if named:
            here = here[step]
            path.append(step)
    if error["type"] == "missing":
        path.append(error["loc"][-1])
    elif error["type"] == UNKNOWN_KEY:
        path.append(error["ctx"]["key"])
    return path


def _reason(error: ErrorDetails) -> str:
    match error["type"]:
        case "missing":
            return "required"
        case "model_type" | "dict_type" | "model_attributes_type":
            return "must be a table"
        case "value_error":
            return str(error["ctx"]["error"])
        case "literal_error":
            return f"allowed: {error['ctx']['expected'].replace(' or ', ', ')}"
        case _:
            return error["msg"].replace("Input should be", "must be")


def _subtable(parent: Mapping[str, Any], name: str, where: str, prefix: str = "") -> dict[str, Any]:
    value = parent.get(name, {})
    if not isinstance(value, dict):
        raise ConfigRefused(where, prefix + name, "must be a table", display_value(name, value))
    return value


def _shown(table: object, key: str) -> str | None:
    """Return the value at a dotted key as text; None where the file has none."""
    for step in re.findall(r"[^.\[\]]+", key):
        if isinstance(table, Mapping):
            table = table.get(step)
        elif isinstance(table, list):
            table = table[int(step)]
    return None if table is None or isinstance(table, Mapping) else display_value(key, table)


def _flows(
    table: dict[str, Any], where: str, specs: Mapping[str, FlowSpec]
) -> dict[str, FlowSettings]:
    """Read every built-in flow and those declared in the file."""
    tables = {name: _subtable(table, name, where, "flows.") for name in table}
    paths: dict[str, str] = {}
    keys = FlowDeclaration.model_fields.keys()
    found = {name: _flow(tables.get(name, {}), spec, where) for name, spec in specs.items()}
    for name in (name for name in tables if name not in specs):
        declaration = {key: value for key, value in tables[name].items() if key in keys}
        rollout = {key: value for key, value in tables[name].items() if key not in keys}
        if not {"path", "dialect"} & declaration.keys():
            refused = unknown_name(where, f"flows.{name}", specs, "flow")
            why = f"{refused.why}; one of your own needs a path and a dialect"
            raise ConfigRefused(where, refused.key, why)
        flow = _declared(name, declaration, where, specs)
        for path in (flow.path, *([flow.pause.path] if flow.pause else [])):
            if path in paths:
                raise _path_taken(where, name, path, paths[path])
            paths[path] = name
        settings = _flow(rollout, declared_spec(name, flow), where)
        if settings.prompts:
            why = "a flow of your own services has its prompts there"
            raise ConfigRefused(where, f"flows.{name}.prompts", why, repr(settings.prompts))
        found[name] = settings.model_copy(update={"declared": flow})
    return found


def _path_taken(where: str, name: str, path: str, other: str) -> ConfigRefused:
    why = f"already the path of flow {other!r}"
    return ConfigRefused(where, f"flows.{name}.path", why, repr(path))


def _flow(table: dict[str, Any], spec: FlowSpec, where: str) -> FlowSettings:
    prefix = f"flows.{spec.name}."
    for key in table.keys() & FlowDeclaration.model_fields.keys():
        why = f"flow {spec.name!r} is built in, and so is its wire"
        raise ConfigRefused(where, f"{prefix}{key}", why)
    rollout = {key: value for key, value in table.items() if key != "options"}
    found = convert_table(rollout, FlowSettings, where, prefix)
    if both := pinned_twice(found):
        raise ConfigRefused(where, f"{prefix}force_graph", PINNED_TWICE, repr(both))
    route_key = found.route_key or next(iter(spec.route_keys), "")
    if found.route_key and route_key not in spec.route_keys:
        raise unknown_name(where, f"{prefix}route_key", spec.route_keys, "route key", route_key)
    options = _options(_subtable(table, "options", where, prefix), spec.options, where, prefix)
    sticky = _sticky(found, route_key, spec, where)
    return found.model_copy(update={"route_key": route_key, "sticky": sticky, "options": options})


PINNED_TWICE = "also in force_legacy: a key can be pinned to one stack only"


def pinned_twice(flow: FlowSettings) -> str:
    """Return the first route key that is pinned to both stacks, "" where none is."""
    return min(flow.force_graph & flow.force_legacy, default="")


def _sticky(flow: FlowSettings, route_key: str, spec: FlowSpec, where: str) -> Sticky:
    """Return whether conversations are frozen: by default unless messages are routed.

    Those whose history one stack alone has always are.
    """
    has_sessions, wanted, own = SESSION in spec.route_keys, flow.sticky, flow.history == "own"
    if (own or wanted == "conversation") and not has_sessions:
        why = f"flow {spec.name!r} has no route key {SESSION!r} that would name conversations"
        key, value = ("history", flow.history) if own else ("sticky", wanted)
        raise ConfigRefused(where, f"flows.{spec.name}.{key}", why, repr(value))
    if own and wanted == "none":
        why = 'history = "own" needs "conversation": the other stack does not know it'
        raise ConfigRefused(where, f"flows.{spec.name}.sticky", why, repr(wanted))
    if own or wanted != "auto":
        return "conversation" if own else wanted
    by_message = route_key == next(iter(spec.route_keys), "") != SESSION
    return "conversation" if has_sessions and not by_message else "none"


def _options(
    table: dict[str, Any], kind: type[msgspec.Struct], where: str, prefix: str
) -> msgspec.Struct:
    hints = get_type_hints(kind)
    for name in table:
        if name not in hints:
            raise unknown_name(where, f"{prefix}options.{name}", hints)
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        found = _OPTION.match(str(error))
        path = (found and found["path"]) or ""
        reason = (found and found["reason"]) or str(error)
        if get_origin(hints.get(path)) is Literal:
            reason = "allowed: " + ", ".join(map(repr, get_args(hints[path])))
        key = f"{prefix}options.{path}".removesuffix(".")
        shown = display_value(key, table[path]) if path in table else None
        raise ConfigRefused(where, key, reason, shown) from error


def _declared(
    name: str, table: dict[str, Any], where: str, specs: Mapping[str, FlowSpec]
) -> DeclaredFlow:
    """Read what declares a flow: where it is served, and what its stream looks like."""
    if not _FLOW_NAME.fullmatch(name):
        why = "a name has letters, digits, _ and -, 64 at most"
        raise ConfigRefused(where, f"flows.{name}", why)
    declaration = convert_table(table, FlowDeclaration, where, f"flows.{name}.")
    beside: dict[str, Any] = {"name": name}
    beside |= {part: table[part] for part in ("grammar", "failure") if part in table}
    key = f"flows.{name}."
    dialect = _dialect(f"{key}dialect", declaration.dialect, beside, where, specs)
    other = None
    if declaration.graph_dialect is not None:
        other = _dialect(f"{key}graph_dialect", declaration.graph_dialect, {}, where, specs)
        if replace(other, name=name) == dialect:
            other = None  # one format
    return DeclaredFlow(
        path=declaration.path,
        dialect=dialect,
        graph_dialect=other,
        route_keys=declaration.route_keys,
        example=declaration.example,
        pause=_pause(declaration.pause, where, key),
    )


def _pause(pause: PauseDeclaration | None, where: str, key: str) -> DeclaredPause | None:
    if pause is None:
        return None
    try:
        return convert_to_struct(pause.model_dump(), DeclaredPause, where, f"{key}pause")
    except DeclarationRefused as refused:
        raise ConfigRefused(where, refused.key, refused.why) from refused


def _dialect(
    key: str, dialect: Any, beside: dict[str, Any], where: str, specs: Mapping[str, FlowSpec]
) -> Dialect:
    """Read the dialect at a key: a name, or a table; `beside` are keys that stand elsewhere.

    A table without a name is called like its key.
    """
    known = {flow: spec.dialect for flow, spec in specs.items()} | built_in()
    if isinstance(dialect, str):
        if dialect not in known:
            raise unknown_name(where, key, known, "dialect", dialect)
        dialect = msgspec.to_builtins(known[dialect])
    elif not isinstance(dialect, dict):
        why = "must be the name of a dialect, or a table"
        raise ConfigRefused(where, key, why, display_value(key, dialect))
    try:
        return dialect_in({**dialect, **beside}, where, key, key)
    except DeclarationRefused as refused:
        raise ConfigRefused(where, refused.key, refused.why) from refused


def _check_references(settings: Settings, where: str) -> None:
    """Raise `ConfigRefused` where a flag, model, provider or flow is named that is unknown."""
    for name in settings.flags.ask:
        if name not in FLAG_KINDS:
            raise unknown_name(where, "flags.ask", FLAG_KINDS, "flag", name)
    for name in settings.limits.operations:
        if name not in WRITES:
            raise unknown_name(where, "limits.operations", WRITES, "operation that writes", name)
    for name, model in settings.models.items():
        if model.provider not in settings.providers:
            key = f"models.{name}.provider"
            raise unknown_name(where, key, settings.providers, "provider", model.provider)
        for fallback in model.fallbacks:
            if fallback not in settings.models:
                key = f"models.{name}.fallbacks"
                raise unknown_name(where, key, settings.models, "model", fallback)
    for stack in get_args(StackName):
        place = settings.stacks.place(stack)
        if isinstance(place, RemoteStackSettings):
            for flow in sorted(place.paths.keys() - settings.flows.keys()):
                raise unknown_name(where, f"stacks.{stack}.paths.{flow}", settings.flows, "flow")
            for flow in sorted(place.flows - settings.flows.keys()):
                raise unknown_name(where, f"stacks.{stack}.flows", settings.flows, "flow", flow)


def _check_paths(settings: Settings, where: str, specs: Mapping[str, FlowSpec]) -> None:
    """Raise `ConfigRefused` where a declared flow has the path of a built-in one that is there.

    A built-in flow that no stack has is not offered, and leaves its path to others.
    """
    for name, flow in settings.flows.items():
        for other, spec in specs.items():
            declared = flow.declared
            pause = declared.pause if declared else None
            taken = {declared.path if declared else "", pause.path if pause else ""}
            if spec.path in taken and has_stack(other, settings):
                refused = _path_taken(where, name, spec.path, other)
                why = f"{refused.why}; flows = [{name!r}] in [stacks.…] says that they lack it"
                raise ConfigRefused(where, refused.key, why, refused.shown)


def _conflicts(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield key and reason of each value that does not fit the others."""
    limits, shadow, embeddings = settings.limits, settings.shadow, settings.embeddings
    if limits.tool_seconds >= limits.write_seconds:
        # A tool stopped from outside has no result: the reply would fail instead of going on.
        yield (
            "limits.tool_seconds",
            f"must be less than write_seconds, which is {limits.write_seconds:g}",
        )
    if (tools := limits.operations.get(TOOLS_RUN.label)) and tools <= limits.tool_seconds:
        yield "limits.operations", f"'tools.run' must be more than tool_seconds, not {tools:g}"
    if embeddings.base_url and embeddings.local:
        yield "embeddings.local", "allowed: an endpoint or the local model, not both"
    for key in ("model", "dimensions"):
        if embeddings.base_url and not getattr(embeddings, key):
            yield f"embeddings.{key}", "required with base_url: it identifies the vectors"
    yield from _budget_faults(settings)
    if shadow.history == "own" and shadow.mode != "live":
        yield "shadow.history", 'a shadow has replies of its own only with mode = "live"'
    for name, flow in settings.flows.items():
        if flow.history == "own" and flow.shadow_percent and settings.server.workers > 1:
            why = (
                'with history = "own" the shadows of a conversation run in its order, in one '
                "process: [server] workers = 1, or shadow_percent = 0"
            )
            yield f"flows.{name}.shadow_percent", why
    gateway = settings.gateway
    users = settings.server.host, settings.server.port
    host, _ = gateway.address or users
    if gateway.enabled and not gateway.key_env and not on_loopback(host):
        where = "[gateway] listen" if gateway.address else "[server] host"
        yield "gateway.key_env", f"required where others can reach the gateway ({where})"
    if gateway.address == users:
        why = f'is the address of [server]: write listen = "{USERS}", or take another port'
        yield "gateway.listen", why
    if gateway.effects and not (gateway.enabled and gateway.key_env):
        yield "gateway.effects", "needs an enabled gateway with a key (enabled = true, key_env)"
    if gateway.tool_servers and not (gateway.enabled and gateway.key_env):
        yield (
            "gateway.tool_servers",
            "needs an enabled gateway with a key (enabled = true, key_env)",
        )
    for name in sorted(set(gateway.tool_servers) - settings.tools.mcp.keys()):
        yield "gateway.tool_servers", f"names {name!r}, which [tools.mcp] does not have"
    for name, model in settings.models.items():
        if name in model.fallbacks:
            yield f"models.{name}.fallbacks", "a model cannot be its own fallback"


def _budget_faults(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield what a shadow's budget lacks, and what of it could not be enforced."""
    shadow = settings.shadow
    spending = [name for name in ("tokens_per_day", "cost_per_day") if getattr(shadow, name)]
    if shadow.mode == "live" and not (spending or shadow.requests_per_day):
        keys = "tokens_per_day, cost_per_day or requests_per_day"
        yield "shadow.mode", f"shadows with their own model calls need a budget: {keys}"
    for stack, powers in powers_of(settings.stacks).items():
        if spending and powers.shadows and not powers.taped and not settings.gateway.enabled:
            why = (
                f"cannot be enforced: stacks.{stack} is a service whose model calls the router "
                "does not see; send them through the gateway ([gateway] enabled = true), or limit "
                "requests_per_day instead"
            )
            yield f"shadow.{spending[0]}", why
    if shadow.cost_per_day:
        # Of a model without a price any number of answers would cost nothing.
        unpriced = [f"models.{name} has" for name, one in settings.models.items() if not one.priced]
        if unpriced or not settings.models:
            which = f"{unpriced[0]} no price" if unpriced else "no model has a price"
            instead = "set both its prices, or limit tokens_per_day or requests_per_day instead"
            yield "shadow.cost_per_day", f"cannot be enforced: {which}; {instead}"


def _tool_faults(settings: Settings) -> Iterator[tuple[str, str]]:
    servers = settings.tools.mcp
    for name, server in servers.items():
        key = f"tools.mcp.{name}"
        if bool(server.command) == bool(server.url):
            yield key, "needs one of command and url"
        elif server.command and not server.command[0]:
            yield f"{key}.command", "must begin with a program"
        elif server.token_env if server.command else server.env:
            wrong = "token_env" if server.command else "env"
            yield f"{key}.{wrong}", "only a url has a token_env, only a command an env"
    for (one, first), (other, second) in permutations(servers.items(), 2):
        if (second.prefix or "").startswith(first.prefix or ""):
            yield (
                f"tools.mcp.{one}.prefix",
                f"tools of {other!r}, whose prefix is {second.prefix!r}, might bear the same name",
            )


def _worker_faults(settings: Settings) -> Iterator[tuple[str, str]]:
    deploy, temporary = settings.workers.deploy, settings.workers.temporary_root
    if not deploy.root:
        return
    if not deploy.source:
        yield "workers.deploy.source", "required with root"
    if bool(deploy.check) == bool(deploy.check_url):
        yield "workers.deploy.check", "needs one of check and check_url: how a release is verified"
    root, source = (Path(one).resolve() for one in (deploy.root, deploy.source))
    if root.is_relative_to(source) or source.is_relative_to(root):
        yield "workers.deploy.root", f"must not hold source, nor lie in it: {deploy.source!r}"
    for key, folder in (("root", root), ("source", source)):
        if temporary and folder.is_relative_to(Path(temporary).resolve()):
            yield (
                "workers.temporary_root",
                f"must not hold workers.deploy.{key}: files are deleted there",
            )
