"""The pins of a deployment, reached from outside its routers: in their store, or through one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import aiohttp
import msgspec

from contract.errors import CutoverError, EffectFailed
from cutover.stores import open_pins
from cutover.wiring.addresses import store_addresses
from effects.stores import MemoryPins, PinStore, sqlite_file
from router.admin.audit import Audit, write_audit
from router.admin.auth import read_tokens, split_tokens
from router.admin.pages import (
    FlowPins,
    PinsPage,
    ReleasedPins,
    pins_page,
    pins_released,
    released_pins,
)
from router.config.addresses import PROCESS
from router.config.schema import Settings
from router.stack import StackName

SECONDS = 60.0
"""How long a router may take to answer: it walks its store."""

Page = TypeVar("Page", PinsPage, ReleasedPins)


class PinsOutOfReach(CutoverError):
    """The store of the pins, or the router that has them in its memory, cannot be reached."""

    def __init__(self, why: str, advice: str) -> None:
        super().__init__(f"the pins cannot be reached: {why}; {advice}")


class PinControl(Protocol):
    """Counts and releases pinned conversations; both raise `PinsOutOfReach`."""

    async def count(self) -> PinsPage:
        """Count the pins by flow and stack."""
        ...

    async def release(self, flow: str, stack: StackName | None) -> ReleasedPins:
        """Release the conversations of a flow, all or those of one stack, on record."""
        ...


@asynccontextmanager
async def reaching_pins(
    settings: Settings, environ: Mapping[str, str], who: str, audit: Audit, router: str = ""
) -> AsyncIterator[PinControl]:
    """Reach the pins in the store that routers share, or in the memory of one router.

    `router` is the address of that one, if not the configured one. A release in a store is audited
    as by `who`, one by a router with the name of the token. Raises `PinsOutOfReach`.
    """
    address = store_addresses(settings, environ, settings.server.workers).pins
    if address == PROCESS or router:
        server = settings.server
        url = router or f"http://{server.host}:{server.port}"
        token = _token(settings, environ)
        timeout = aiohttp.ClientTimeout(SECONDS)
        async with aiohttp.ClientSession(
            timeout=timeout, headers={"authorization": f"Bearer {token}"}
        ) as session:
            yield _RouterPins(url.rstrip("/"), session)
        return
    async with AsyncExitStack() as stack:
        file = address.startswith("sqlite")
        there = not file or sqlite_file(address).exists()  # reading makes no file
        try:
            store = await open_pins(address, stack) if there else MemoryPins()
            yield _StoredPins(settings, store, who, audit)
        except EffectFailed as failure:
            why = f"[stores] pins reports {failure.fault.code}"
            raise PinsOutOfReach(why, "see cutover doctor, and repeat the command") from failure


async def describe_moves(flow: str, settings: Settings, who: str) -> str:
    """Describe what a rollback moves: conversations on graph, and which lose their history."""
    try:
        moving = (await _pinned(flow, settings, who)).graph
    except CutoverError as error:
        return f"how many conversations move is not known: {error}"
    if not moving:
        return "no conversation is pinned to graph: none loses its history"
    count = "1 conversation is" if moving == 1 else f"{moving:,} conversations are"
    return (
        f"{count} pinned to graph: each goes on at legacy with its next turn, and loses its "
        "history where legacy lacks a turn; /readyz counts these as histories_lost"
    )


async def describe_remaining(flow: str, settings: Settings, who: str) -> str:
    """Describe the conversations that stay on legacy whatever the percentage; "" for none."""
    try:
        staying = (await _pinned(flow, settings, who)).legacy
    except CutoverError as error:
        return f"how many conversations stay on legacy is not known: {error}"
    if not staying:
        return ""
    count = "1 conversation stays" if staying == 1 else f"{staying:,} conversations stay"
    return f"{count} pinned to legacy: cutover pins release {flow} --stack legacy moves them"


async def _pinned(flow: str, settings: Settings, who: str) -> FlowPins:
    """Count the pins of one flow; raises `PinsOutOfReach`."""
    audit = partial(write_audit, Path(settings.admin.audit_path))
    async with reaching_pins(settings, os.environ, who, audit) as control:
        found = {one.flow: one for one in (await control.count()).flows}
    return found.get(flow) or FlowPins(flow, 0.0, 0, 0)


@dataclass(frozen=True, slots=True)
class _StoredPins:
    """The pins in a store: routers learn of a release within a second."""

    settings: Settings
    store: PinStore
    who: str
    audit: Audit

    async def count(self) -> PinsPage:
        return pins_page(self.settings, await self.store.count())

    async def release(self, flow: str, stack: StackName | None) -> ReleasedPins:
        released = released_pins(self.settings, flow, await self.store.release(flow, stack))
        self.audit(pins_released(self.who, released))
        return released


@dataclass(frozen=True, slots=True)
class _RouterPins:
    """The pins that a router reaches, by its operations API."""

    url: str
    session: aiohttp.ClientSession

    async def count(self) -> PinsPage:
        return await self._request("GET", "/admin/pins", PinsPage)

    async def release(self, flow: str, stack: StackName | None) -> ReleasedPins:
        query = f"?stack={stack}" if stack else ""
        return await self._request("DELETE", f"/admin/flows/{flow}/pins{query}", ReleasedPins)

    async def _request(self, method: str, path: str, page: type[Page]) -> Page:
        advice = "is it the address of a router that offers /admin, with a token in force?"
        try:
            async with self.session.request(method, f"{self.url}{path}") as response:
                if not response.ok:
                    why = f"{self.url} answers {response.status}"
                    raise PinsOutOfReach(why, advice)
                return msgspec.json.decode(await response.read(), type=page)
        except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError) as error:
            why = f"no router answers at {self.url} ({type(error).__name__})"
            raise PinsOutOfReach(why, "is it running? --router names another one") from error


def _token(settings: Settings, environ: Mapping[str, str]) -> str:
    """Return the first token of the operations API; raises `CutoverError` without one."""
    variable = settings.admin.token_env
    if not variable:
        why = "they are in the memory of a router, and [admin] token_env names no token for it"
        advice = "set it (operations.md), or restart the router, which releases all of them"
        raise PinsOutOfReach(why, advice)
    text = environ.get(variable, "")
    read_tokens(text, variable)
    return next(iter(split_tokens(text)))[1]
