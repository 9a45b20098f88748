"""Which of an MCP server's tools are offered, under which names: pure, the same on every router."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry

from contract.errors import CutoverError
from contract.model import ToolSpec
from effects.model import Secret
from effects.tools.tool import parameters


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server started with `command`, or reached at `url`.

    `variables` are given to the command, beside the few every program needs; `token` is sent as a
    bearer token. `allow` (None: all) and `deny` hold the server's own names of tools; what they
    let through is offered with `prefix` in front. `read_only` says which change nothing: all, none,
    those named, or (None) those the server itself declares so; `idempotent` likewise which may be
    called again where a result was lost. `shadow_reads`: a shadow may call read-only ones.
    `asks`: it is told that its tools may ask back.
    `timeout` is what one call may take, `connect` what the server may take to start and to list its
    tools; seconds. `reserved` are the names of tools from elsewhere, and where each is from.
    """

    name: str
    prefix: str = ""
    command: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str = ""
    token: Secret = field(default_factory=Secret)
    timeout: float = 10.0
    connect: float = 30.0
    allow: frozenset[str] | None = None
    deny: frozenset[str] = frozenset()
    read_only: bool | frozenset[str] | None = None
    idempotent: bool | frozenset[str] | None = None
    shadow_reads: bool = False
    asks: bool = False
    reserved: Mapping[str, str] = field(default_factory=dict)


class SchemaUnusable(CutoverError):
    """A schema cannot be offered to a model, or nothing can be checked by it."""

    def __init__(self, why: str) -> None:
        super().__init__(f"its schema is {why}")


def schema_validator(schema: Mapping[str, Any]) -> Validator:
    """Return the validator of a schema; one that names no dialect is of 2020-12, as MCP has it.

    Raises `SchemaUnusable`.
    """
    if schema.get("type") != "object":
        raise SchemaUnusable(why="not of an object")
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise SchemaUnusable(why="no JSON schema") from error
    # A registry of its own: references lead nowhere outside, and nothing is fetched.
    return kind(schema, registry=Registry())


MAX_TOOLS: Final = 128  # as many as a model takes
MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 4_096  # characters
MAX_SCHEMA_BYTES: Final = 65_536

_Declared: TypeAlias = bool | frozenset[str] | None

_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST_BYTES = 4


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its server lists it.

    It calls the tool read-only (`hinted`), idempotent (`repeatable`).
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    hinted: bool = False
    repeatable: bool = False


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as models get it; `name` is the server's own name for it."""

    name: str
    spec: ToolSpec
    validator: Validator
    read_only: bool
    idempotent: bool


@dataclass(frozen=True, slots=True)
class Offering:
    """The offered tools of one server, and what is wrong with the rest."""

    offers: tuple[OfferedTool, ...]
    faults: tuple[str, ...] = ()


def offer_tools(server: McpServer, listed: Iterable[ListedTool]) -> Offering:
    """Choose the tools to offer, in the server's order; of two equal names the first."""
    there: dict[str, ListedTool] = {}
    for one in listed:
        there.setdefault(one.name, one)
    wanted = [one for one in there.values() if is_allowed(server, one.name)]
    offers, faults = [], [*_unknown_names(server, there)]
    for one in wanted[:MAX_TOOLS]:
        name = offered_name(server.prefix, one.name)
        if name in server.reserved:
            other = f"{name!r} is the name of another tool ({server.reserved[name]})"
            faults.append(f"{one.name!r} is not offered: {other}; set another prefix, or deny it")
            continue
        try:
            offers.append(_offer(server, one, name))
        except SchemaUnusable as error:
            faults.append(f"{one.name!r} is not offered: {error}")
    if len(wanted) > MAX_TOOLS:
        faults.append(f"only the first {MAX_TOOLS} of {len(wanted)} tools are offered")
    return Offering(tuple(offers), tuple(faults))


def offered_name(prefix: str, name: str) -> str:
    """Return the name models call a tool by: 64 letters, digits, `_` and `-` at most.

    A name that has to be changed ends in a digest of its own, so that two never meet.
    """
    plain = _FOREIGN.sub("_", prefix + name)
    if name and plain == prefix + name and len(plain) <= MAX_NAME:
        return plain
    digest = "_" + blake2b(name.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return plain[: MAX_NAME - len(digest)] + digest


def is_allowed(server: McpServer, name: str) -> bool:
    """Whether the configuration lets a tool through, by the server's own name for it."""
    return name not in server.deny and (server.allow is None or name in server.allow)


def _unknown_names(server: McpServer, there: Mapping[str, ListedTool]) -> Iterator[str]:
    keys = ("allow", "deny", "read_only", "idempotent")
    for key, declared in ((key, getattr(server, key)) for key in keys):
        names = declared if isinstance(declared, frozenset) else frozenset[str]()
        for name in sorted(set(names) - there.keys()):
            yield f"{key} names {name!r}, which it does not have"


def _offer(server: McpServer, one: ListedTool, name: str) -> OfferedTool:
    validator = schema_validator(one.schema)
    encoded = parameters(one.schema)
    if len(bytes(encoded)) > MAX_SCHEMA_BYTES:
        raise SchemaUnusable(why=f"longer than {MAX_SCHEMA_BYTES} bytes")
    description = one.description[:MAX_DESCRIPTION]
    spec = ToolSpec(name, description, encoded)
    read_only = is_read_only(server, one.name, hinted=one.hinted)
    idempotent = is_idempotent(server, one.name, hinted=one.repeatable)
    return OfferedTool(one.name, spec, validator, read_only, idempotent)


def is_read_only(server: McpServer, name: str, *, hinted: bool) -> bool:
    """Whether a tool changes nothing; `hinted`: the server says so."""
    return _declares(server.read_only, name, hinted=hinted)


def is_idempotent(server: McpServer, name: str, *, hinted: bool) -> bool:
    """Whether a tool may be called again with the same arguments; `hinted`: the server says so."""
    return _declares(server.idempotent, name, hinted=hinted)


def _declares(names: _Declared, name: str, *, hinted: bool) -> bool:
    if names is None:
        return hinted
    return names if isinstance(names, bool) else name in names
