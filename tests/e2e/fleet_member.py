"""One router of a fleet, in a process of its own: prints its assignments, and serves a sample.

    python -m tests.e2e.fleet_member CONFIGURATION RUN [serve]

The stacks say nothing but their end: who is assigned is all that is asked of it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec

from contract.flows.chat import CHAT, Accept, ChatRequest, End, StartReply, Success
from cutover.wiring.router import assemble_router
from effects.stores import SqlPins
from router.capture.writer import CaptureCounts
from router.config.loader import load_settings
from router.config.schema import Settings
from router.http.connection import BodyMemory
from router.http.endpoints import FlowEndpoint
from router.router import Router
from router.routing.pins import Pins
from router.serving.stack import LocalStack
from tests.support.patience import be_patient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from contract.flow import Event
    from effects.stores import PinStore
    from router.stack import StackName

KEYS = 10_000
CHATS = 100
STACKS: tuple[StackName, ...] = ("legacy", "graph")


class Assigned(msgspec.Struct, frozen=True):
    """Who is assigned, a letter a key: by the hash alone, and by pins in each store."""

    hashed: str
    pinned: dict[str, str]


@dataclass(slots=True)
class Discarded:
    """Captures that keep nothing."""

    counts: Any = field(default_factory=CaptureCounts)

    def put(self, records: Sequence[Any], values: Any = None) -> None:
        """Drop the lines of an exchange."""

    def put_later(self, record: Any, values: Any) -> None:
        """Drop the line of a second run."""

    def feedback(self, record: Any) -> None:
        """Drop what a user thought."""


async def silent(_: object, __: object) -> AsyncIterator[Event]:
    """Reply with nothing."""
    for event in (Accept(), StartReply(), Success(""), End()):
        yield event


def assembled(settings: Settings, store: PinStore | None = None) -> Router:
    """Make a router; where there is a store, conversations are frozen."""
    if store is not None:
        sticky = settings.flows["chat"].model_copy(
            update={"route_key": "session_id", "sticky": "conversation"}
        )
        settings = settings.model_copy(update={"flows": {"chat": sticky}})
    return assemble_router(
        flows={"chat": CHAT},
        stacks={name: LocalStack(name, {"chat": silent}, name) for name in STACKS},
        # Nothing is ever called.
        live=lambda _flow, _: cast("Any", SimpleNamespace(model=None)),
        captures=Discarded(),
        settings=lambda: settings,
        pins=None if store is None else Pins(store, time.perf_counter, time.time),
    )


async def letters(made: Router, bodies: Iterable[ChatRequest]) -> str:
    """Decide as the router does; returns a letter for each request."""
    return "".join(
        [(await made.assigner.decide(CHAT, one, None)).assignment.stack[0] for one in bodies]
    )


async def member(settings: Settings, run: str, stores: dict[str, PinStore]) -> Assigned:
    """Assign ten thousand route keys, and some conversations that are frozen."""
    hashed = await letters(
        assembled(settings), (ChatRequest(message_id=f"key {number}") for number in range(KEYS))
    )
    pinned = {}
    for name, store in stores.items():
        turns = (ChatRequest(message_id="m", chat_id=f"{run} {number}") for number in range(CHATS))
        pinned[name] = await letters(assembled(settings, store), turns)
    return Assigned(hashed, pinned)


async def main(configuration: str, run: str, *, serve: bool) -> None:
    """Print this router's assignments; then serve, until it is killed."""
    settings = load_settings(Path(configuration), {"chat": CHAT})
    async with AsyncExitStack() as stack:
        path = settings.stores.pins.removeprefix("sqlite:///")
        stores: dict[str, PinStore] = {
            "sqlite": await stack.enter_async_context(SqlPins.open(path))
        }
        if settings.stores.locks != "process":
            redis = import_module("effects.stores.redis").RedisPins(settings.stores.locks)
            stack.push_async_callback(redis.aclose)
            stores["redis"] = redis
        found = await member(settings, run, stores)
        print(msgspec.json.encode(found).decode(), flush=True)  # noqa: T201 - to its parent
        if serve:
            await _serve(assembled(settings))


async def _serve(router: Router) -> None:
    module, sockets = (import_module(f"cutover.server.{name}") for name in ("serve", "sockets"))
    listening = sockets.listen("127.0.0.1", 0)
    server = module.server(FlowEndpoint(router, BodyMemory(router.settings), CHAT), router, 1.0)
    print(sockets.address(listening), flush=True)  # noqa: T201 - as above
    await server.serve(sockets=[listening])


if __name__ == "__main__":
    # Who is assigned is asked here, not how long a busy machine's pins are waited for.
    be_patient(setattr, importing=True)
    asyncio.run(main(sys.argv[1], sys.argv[2], serve=sys.argv[3:] == ["serve"]))
