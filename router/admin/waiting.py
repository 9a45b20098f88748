"""What waits for a human, as who operates a router may see it: never what it holds."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from contract.errors import EffectFailed
from router.admin.audit import Change, now
from router.admin.pages import PausePage, PausesPage
from router.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from effects.stores import PauseStore, Waiting
    from router.admin.audit import Audit


@dataclass(frozen=True, slots=True)
class WaitingPauses:
    """The pauses of a store, listed and expired by hand; raises `Problem`."""

    store: PauseStore
    audit: Audit

    async def show(self) -> PausesPage:
        """List what waits, oldest first."""
        with _reached():
            waiting = await self.store.waiting()
        moment = now() / 1_000_000
        return PausesPage(pauses=[_page(one, moment) for one in waiting])

    async def expire(self, who: str, hitl_id: str) -> PausePage:
        """Expire one, on record; raises `Problem` 404, 409, 410 or 503."""
        with _reached():
            known = {one.hitl_id: one for one in await self.store.waiting()}
            reply = await self.store.expire(hitl_id) if hitl_id in known else "unknown"
        match reply:
            case "unknown":
                raise Problem(404, "unknown_pause", "no pause with this id waits")
            case "taken":
                raise Problem(409, "continued_already", "somebody is going on from this pause")
            case "over":
                raise Problem(410, "expired", "this pause is over already")
            case "expired":
                return await self._on_record(who, known[hitl_id])
            case _:
                assert_never(reply)

    async def _on_record(self, who: str, before: Waiting) -> PausePage:
        change = Change(
            at=now(),
            who=who,
            what="pause expired",
            flow=before.flow,
            before={before.hitl_id: before.state},
            after={before.hitl_id: "expired"},
        )
        await asyncio.to_thread(self.audit, change)
        return _page(before, now() / 1_000_000, "expired")


@contextmanager
def _reached() -> Iterator[None]:
    try:
        yield
    except EffectFailed as failure:
        why = "the pauses cannot be reached"
        raise Problem(503, failure.fault.code, why, retry_after=1) from failure


def _page(waiting: Waiting, moment: float, state: str = "") -> PausePage:
    return PausePage(
        id=waiting.hitl_id,
        flow=waiting.flow,
        stack=waiting.stack,
        session=waiting.session_id,
        state=state or waiting.state,
        age=max(moment - waiting.created_at, 0.0),
        expires_in=max(waiting.expires_at - moment, 0.0),
        size=waiting.size,
    )
