"""Examining a set-up: what is configured, reachable or missing. Nothing is made or changed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from contract.errors import CutoverError
from cutover.finding import Finding
from cutover.flows import flows_of
from cutover.pseudonyms import unsearchable
from cutover.store_doctor import looked_into_file, looked_into_server
from cutover.stores import SCHEMES, NoSuchStore, pauses_sealing
from cutover.tool_server_doctor import examined
from cutover.wiring.addresses import beside
from cutover.wiring.composition import model_faults
from cutover.wiring.embeddings import recall_told
from cutover.wiring.models import model_entries
from cutover.wiring.stacks import DEFAULTS, load_stack
from effects.stores import Plaintext
from effects.stores.health import HealthCheck
from router.config import AUTO, RemoteStackSettings, powers_of, read_secret, resolve_address
from router.remote import endpoint_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.flows.declared import DeclaredFlow
    from router.config import Settings
    from router.stack import StackName

PATIENCE = 2.0
"""Seconds an address has to take a connection."""

_PORTS = {"http": 80, "https": 443, "redis": 6379, "rediss": 6379, "postgresql": 5432}


async def examine(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    """Look at everything a router would stand on."""
    looked = await asyncio.gather(
        *(_stack(name, settings) for name in DEFAULTS),
        *(_store(name, place, environ) for name, place in _stores(settings).items()),
        _recall(settings, environ),
        *(_provider(name, one.base_url) for name, one in settings.providers.items()),
        *(examined(name, one, environ) for name, one in settings.tools.mcp.items()),
    )
    return [
        *looked,
        *_models(settings, environ),
        *_secrets(settings, environ),
        _pauses(settings, environ),
        _captures(settings),
        *_pseudonyms(settings, environ),
    ]


async def _stack(name: StackName, settings: Settings) -> Finding:
    place = settings.stacks.place(name) or DEFAULTS[name]
    part = f"stacks.{name}"
    if isinstance(place, RemoteStackSettings):
        # A query may hold a key.
        had = [spec for name, spec in flows_of(settings).items() if place.serves(name)]
        asked = (endpoint_url(place, spec).with_query(None) for spec in had)
        urls = sorted({str(url) for url in asked})
        return await _reached(part, place.url, ", ".join(urls))
    try:
        stack = load_stack(name, place)
    except CutoverError as error:
        return Finding(part, good=False, said=str(error))
    built_in = {name for name, flow in settings.flows.items() if flow.declared is None}
    missing = sorted(built_in - stack.flows.keys())
    if missing:
        return Finding(part, good=False, said=f"{place} has no flow {', '.join(missing)}")
    return Finding(part, good=True, said=f"{place}, fingerprint {stack.fingerprint}")


def declared_said(flow: DeclaredFlow) -> str:
    """Say what is to be known of a declared flow: its wire, how it ends, how it breaks off."""
    file = flow.dialect
    ends = f"ends with {' or '.join(file.terminal)}" if file.terminal else "ends with its stream"
    broken = "in failure frames" if file.failure else "with its connection, no failure is declared"
    routed = next(iter(flow.route_keys.values()), "the whole body")
    return f"declared: {file.framing}, {ends}; broken, it ends {broken}; routed by {routed}"


def _stores(settings: Settings) -> dict[str, str]:
    stores = settings.stores
    named = stores.conversations.startswith("env:")
    # Beside what a variable names is where that is.
    beside_them = stores.conversations if named else beside(stores.conversations, AUTO)
    copies = beside_them if stores.checkpoints == AUTO else stores.checkpoints
    kept = msgspec.structs.asdict(stores) | {"checkpoints": copies}
    return {f"stores.{name}": str(at) for name, at in kept.items()}


async def _store(part: str, place: str, environ: Mapping[str, str]) -> Finding:
    try:
        url = resolve_address(place, environ)
    except CutoverError as error:
        return Finding(part, good=False, said=str(error))
    scheme, _, rest = url.partition("://")
    what = part.partition(".")[2]
    if url != AUTO and scheme not in SCHEMES.get(what, (scheme,)):
        return Finding(part, good=False, said=str(NoSuchStore(what, scheme)))
    if scheme == "sqlite":
        return await asyncio.to_thread(_file, part, Path(rest.removeprefix("/")), place)
    if scheme in _PORTS:
        look = await looked_into_server(what, url)
        return _told(part, place, look) if look else await _silent(part, url, place)
    return Finding(part, good=True, said=f"{place}: for the life of one process")


def _file(part: str, path: Path, place: str) -> Finding:
    """Whether a file can be used, or made."""
    folder = _writable(part, path.parent, place)
    if not (folder.good and path.exists()):
        return folder
    look = looked_into_file(part.partition(".")[2], path)
    if look.ok and not os.access(path, os.W_OK):
        look = HealthCheck(ok=False, detail="the file cannot be written to")
    return _told(part, place, look)


def _told(part: str, place: str, look: HealthCheck) -> Finding:
    return Finding(part, good=look.ok, said=f"{place}: {look.detail}")


async def _silent(part: str, url: str, place: str) -> Finding:
    """Say whether anybody is there at all; a service is not asked more than that."""
    reached = await _reached(part, url, place)
    if not reached.good or url.startswith("http"):
        return reached
    said = f"{place}: takes connections and says nothing, or nothing that is understood"
    return Finding(part, good=False, said=said)


async def _recall(settings: Settings, environ: Mapping[str, str]) -> Finding:
    """By what the memory finds: vectors, and who makes them, or full text, and why."""
    good, said = await recall_told(settings, environ)
    if good and (base_url := settings.embeddings.base_url):
        return await _reached("recall", base_url, said)
    return Finding("recall", good=good, said=said)


async def _provider(name: str, base_url: str) -> Finding:
    return await _reached(f"providers.{name}", base_url, base_url)


def _models(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    here = any(powers.taped for powers in powers_of(settings.stacks).values())
    if not (here or settings.gateway.enabled):
        return []
    try:
        entries = model_entries(settings, environ)
    except CutoverError as error:
        return [Finding("models", good=False, said=str(error))]
    faults = model_faults(entries, settings)
    known = ", ".join(entry.model_id for entry in entries)
    return [Finding("models", good=not faults, said=faults.get("models", known))]


def _secrets(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    named = {
        "server.qa_key_env": settings.server.qa_key_env,
        "gateway.key_env": settings.gateway.key_env,
        "admin.token_env": settings.admin.token_env,
        "captures.pseudonym_key_env": settings.captures.pseudonym_key_env,
        "tracing.endpoint_env": settings.tracing.endpoint_env,
    }
    findings = []
    for part, variable in named.items():
        try:
            if read_secret(variable, environ):
                findings.append(Finding(part, good=True, said=f"{variable} is set"))
        except CutoverError as error:
            findings.append(Finding(part, good=False, said=str(error)))
    return findings


def _pauses(settings: Settings, environ: Mapping[str, str]) -> Finding:
    """Whether what waits for a human is sealed; that it is not is no fault."""
    section = settings.pauses
    try:
        if isinstance(pauses_sealing(section, environ), Plaintext):
            return Finding("pauses", good=True, said="not encrypted: [pauses] key_env names no key")
    except CutoverError as error:
        return Finding("pauses", good=False, said=str(error))
    plain = "refused" if section.strict else "read"
    said = f"sealed by the first key in {section.key_env}; what was stored without one is {plain}"
    return Finding("pauses", good=True, said=said)


def _captures(settings: Settings) -> Finding:
    place = settings.captures.path
    if "://" in place:
        return Finding("captures", good=True, said=f"{place}: reached with the first batch")
    return _writable("captures", Path(place), place)


def _pseudonyms(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    if settings.captures.pseudonym_key_env:
        return []  # whether it is set is among the secrets
    return [Finding("pseudonyms", good=True, said=unsearchable(settings.captures, environ))]


def _writable(part: str, folder: Path, said: str) -> Finding:
    """Whether a folder can be written to, or be made."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if there.is_dir() and os.access(there, os.W_OK):
        return Finding(part, good=True, said=said)
    return Finding(part, good=False, said=f"{said}: {there} cannot be written to")


async def _reached(part: str, url: str, said: str) -> Finding:
    """Whether anybody listens at an address; nothing is sent."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "localhost", parts.port or _PORTS[parts.scheme]
    except ValueError:  # its text may hold a piece of a password
        return Finding(part, good=False, said=f"{said}: no host and port can be read from it")
    try:
        async with asyncio.timeout(PATIENCE):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        why = "no answer" if isinstance(error, TimeoutError) else "nobody listens"
        return Finding(part, good=False, said=f"{said}: {why} at {host}:{port}")
    writer.close()
    return Finding(part, good=True, said=f"{said}: reachable")
