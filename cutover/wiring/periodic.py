"""Periodic jobs beside serving: sweep pauses, count pins, follow what others delete or release."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from itertools import groupby

from contract.errors import EffectFailed
from effects.stores import ConversationStore, PauseStore, PauseTotals, StoredWrite, WriteJournal
from effects.stores.shadow_replies import ShadowReplies
from router.config.schema import Settings
from router.routing.pins import Pins

log = logging.getLogger(__name__)

PERIOD = 600.0
"""Seconds between two sweeps; a tape may be stored that much longer than it should."""
REPORT_PERIOD = 60.0
FINISH_PERIOD = 15.0
RELEASE_PERIOD = 1.0
"""Seconds until a router learns that conversations were released."""
COUNT_PERIOD = 60.0
NO_PAUSES = PauseTotals(0, 0)
_SITE = "own replies"
_LATEST = 1_000
"""Turns of a conversation that are read: several times the replies stored of one."""


@asynccontextmanager
async def periodic(
    name: str, job: Callable[[], Awaitable[None]], seconds: float, *, at_once: bool = False
) -> AsyncIterator[None]:
    """Run a job every so many seconds, the first time `at_once` or after them.

    What it raises is logged, of a store that fails the code alone, and the job runs again. A run
    in progress is waited for at the end: a cancellation could get lost in the database's driver.
    """
    closing = asyncio.Event()

    async def run() -> None:
        try:
            await job()
        except EffectFailed as failure:
            log.warning("%s: %s, and is tried again", name, failure.fault.code)
        except Exception:
            log.exception("%s: failed, and is tried again", name)

    async def repeat() -> None:
        if at_once and not closing.is_set():
            await run()
        while not closing.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await closing.wait()
            if not closing.is_set():
                await run()

    task = asyncio.create_task(repeat(), name=name)
    try:
        yield
    finally:
        closing.set()
        await asyncio.wait({task})


def sweeping(pauses: PauseStore) -> AbstractAsyncContextManager[None]:
    """Let due pauses expire and old ones be removed although nothing reads them."""

    async def sweep() -> None:
        swept = await pauses.sweep()
        if any(swept):
            log.info("pauses: %s expired, %s removed", *swept)

    return periodic("sweep pauses", sweep, PERIOD, at_once=True)


def counting_pauses(
    pauses: PauseStore, totals: dict[str, PauseTotals]
) -> AbstractAsyncContextManager[None]:
    """Keep in `totals` what waits for a human, by flow; a flow in which nothing does is left."""

    async def count() -> None:
        found = await pauses.totals()
        totals.update(dict.fromkeys(totals, NO_PAUSES) | dict(found))

    return periodic("count pauses", count, COUNT_PERIOD, at_once=True)


def reporting_writes(
    journal: WriteJournal, report: Callable[[tuple[StoredWrite, ...]], None]
) -> AbstractAsyncContextManager[None]:
    """Report the writes of killed routers, in a thread."""

    async def report_abandoned() -> None:
        found = await journal.abandoned(time.time())
        for _, writes in groupby(found, key=lambda write: write.exchange):
            await asyncio.to_thread(report, tuple(writes))

    return periodic("report writes", report_abandoned, REPORT_PERIOD, at_once=True)


def finishing(finish: Callable[[], Awaitable[None]]) -> AbstractAsyncContextManager[None]:
    """Finish what killed routers left of exchanges after their ends."""
    return periodic("finish remainders", finish, FINISH_PERIOD, at_once=True)


def following_pins(
    pins: Pins, settings: Callable[[], Settings]
) -> AbstractAsyncContextManager[None]:
    """Follow releases by other routers; count the pins every minute, and after an edit."""
    counted, due = "", 0.0

    async def follow() -> None:
        nonlocal counted, due
        await pins.follow()
        if counted != settings().version or due <= time.monotonic():
            counted, due = settings().version, time.monotonic() + COUNT_PERIOD
            await pins.count()

    return periodic("follow pins", follow, RELEASE_PERIOD, at_once=True)


def following(
    replies: ShadowReplies, conversations: ConversationStore
) -> AbstractAsyncContextManager[None]:
    """Remove the shadows' own replies to messages that are deleted from the conversations."""
    return periodic("follow replies", partial(drop_unknown, replies, conversations), PERIOD)


async def drop_unknown(replies: ShadowReplies, conversations: ConversationStore) -> None:
    """Remove the replies to messages the store no longer has; raises `EffectFailed`."""
    for chat in replies.chats:
        stored = conversations.of(chat.flow)
        turns = await stored.history(_SITE, chat.chat_id, before="", limit=_LATEST)
        replies.retain(chat, {turn.message_id for turn in turns})
