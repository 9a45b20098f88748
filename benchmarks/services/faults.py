"""Faults of a deployment: which process, and what happens to it while streams are open."""

from __future__ import annotations

import logging
import random
import signal
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from benchmarks.services.conversations import Conversations
from benchmarks.services.processes import Deployment, Member

log = logging.getLogger(__name__)

Fault = Callable[[Deployment, Conversations], Awaitable[None]]


def _crash(member: Callable[[Deployment], Member]) -> Fault:
    async def crash(deployed: Deployment, _: Conversations) -> None:
        await member(deployed).kill()
        await member(deployed).start()

    return crash


def _stand_still(member: Callable[[Deployment], Member]) -> Fault:
    """Stop a process until its streams have ended without it; then it goes on with its work."""

    async def stand_still(deployed: Deployment, conversations: Conversations) -> None:
        member(deployed).send(signal.SIGSTOP)
        try:
            await conversations.ended()
        finally:
            member(deployed).send(signal.SIGCONT)

    return stand_still


async def _drain(deployed: Deployment, _: Conversations) -> None:
    await deployed.router.stop()
    await deployed.router.start()


async def _shop_gone(deployed: Deployment, conversations: Conversations) -> None:
    """Let the streams end that are open when the shop goes."""
    await deployed.shop.kill()
    await conversations.ended()
    await deployed.shop.start()


FAULTS: Final[Mapping[str, Fault]] = MappingProxyType(
    {
        "legacy killed": _crash(lambda one: one.legacy),
        "graph killed": _crash(lambda one: one.graph),
        "router killed": _crash(lambda one: one.router),
        "router drained": _drain,
        "shop killed": _shop_gone,
        "legacy stands still": _stand_still(lambda one: one.legacy),
        "graph stands still": _stand_still(lambda one: one.graph),
    }
)


async def strike(
    deployed: Deployment,
    conversations: Conversations,
    chance: random.Random,
    *,
    rounds: int,
    apart: int,
    struck: Callable[[], None] = lambda: None,
) -> None:
    """Let every fault happen in each round, in an order that is drawn; then no client asks again.

    There are up to `apart` events of all streams, a number that is drawn, between two faults.
    """
    for _ in range(rounds):
        for name in chance.sample(sorted(FAULTS), len(FAULTS)):
            await conversations.events(chance.randint(1, apart))
            log.info("%s", name)
            await FAULTS[name](deployed, conversations)
            struck()
    conversations.over = True
