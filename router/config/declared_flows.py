"""Flows that stand in the configuration alone: `[flows.<name>]` with a path and a dialect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from contract.declarations import DeclarationRefused
from contract.flows.declared import DeclaredFlow, declared_spec
from contract.wire.dialect import Dialect, built_in, dialect_in
from router.config.addresses import path_fault
from router.config.toml_table import (
    ConfigRefused,
    Table,
    checked,
    display_value,
    subtable,
    unknown_name,
)

if TYPE_CHECKING:
    from contract.flow import FlowSpec
    from router.config.flow_settings import FlowSettings

DECLARATION_KEYS = ("path", "dialect", "route_keys", "grammar", "failure")
"""What declares a flow; all else in its table is about the rollout."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_FIELD = re.compile(r"[^.\s]+(?:\.[^.\s]+)*")
_OURS = re.compile(
    r"/(?:feedback|healthz|readyz|metrics|docs|redoc|openapi\.json"
    r"|(?:admin|docs|exchanges)/.*|v1/(?:chat/completions|models))"
)
"""Paths the router answers at itself."""


def configured_flows(
    flows: Mapping[str, FlowSettings], built_ins: Mapping[str, FlowSpec]
) -> dict[str, FlowSpec]:
    """Give all flows a configuration knows: the built-in ones and those it declares."""
    declared = {
        name: declared_spec(name, flow.declared)
        for name, flow in flows.items()
        if flow.declared is not None
    }
    return {**built_ins, **declared}


def declared_in(
    named: Mapping[str, Table], built_ins: Mapping[str, FlowSpec], where: str
) -> dict[str, DeclaredFlow]:
    """Read the flows that are declared; raises `ConfigRefused` on what cannot be meant."""
    found: dict[str, DeclaredFlow] = {}
    taken = {spec.path: name for name, spec in built_ins.items()}
    for name, table in named.items():
        if name in built_ins:
            _refuse_built_in(name, table, where)
        elif not {"path", "dialect"} & table.keys():
            refused = unknown_name(where, f"flows.{name}", built_ins, "flow")
            why = f"{refused.why}; one of your own needs a path and a dialect"
            raise ConfigRefused(where, refused.key, why)
        else:
            flow = found[name] = _declared(name, table, where)
            if flow.path in taken:
                why = f"flow {taken[flow.path]!r} is asked there"
                raise ConfigRefused(where, f"flows.{name}.path", why, repr(flow.path))
            taken[flow.path] = name
    return found


def _refuse_built_in(name: str, table: Table, where: str) -> None:
    for key in DECLARATION_KEYS:
        if key in table:
            why = f"flow {name!r} is built in, and so is its wire"
            raise ConfigRefused(where, f"flows.{name}.{key}", why)


def _declared(name: str, table: Table, where: str) -> DeclaredFlow:
    prefix = f"flows.{name}."
    if not _NAME.fullmatch(name):
        why = "a name is due: letters, digits, _ and -, 64 at most"
        raise ConfigRefused(where, f"flows.{name}", why)
    for key in ("path", "dialect"):
        if key not in table:
            raise ConfigRefused(where, f"{prefix}{key}", "is due where a flow is declared")
    return DeclaredFlow(
        path=_path(table["path"], where, f"{prefix}path"),
        dialect=_dialect(name, table, where),
        route_keys=_route_keys(subtable(table, "route_keys", where, prefix), where, prefix),
    )


def _path(value: object, where: str, key: str) -> str:
    if not isinstance(value, str):
        raise ConfigRefused(where, key, "a path is due: /api/support", display_value(key, value))
    checked(path_fault, value, where, key)
    if "?" in value or "{" in value or "}" in value or "%" in value:
        raise ConfigRefused(
            where, key, "a plain path is due: /api/support", display_value(key, value)
        )
    if _OURS.fullmatch(value):
        raise ConfigRefused(
            where, key, "the router itself answers there", display_value(key, value)
        )
    return value


def _dialect(name: str, table: Table, where: str) -> Dialect:
    """Read the dialect, with the order and the failure frames that stand beside it."""
    prefix = f"flows.{name}."
    said = table["dialect"]
    beside: dict[str, Any] = {key: table[key] for key in ("grammar", "failure") if key in table}
    if isinstance(said, str):
        if said not in built_in():
            raise unknown_name(where, f"{prefix}dialect", built_in(), "dialect", said)
        own: Mapping[str, Any] = msgspec.to_builtins(built_in()[said])
    elif isinstance(said, Mapping):
        own = said
    else:
        why = "the name of a dialect or a table is due"
        raise ConfigRefused(where, f"{prefix}dialect", why, display_value(f"{prefix}dialect", said))
    try:
        return dialect_in({**own, **beside, "name": name}, where, name, f"{prefix}dialect")
    except DeclarationRefused as refused:
        raise ConfigRefused(where, refused.key, refused.why) from refused


def _route_keys(table: Table, where: str, prefix: str) -> dict[str, str]:
    for name, path in table.items():
        key = f"{prefix}route_keys.{name}"
        if not isinstance(path, str) or not _FIELD.fullmatch(path):
            why = "a field of the body is due: session_id, or conversation.id"
            raise ConfigRefused(where, key, why, display_value(key, path))
    return dict(table)
