"""Checks of a set-up: what is configured, reachable or missing. Nothing is created or changed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from contract.errors import CutoverError, EffectFailed
from contract.flows.declared import DeclaredFlow
from cutover.flows import flows_of
from cutover.stores import (
    SCHEMES,
    NoSuchStore,
    check_server,
    check_store_file,
    pause_encryption,
)
from cutover.wiring.addresses import checkpoints_address
from cutover.wiring.composition import model_faults, unsearchable
from cutover.wiring.models import embedding_entry, local_embedder, model_entries
from cutover.wiring.stacks import load_stack, places
from cutover.wiring.tools import mcp, tool_server
from effects.memory.embeddings import maker_named
from effects.memory.sqlite import vectors_in_file
from effects.memory.store import VectorCounts
from effects.stores import HealthCheck, Plaintext
from router.config.addresses import AUTO, read_secret, resolve_address
from router.config.capabilities import powers_of
from router.config.schema import EmbeddingSettings, McpServerSettings, RemoteStackSettings, Settings
from router.remote import endpoint_url
from router.stack import StackName

CONNECT_SECONDS = 2.0
"""What an address has to accept a connection."""

_PORTS = {"http": 80, "https": 443, "redis": 6379, "rediss": 6379, "postgresql": 5432}
_FULL_TEXT = "full text"


@dataclass(frozen=True, slots=True)
class PartCheck:
    """A part of a set-up, whether it is as it should be, and details."""

    part: str
    ok: bool
    detail: str


async def examine(settings: Settings, environ: Mapping[str, str]) -> list[PartCheck]:
    """Check everything a router would use."""
    reached = await asyncio.gather(
        *(_stack(name, place, settings) for name, place in places(settings.stacks).items()),
        *(_store(name, place, environ) for name, place in _stores(settings).items()),
        _recall(settings, environ),
        *(
            _reachable(f"providers.{name}", one.base_url, one.base_url)
            for name, one in settings.providers.items()
        ),
        *(_tool_server(name, one, environ) for name, one in settings.tools.mcp.items()),
    )
    return [
        *reached,
        *_models(settings, environ),
        *_secrets(settings, environ),
        _pauses(settings, environ),
        _captures(settings),
        *_pseudonyms(settings, environ),
    ]


def describe_declared(flow: DeclaredFlow) -> str:
    """Return what there is to know of a declared flow: its wire, its end, its failure, its key."""
    file = flow.dialect
    ends = f"ends with {' or '.join(file.terminal)}" if file.terminal else "ends with its stream"
    broken = "in failure frames" if file.failure else "with its connection, no failure is declared"
    routed = next(iter(flow.route_keys.values()), "the whole body")
    return f"declared: {file.framing}, {ends}; broken, it ends {broken}; routed by {routed}"


async def _stack(
    name: StackName, place: str | RemoteStackSettings, settings: Settings
) -> PartCheck:
    part = f"stacks.{name}"
    if isinstance(place, RemoteStackSettings):
        # A query may hold a key.
        specs = [spec for flow, spec in flows_of(settings).items() if place.serves(flow)]
        urls = sorted({str(endpoint_url(place, spec).with_query(None)) for spec in specs})
        return await _reachable(part, place.url, ", ".join(urls))
    try:
        stack = load_stack(name, place)
    except CutoverError as error:
        return PartCheck(part, ok=False, detail=str(error))
    built_in = {name for name, flow in settings.flows.items() if flow.declared is None}
    missing = sorted(built_in - stack.flows.keys())
    if missing:
        return PartCheck(part, ok=False, detail=f"{place} has no flow {', '.join(missing)}")
    return PartCheck(part, ok=True, detail=f"{place}, fingerprint {stack.fingerprint}")


def _stores(settings: Settings) -> dict[str, str]:
    stores = settings.stores
    checkpoints = stores.checkpoints
    if checkpoints == AUTO:
        # Beside a variable's store is where the variable says.
        named = stores.conversations.startswith("env:")
        checkpoints = (
            stores.conversations if named else checkpoints_address(stores.conversations, AUTO)
        )
    addresses = stores.model_dump() | {"checkpoints": checkpoints}
    return {f"stores.{name}": str(place) for name, place in addresses.items()}


async def _store(part: str, place: str, environ: Mapping[str, str]) -> PartCheck:
    try:
        url = resolve_address(place, environ)
    except CutoverError as error:
        return PartCheck(part, ok=False, detail=str(error))
    scheme, _, rest = url.partition("://")
    what = part.partition(".")[2]
    if url != AUTO and scheme not in SCHEMES.get(what, (scheme,)):
        return PartCheck(part, ok=False, detail=str(NoSuchStore(what, scheme)))
    if scheme == "sqlite":
        return await asyncio.to_thread(_file, part, Path(rest.removeprefix("/")), place)
    if scheme not in _PORTS:
        return PartCheck(part, ok=True, detail=f"{place}: for the life of one process")
    health = await check_server(what, url)
    if health is not None:
        return PartCheck(part, ok=health.ok, detail=f"{place}: {health.detail}")
    reached = await _reachable(part, url, place)
    if not reached.ok or url.startswith("http"):
        return reached
    detail = f"{place}: takes connections and says nothing, or nothing that is understood"
    return PartCheck(part, ok=False, detail=detail)


def _file(part: str, path: Path, place: str) -> PartCheck:
    """Check whether a file can be used, or created."""
    folder = _writable(part, path.parent, place)
    if not (folder.ok and path.exists()):
        return folder
    health = check_store_file(part.partition(".")[2], path)
    if health.ok and not os.access(path, os.W_OK):
        health = HealthCheck(ok=False, detail="the file cannot be written to")
    return PartCheck(part, ok=health.ok, detail=f"{place}: {health.detail}")


async def _recall(settings: Settings, environ: Mapping[str, str]) -> PartCheck:
    ok, detail = await describe_recall(settings, environ)
    if ok and (base_url := settings.embeddings.base_url):
        return await _reachable("recall", base_url, detail)
    return PartCheck("recall", ok=ok, detail=detail)


async def describe_recall(settings: Settings, environ: Mapping[str, str]) -> tuple[bool, str]:
    """Return by what the memory searches, and whether that is what is configured."""
    section = settings.embeddings
    if not (section.local or section.base_url):
        return True, f"{_FULL_TEXT}: [embeddings] names no model"
    try:
        made_by = _embedder(section, environ)
        where = resolve_address(settings.stores.memory, environ)
        why = await _why_no_vectors(where)
    except EffectFailed:
        return False, "[stores] memory cannot be asked whether it keeps vectors"
    except CutoverError as error:
        return False, str(error)
    if why:
        return False, f"{_FULL_TEXT}: {why}"
    counts = await _vector_counts(where)
    lacking = counts.lacking(_maker(section)) if counts else ""
    return True, f"vectors by {made_by}" + (f"; {lacking}" if lacking else "")


def _embedder(section: EmbeddingSettings, environ: Mapping[str, str]) -> str:
    if section.local:
        return f"{local_embedder().name}, in this process"
    entry = embedding_entry(section, environ)
    return f"{entry.model}, {section.dimensions} dimensions, {section.base_url}"


def _maker(section: EmbeddingSettings) -> str:
    """Return the name under which the memory stores who made its vectors."""
    if section.local:
        return maker_named(local_embedder().name, local_embedder().size)
    return maker_named(section.model, section.dimensions)


async def _why_no_vectors(where: str) -> str:
    """Return why a store cannot search vectors; "" where it can."""
    scheme = where.partition("://")[0]
    if scheme == "memory":
        return "[stores] memory = 'memory://' keeps no vectors"
    if scheme != "postgresql":
        return ""
    why: str = await _postgres_memory().why_no_vectors(where)
    return why


async def _vector_counts(where: str) -> VectorCounts | None:
    scheme, _, rest = where.partition("://")
    if scheme == "postgresql":
        found: VectorCounts | None = await _postgres_memory().vectors_in_database(where)
        return found
    path = Path(rest.removeprefix("/"))
    return await asyncio.to_thread(vectors_in_file, path) if scheme == "sqlite" else None


def _postgres_memory() -> Any:
    """Import the adapter, whose library is an extra."""
    return import_module("effects.memory.postgres")


async def _tool_server(
    name: str, section: McpServerSettings, environ: Mapping[str, str]
) -> PartCheck:
    """Connect to a server, starting it if need be, and list its tools; none is called."""
    part = f"tools.mcp.{name}"
    place = section.command[0] if section.command else section.url.partition("?")[0]
    try:
        server = tool_server(name, section, environ)
    except CutoverError as error:
        return PartCheck(part, ok=False, detail=str(error))
    library = mcp()
    try:
        async with (
            asyncio.timeout(server.connect),
            library.open_session(server, lambda: None) as session,
        ):
            offering = library.offer_tools(server, await session.list())
    except Exception as error:  # noqa: BLE001 - whatever it is, the server cannot be used
        return PartCheck(part, ok=False, detail=f"{place}: {library.describe_error(error)}")
    details = (
        f"read-only {_names(one for one in offering.offers if one.read_only)}",
        f"not read-only {_names(one for one in offering.offers if not one.read_only)}",
        *offering.faults,
    )
    detail = f"{place}: {len(offering.offers)} tools; {'; '.join(details)}"
    return PartCheck(part, ok=not offering.faults, detail=detail)


def _names(offers: Iterable[Any]) -> str:
    return ", ".join(one.spec.name for one in offers) or "none"


def _models(settings: Settings, environ: Mapping[str, str]) -> list[PartCheck]:
    local = any(powers.taped for powers in powers_of(settings.stacks).values())
    if not (local or settings.gateway.enabled):
        return []
    try:
        entries = model_entries(settings, environ)
    except CutoverError as error:
        return [PartCheck("models", ok=False, detail=str(error))]
    faults = model_faults(entries, settings)
    known = ", ".join(entry.model_id for entry in entries)
    return [PartCheck("models", ok=not faults, detail=faults.get("models", known))]


def _secrets(settings: Settings, environ: Mapping[str, str]) -> list[PartCheck]:
    variables = {
        "server.qa_key_env": settings.server.qa_key_env,
        "gateway.key_env": settings.gateway.key_env,
        "admin.token_env": settings.admin.token_env,
        "captures.pseudonym_key_env": settings.captures.pseudonym_key_env,
        "tracing.endpoint_env": settings.tracing.endpoint_env,
    }
    checks = []
    for part, variable in variables.items():
        try:
            if read_secret(variable, environ):
                checks.append(PartCheck(part, ok=True, detail=f"{variable} is set"))
        except CutoverError as error:
            checks.append(PartCheck(part, ok=False, detail=str(error)))
    return checks


def _pauses(settings: Settings, environ: Mapping[str, str]) -> PartCheck:
    """Check the encryption of pauses; that there is none is no fault."""
    section = settings.pauses
    try:
        if isinstance(pause_encryption(section, environ), Plaintext):
            detail = "not encrypted: [pauses] key_env names no key"
            return PartCheck("pauses", ok=True, detail=detail)
    except CutoverError as error:
        return PartCheck("pauses", ok=False, detail=str(error))
    plain = "refused" if section.strict else "read"
    detail = f"sealed by the first key in {section.key_env}; what was stored without one is {plain}"
    return PartCheck("pauses", ok=True, detail=detail)


def _captures(settings: Settings) -> PartCheck:
    place = settings.captures.path
    if "://" in place:
        return PartCheck("captures", ok=True, detail=f"{place}: reached with the first batch")
    return _writable("captures", Path(place), place)


def _pseudonyms(settings: Settings, environ: Mapping[str, str]) -> list[PartCheck]:
    if settings.captures.pseudonym_key_env:
        return []  # its variable is among the secrets
    return [PartCheck("pseudonyms", ok=True, detail=unsearchable(settings.captures, environ))]


def _writable(part: str, folder: Path, detail: str) -> PartCheck:
    """Check whether a folder can be written to, or created."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if there.is_dir() and os.access(there, os.W_OK):
        return PartCheck(part, ok=True, detail=detail)
    return PartCheck(part, ok=False, detail=f"{detail}: {there} cannot be written to")


async def _reachable(part: str, url: str, detail: str) -> PartCheck:
    """Check whether an address accepts connections; nothing is sent."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "localhost", parts.port or _PORTS[parts.scheme]
    except ValueError:  # its text may hold a piece of a password
        detail = f"{detail}: no host and port can be read from it"
        return PartCheck(part, ok=False, detail=detail)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        why = "no answer" if isinstance(error, TimeoutError) else "no server listens"
        return PartCheck(part, ok=False, detail=f"{detail}: {why} at {host}:{port}")
    writer.close()
    return PartCheck(part, ok=True, detail=f"{detail}: reachable")
