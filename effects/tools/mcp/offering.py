"""What is offered of a server's tools, under which names: pure, and the same on every router."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from contract.model import ToolSpec
from effects.tools.mcp.schema import Schema, SchemaUnusable
from effects.tools.tool import parameters

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from effects.tools.mcp.server import McpServer

MOST_TOOLS = 128  # as many as a model takes
LONGEST_NAME = 64
LONGEST_DESCRIPTION = 4_096  # characters
LONGEST_SCHEMA = 65_536  # bytes

_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST_BYTES = 4


@dataclass(frozen=True, slots=True)
class Listed:
    """A tool as its server lists it; `hinted` is whether it calls the tool read-only."""

    name: str
    description: str
    schema: Mapping[str, Any]
    hinted: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool as models are told of it; `name` is the server's own name for it."""

    name: str
    spec: ToolSpec
    schema: Schema
    read_only: bool


@dataclass(frozen=True, slots=True)
class Offering:
    """What is offered of one server, and what is wrong with the rest."""

    offers: tuple[Offer, ...]
    faults: tuple[str, ...] = ()


def offering(server: McpServer, listed: Iterable[Listed]) -> Offering:
    """Choose what is offered, in the server's order; the first of two equal names is."""
    there: dict[str, Listed] = {}
    for one in listed:
        there.setdefault(one.name, one)
    wanted = [one for one in there.values() if _wanted(server, one.name)]
    offers, faults = [], [*_not_there(server, there)]
    for one in wanted[:MOST_TOOLS]:
        try:
            offers.append(_offer(server, one))
        except SchemaUnusable as error:
            faults.append(f"{one.name!r} is not offered: {error}")
    if len(wanted) > MOST_TOOLS:
        faults.append(f"only the first {MOST_TOOLS} of {len(wanted)} tools are offered")
    return Offering(tuple(offers), tuple(faults))


def offered_name(prefix: str, name: str) -> str:
    """Give the name models call a tool by: 64 letters, digits, `_` and `-` at most.

    A name that has to be changed ends in a digest of its own, so that two never meet.
    """
    plain = _FOREIGN.sub("_", prefix + name)
    if name and plain == prefix + name and len(plain) <= LONGEST_NAME:
        return plain
    digest = "_" + blake2b(name.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return plain[: LONGEST_NAME - len(digest)] + digest


def _wanted(server: McpServer, name: str) -> bool:
    return name not in server.deny and (server.allow is None or name in server.allow)


def _not_there(server: McpServer, there: Mapping[str, Listed]) -> Iterator[str]:
    named = server.read_only if isinstance(server.read_only, frozenset) else frozenset[str]()
    for key, names in (("allow", server.allow or ()), ("deny", server.deny), ("read_only", named)):
        for name in sorted(set(names) - there.keys()):
            yield f"{key} names {name!r}, which it does not have"


def _offer(server: McpServer, one: Listed) -> Offer:
    schema = Schema(one.schema)
    encoded = parameters(one.schema)
    if len(bytes(encoded)) > LONGEST_SCHEMA:
        raise SchemaUnusable(why=f"longer than {LONGEST_SCHEMA} bytes")
    description = one.description[:LONGEST_DESCRIPTION]
    spec = ToolSpec(offered_name(server.prefix, one.name), description, encoded)
    return Offer(one.name, spec, schema, _read_only(server, one))


def _read_only(server: McpServer, one: Listed) -> bool:
    match server.read_only:
        case None:
            return one.hinted
        case bool(said):
            return said
        case names:
            return one.name in names
