"""Checks of a set-up: what is configured, reachable or missing. Nothing is created or changed.

But for an object at a remote place of captures, which is deleted again.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from shutil import which
from typing import Any, Final, Literal

import msgspec
from yarl import URL

from contract.errors import CutoverError, EffectFailed
from contract.flows.declared import DeclaredFlow
from contract.wire import NO_JSON
from contract.workers import WorkerCall
from cutover.flows import flows_of
from cutover.own_modules import refuse_hidden
from cutover.probe import CONNECT_SECONDS, PORTS, NotReached, reach
from cutover.stores import (
    SCHEMES,
    NoSuchStore,
    check_server,
    check_store_file,
    conversations_token,
    pause_encryption,
)
from cutover.wiring.addresses import checkpoints_address, store_addresses
from cutover.wiring.composition import configured_receipt_keys, model_faults, unsearchable
from cutover.wiring.models import embedding_entry, local_embedder, model_entries
from cutover.wiring.stacks import StackNotLoaded, load_stack, places, prompt_folders
from cutover.wiring.tools import mcp, open_workers, refuse_unknown_tools, tool_server
from effects.memory.embeddings import maker_named
from effects.memory.sqlite import vectors_in_file
from effects.memory.store import VectorCounts
from effects.model.tokens import encoding_of, tokenizers_installed
from effects.places import Place
from effects.stores import HealthCheck, HttpConversations, Plaintext
from effects.stores.http import NO_MESSAGE
from effects.tools import python_tools, reserved_names
from router.config.addresses import AUTO, read_secret, resolve_address
from router.config.capabilities import is_offered, powers_of
from router.config.schema import (
    EmbeddingSettings,
    McpServerSettings,
    RemoteStackSettings,
    Settings,
    WorkerSettings,
)
from router.remote import Client, ConnectTimedOut, ResponseLost, Unreachable, endpoint_url
from router.stack import StackName

_FULL_TEXT = "full text"
_MOST_BYTES = 1 << 20
_MUTE = "[stores] memory cannot be asked whether it keeps vectors"
_OF_BUILT_IN_FLOWS: Final = frozenset(
    {
        *(
            f"stores.{name}"
            for name in ("conversations", "memory", "pauses", "audit", "locks", "checkpoints")
        ),
        "recall",
        "pauses",
    }
)
"""Parts that only built-in flows use."""


class _Readiness(msgspec.Struct):
    """What `/readyz` reports."""

    faults: dict[str, str]


_readiness = msgspec.json.Decoder(_Readiness)


class Note(str):
    """Details of a part that are no fault, and no good news either."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class PartCheck:
    """A part of a set-up, whether it is as it should be, and details."""

    part: str
    ok: bool
    detail: str

    @property
    def word(self) -> Literal["good", "note", "missing"]:
        """What to call the result."""
        if not self.ok:
            return "missing"
        return "note" if isinstance(self.detail, Note) else "good"


class PartMissing(CutoverError):
    """A part of a set-up is not as it should be."""

    def __init__(self, what: str, why: str = "") -> None:
        super().__init__(f"{what}: {why}" if why else what)


async def examine(settings: Settings, environ: Mapping[str, str]) -> list[PartCheck]:
    """Check everything a router would use.

    What only built-in flows use is left out where none is offered and it is no fault: the router
    opens these stores at its start, whatever it serves.
    """
    variables = {
        "server.qa_key_env": settings.server.qa_key_env,
        "gateway.key_env": settings.gateway.key_env,
        "admin.token_env": settings.admin.token_env,
        "captures.pseudonym_key_env": settings.captures.pseudonym_key_env,
        "tracing.endpoint_env": settings.tracing.endpoint_env,
        "conversations.token_env": settings.conversations.token_env,
    }
    local = any(powers.taped for powers in powers_of(settings.stacks).values())
    reserved = _reserved_names(settings)
    checks = {
        **{
            f"stacks.{name}": _stack(name, at, settings)
            for name, at in places(settings.stacks).items()
        },
        **{
            f"stores.{name}": _store(name, at, environ, settings)
            for name, at in _stores(settings, environ).items()
        },
        **(
            {"shadow.broker": _store("broker", broker, environ, settings)}
            if (broker := settings.shadow.broker)
            else {}
        ),
        "recall": _recall(settings, environ),
        **{
            f"providers.{name}": _reachable(one.base_url, one.base_url)
            for name, one in settings.providers.items()
        },
        **({"tools.python": _own_tools(settings)} if settings.tools.python.modules else {}),
        **({"limits.tools": _tool_limits(settings, reserved)} if settings.limits.tools else {}),
        **{
            f"tools.mcp.{name}": _tool_server(name, one, environ, reserved)
            for name, one in settings.tools.mcp.items()
        },
        **({"models": _models(settings, environ)} if local or settings.gateway.enabled else {}),
        **({"tokens": _tokens(settings, environ)} if local else {}),
        **{part: _secret(variable, environ) for part, variable in variables.items() if variable},
        **({"workers": _workers(settings.workers, environ)} if settings.workers.configured else {}),
        "pauses": _pauses(settings, environ),
        "captures": _captures(settings),
        "receipts": _receipts(settings, environ),
        "router": _router(settings),
        **({"gateway": _gateway(settings)} if settings.gateway.enabled else {}),
    }
    if not settings.captures.pseudonym_key_env:  # otherwise its variable is among the secrets
        checks["pseudonyms"] = _pseudonyms(settings, environ)
    found = await asyncio.gather(*(check_part(*check) for check in checks.items()))
    built_in = any(
        flow.declared is None and is_offered(name, settings)
        for name, flow in settings.flows.items()
    )
    return [one for one in found if built_in or not one.ok or one.part not in _OF_BUILT_IN_FLOWS]


async def check_part(part: str, check: Awaitable[str]) -> PartCheck:
    """Await the details of a part; what the check raises says what is missing."""
    try:
        return PartCheck(part, ok=True, detail=await check)
    except CutoverError as error:
        return PartCheck(part, ok=False, detail=str(error))


def describe_declared(flow: DeclaredFlow) -> str:
    """Return what there is to know of a declared flow: its wire, its end, its failure, its key."""
    file = flow.dialect
    ends = f"ends with {' or '.join(file.terminal)}" if file.terminal else "ends with its stream"
    broken = "in failure frames" if file.failure else "with its connection, no failure is declared"
    routed = next(iter(flow.route_keys.values()), "the whole body")
    other = f"; graph streams {flow.graph_dialect.name}" if flow.graph_dialect else ""
    return f"declared: {file.framing}, {ends}; broken, it ends {broken}; routed by {routed}{other}"


def stacks_without(flow: str, settings: Settings) -> list[StackName]:
    """Return the stacks of this process that cannot be loaded, or do not have a flow."""
    lacking: list[StackName] = []
    for name, place in places(settings.stacks).items():
        if isinstance(place, RemoteStackSettings):
            continue
        try:
            has_flow = flow in load_stack(name, place).flows
        except StackNotLoaded:
            has_flow = False
        if not has_flow:
            lacking.append(name)
    return lacking


async def _stack(name: StackName, place: str | RemoteStackSettings, settings: Settings) -> str:
    if isinstance(place, RemoteStackSettings):
        # A query may hold a key.
        specs = [spec for flow, spec in flows_of(settings).items() if place.serves(flow)]
        urls = sorted({str(endpoint_url(place, spec).with_query(None)) for spec in specs})
        return await _reachable(place.url, ", ".join(urls))
    if settings.stacks.place(name):
        refuse_hidden(place)
    stack = load_stack(name, place, prompt_folders(settings))
    built_in = {name for name, flow in settings.flows.items() if flow.declared is None}
    lacks = sorted(built_in - stack.flows.keys())
    if missing := [flow for flow in lacks if settings.flows[flow].enable_langgraph]:
        raise PartMissing(place, f"it has no flow {', '.join(missing)}")
    off = f"; it has no flow {', '.join(lacks)}, which {_are(lacks)} off" if lacks else ""
    return f"{place}, fingerprint {stack.fingerprint}{off}"


def _are(things: Sequence[str]) -> str:
    return "is" if len(things) == 1 else "are"


def _stores(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    stores = settings.stores
    decided = {"locks": stores.locks, "pins": stores.pins}
    with suppress(CutoverError):  # the store that is at fault has a line of its own
        addresses = store_addresses(settings, environ, settings.server.workers)
        decided |= {name: getattr(addresses, name) for name, at in decided.items() if at == AUTO}
    shared_state = decided["locks"] if stores.shared_state == AUTO else stores.shared_state
    audit = stores.pauses if stores.audit == AUTO else stores.audit
    checkpoints = stores.checkpoints
    if checkpoints == AUTO:
        # Beside a variable's store is where the variable says.
        named = stores.conversations.startswith("env:")
        checkpoints = (
            stores.conversations if named else checkpoints_address(stores.conversations, AUTO)
        )
    return {
        **stores.model_dump(),
        **decided,
        "shared_state": shared_state,
        "audit": audit,
        "checkpoints": checkpoints,
    }


async def _store(what: str, place: str, environ: Mapping[str, str], settings: Settings) -> str:
    url = resolve_address(place, environ)
    scheme, _, rest = url.partition("://")
    if url != AUTO and scheme not in SCHEMES.get(what, (scheme,)):
        raise NoSuchStore(what, scheme)
    if scheme == "sqlite":
        return await asyncio.to_thread(_file, what, Path(rest.removeprefix("/")), place)
    if not place:
        return "none is configured"
    if scheme not in PORTS:
        return f"{place}: for the life of one process"
    if health := await check_server(what, url):
        return _healthy(health, place)
    await _reachable(url, place)
    if not url.startswith("http"):
        raise PartMissing(place, "takes connections and says nothing, or nothing intelligible")
    return await _service(url, place, conversations_token(settings.conversations, environ))


async def _service(url: str, place: str, token: str) -> str:
    """Ask a service that stores conversations for a message that it does not have."""
    try:
        async with HttpConversations.open(url, token=token) as service:
            await service.find("doctor", NO_MESSAGE)
    except EffectFailed as failed:
        status = failed.fault.data.get("status", failed.fault.code)
        why = f"it should answer 404 to an unknown message, not {status}; see memory-service.md"
        raise PartMissing(place, why) from failed
    return f"{place}: answers"


def _file(what: str, path: Path, place: str) -> str:
    """Check whether a file can be used, or created."""
    writable = _writable(path.parent, place)
    if not path.exists():
        return writable
    detail = _healthy(check_store_file(what, path), place)
    if not os.access(path, os.W_OK):
        raise PartMissing(place, "the file cannot be written to")
    return detail


def _healthy(health: HealthCheck, place: str) -> str:
    detail = f"{place}: {health.detail}"
    if not health.ok:
        raise PartMissing(detail)
    return detail


async def _recall(settings: Settings, environ: Mapping[str, str]) -> str:
    detail = await describe_recall(settings, environ)
    base_url = settings.embeddings.base_url
    return await _reachable(base_url, detail) if base_url else detail


async def describe_recall(settings: Settings, environ: Mapping[str, str]) -> str:
    """Return by what the memory searches; raises `CutoverError` if not by what is configured."""
    section = settings.embeddings
    if not (section.local or section.base_url):
        return Note(f"{_FULL_TEXT}: [embeddings] names no model")
    try:
        made_by = _embedder(section, environ)
        where = resolve_address(settings.stores.memory, environ)
        why = await _why_no_vectors(where)
    except EffectFailed as failed:
        raise PartMissing(_MUTE) from failed
    if why:
        raise PartMissing(_FULL_TEXT, why)
    counts = await _vector_counts(where)
    lacking = counts.lacking(_maker(section)) if counts else ""
    return f"vectors by {made_by}" + (f"; {lacking}" if lacking else "")


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


async def _own_tools(settings: Settings) -> str:
    """List the tools of a team's modules, and where each is from; none is called."""
    for module in settings.tools.python.modules:
        refuse_hidden(module)
    tools = python_tools(settings.tools.python.modules)
    sorts = _by_writing((f"{one.spec.name} ({one.source})", one.read_only) for one in tools)
    return f"{len(tools)} tools; {sorts}"


async def _tool_limits(settings: Settings, reserved: Mapping[str, str]) -> str:
    """List the tools with limits of their own."""
    refuse_unknown_tools(settings, reserved)
    return ", ".join(f"{name} {limit:g} s" for name, limit in settings.limits.tools.items())


def _reserved_names(settings: Settings) -> Mapping[str, str]:
    try:
        return reserved_names(python_tools(settings.tools.python.modules))
    except CutoverError:  # `_own_tools` reports it
        return reserved_names(())


def _by_writing(tools: Iterable[tuple[str, bool]]) -> str:
    """List tools, those that are read-only first."""
    named = list(tools)
    read_only, writing = (
        ", ".join(name for name, kind in named if kind == wanted) or "none"
        for wanted in (True, False)
    )
    return f"read-only {read_only}; not read-only {writing}"


async def _tool_server(
    name: str,
    section: McpServerSettings,
    environ: Mapping[str, str],
    reserved: Mapping[str, str],
) -> str:
    """Connect to a server, starting it if need be, and list its tools; none is called."""
    place = section.command[0] if section.command else section.url.partition("?")[0]
    server, library = tool_server(name, section, environ, reserved), mcp()
    try:
        async with (
            asyncio.timeout(server.connect),
            library.open_session(server, lambda: None) as session,
        ):
            offering = library.offer_tools(server, await session.list())
    except Exception as error:
        raise PartMissing(place, f"{library.describe_error(error)}") from error
    sorts = _by_writing((one.spec.name, one.read_only) for one in offering.offers)
    detail = f"{place}: {len(offering.offers)} tools; {'; '.join((sorts, *offering.faults))}"
    if offering.faults:
        raise PartMissing(detail)
    return detail


async def _workers(section: WorkerSettings, environ: Mapping[str, str]) -> str:
    """List what workers can do, once folders, programs and engine are there; nothing is changed."""
    for key, folder in _missing_folders(section):
        raise PartMissing(folder, f"no folder, and workers.{key} names it")
    async with AsyncExitStack() as stack:
        workers = open_workers(section, environ, stack)
        if section.engine:
            updates = workers.run("doctor", WorkerCall("container", "list"))
            result = [update.result async for update in updates][-1]
            if result is None or not result.ok:
                raise PartMissing(section.engine, result.message if result else "")
        for key in ("build", "check"):
            program, *_ = getattr(section.deploy, key) or ("",)
            of_release = (
                "/" in program and not Path(program).is_absolute()
            )  # which is not there yet
            if program and not of_release and which(program) is None:
                raise PartMissing(program, f"no program, and workers.deploy.{key} names it")
        return ", ".join(workers.configured)


def _missing_folders(section: WorkerSettings) -> list[tuple[str, str]]:
    folders = {
        "root": section.root,
        "temporary_root": section.temporary_root,
        "deploy.source": section.deploy.source,
    }
    return [(key, one) for key, one in folders.items() if one and not Path(one).is_dir()]


async def _models(settings: Settings, environ: Mapping[str, str]) -> str:
    entries = model_entries(settings, environ)
    local = [name for name, at in places(settings.stacks).items() if isinstance(at, str)]
    flows = {name for name in settings.flows if set(local) - set(stacks_without(name, settings))}
    if faults := model_faults(entries, settings, flows):
        raise PartMissing(faults["models"])
    return ", ".join(entry.model_id for entry in entries)


async def _tokens(settings: Settings, environ: Mapping[str, str]) -> str:
    """Return for which models tokens are counted exactly; that there are none is no fault."""
    entries = model_entries(settings, environ)
    exact = ", ".join(entry.model_id for entry in entries if encoding_of(entry.model))
    if not exact:
        return Note("estimated: no tokenizer is known for any model")
    if not tokenizers_installed():
        return Note(f"estimated, also for {exact}: the extra 'tokens' is not installed")
    return f"counted exactly for {exact}"


async def _secret(variable: str, environ: Mapping[str, str]) -> str:
    read_secret(variable, environ)
    return f"{variable} is set"


async def _pauses(settings: Settings, environ: Mapping[str, str]) -> str:
    """Check the encryption of pauses; that there is none is no fault."""
    section = settings.pauses
    if isinstance(pause_encryption(section, environ), Plaintext):
        return Note("not encrypted: [pauses] key_env names no key")
    plain = "refused" if section.strict else "read"
    return f"sealed by the first key in {section.key_env}; what was stored without one is {plain}"


async def _captures(settings: Settings) -> str:
    url = settings.captures.path
    try:
        place = Place(url)
    except (OSError, ValueError, ImportError) as error:
        raise PartMissing(url, str(error)) from error
    if place.local:
        return _writable(Path(place.root), url)
    return await asyncio.to_thread(_objects, place, url)


def _objects(place: Place, url: str) -> str:
    """Put an object, read it, list it and delete it; names the permission that is missing."""
    path = f"{place.root}/doctor/{secrets.token_hex(8)}"
    steps: Mapping[tuple[str, str], Callable[[], object]] = {
        ("written", "s3:PutObject"): lambda: place.put(path, b"a probe of `cutover doctor`"),
        ("read", "s3:GetObject"): lambda: place.read(path),
        ("listed", "s3:ListBucket"): lambda: place.below(f"{place.root}/doctor"),
        ("deleted", "s3:DeleteObject"): lambda: place.remove(path),
    }
    failed = dict[str, str]()
    for (what, permission), step in steps.items():
        try:
            step()
        except OSError as error:
            named = f", {permission}" if isinstance(error, PermissionError) else ""
            failed[what] = f"objects cannot be {what} ({error}{named})"
            if what == "written":
                break
    if failed:
        left = f"; {path} is left there" if "deleted" in failed else ""
        raise PartMissing(url, "; ".join(failed.values()) + left)
    detail = f"{url}: objects can be written, read, listed and deleted"
    if place.keeps_versions():
        return Note(
            f"{detail}; it keeps versions: what `cutover forget` and keep_days delete stays until "
            "a lifecycle rule removes old versions"
        )
    return detail


async def _receipts(settings: Settings, environ: Mapping[str, str]) -> str:
    """Report which key signs the receipts in exchange ids; that none is configured is no fault."""
    if keys := configured_receipt_keys(settings, environ):
        return f"signed by the first of {len(keys)} in {settings.server.receipt_key_env}"
    captures = settings.captures
    if environ.get(captures.pseudonym_key_env):
        return f"signed by a key derived from that in {captures.pseudonym_key_env}"
    return Note(
        f"[server] receipt_key_env names no key: one is stored in {captures.path}, and verifies "
        "feedback wherever these captures are"
    )


async def _pseudonyms(settings: Settings, environ: Mapping[str, str]) -> str:
    return Note(unsearchable(settings.captures, environ))


async def _router(settings: Settings) -> str:
    """Ask the router that runs on the configured address what it needs a restart for.

    That there is none, or that a change waits for a restart, is no fault.
    """
    url = URL.build(scheme="http", host=settings.server.host, port=settings.server.port)
    request = f"GET /readyz HTTP/1.1\r\nhost: {url.authority}\r\n\r\n".encode()
    try:
        async with (
            asyncio.timeout(CONNECT_SECONDS),
            aclosing(Client(url, CONNECT_SECONDS)) as client,
        ):
            response = await client.request(request)
            faults = _readiness.decode(await response.read(_MOST_BYTES)).faults
    except (ConnectTimedOut, Unreachable, ResponseLost, TimeoutError, *NO_JSON):
        return Note(f"none runs at {url}")
    if waits := faults.get("restart"):
        return Note(f"{url}: {waits}")
    return f"{url}: no change waits for a restart"


async def _gateway(settings: Settings) -> str:
    """Look for the gateway of a router that runs; that there is none is no fault."""
    if settings.gateway.address is None:
        return Note("on the address of [server]: users reach it, too")
    host, port = settings.gateway.address
    url = str(URL.build(scheme="http", host=host, port=port))
    try:
        return await _reachable(url, url)
    except PartMissing:
        return Note(f"none runs at {url}")


def _writable(folder: Path, detail: str) -> str:
    """Check whether a folder can be written to, or created."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not (there.is_dir() and os.access(there, os.W_OK)):
        raise PartMissing(detail, f"{there} cannot be written to")
    return detail


async def _reachable(url: str, detail: str) -> str:
    """Check whether an address accepts connections; nothing is sent."""
    try:
        await reach(url)
    except NotReached as error:
        raise PartMissing(detail, str(error)) from error
    return f"{detail}: reachable"
