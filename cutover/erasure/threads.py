"""What stacks keep of conversations by themselves: copies of what is in the stores."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple

from contract.errors import CutoverError
from cutover.erasure.stores import reason, sqlite_there
from cutover.wiring.addresses import checkpoints_address
from cutover.wiring.stacks import open_stored_flows
from router.config import resolve_address

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from router.config import Settings


_UNKNOWN = "threads: of which chats is not known without the conversations; come again"


class ForgottenThreads(NamedTuple):
    """Of how many sessions threads were removed, if there were any, and what could not be.

    `sessions` is None where that failed.
    """

    sessions: int | None
    left: tuple[str, ...]


async def forget_threads(
    settings: Settings,
    environ: Mapping[str, str],
    sessions: Collection[str],
    *,
    all_known: bool = True,
) -> ForgottenThreads:
    """Remove the threads of sessions; the store is told nothing where there are none.

    Not `all_known`, there may be others of whoever is to be forgotten.

    The turns are gone by then: whoever has to come again has to be told for which sessions.
    """
    try:
        stores = settings.stores
        where = checkpoints_address(
            resolve_address(stores.conversations, environ),
            resolve_address(stores.checkpoints, environ),
        )
        if not all_known and _there(where):
            return ForgottenThreads(None, (_UNKNOWN,))
        if not sessions or not _there(where):
            return ForgottenThreads(0, ())
        async with AsyncExitStack() as stack:
            for kept in await open_stored_flows(settings.stacks, stack, where):
                for session in sessions:
                    await kept.forget(session)
    except CutoverError as error:
        named = ", ".join(map(repr, sorted(sessions)))
        return ForgottenThreads(None, (f"threads of {named}: {reason(error)}; use --chat",))
    return ForgottenThreads(len(sessions), ())


def _there(where: str) -> bool:
    scheme, _, rest = where.partition("://")
    return scheme not in {"", "memory"} and (scheme != "sqlite" or sqlite_there(rest) is not None)
