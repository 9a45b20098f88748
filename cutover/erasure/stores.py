"""Erasure in the stores: turns, memories, pauses, and the threads stacks keep beside them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from contract.errors import CutoverError, EffectFailed
from contract.stores import ChatKey, DataSubject
from cutover.wiring.addresses import audit_address, checkpoints_address
from cutover.wiring.stacks import open_stored_flows
from effects.memory import open_memory
from effects.stores import SqlAudit, SqlConversations, SqlPauses, sqlite_file
from effects.stores.conversations import ErasedTurns
from router.config.addresses import resolve_address

if TYPE_CHECKING:
    from router.config.schema import Settings, StoreSettings

Store = TypeVar("Store")
Erased = TypeVar("Erased")

_NO_TURNS = ErasedTurns(0, frozenset())
_UNKNOWN = "threads: of which chats is not known without the conversations; come again"


class StoredByService(CutoverError):
    """A service stores the conversations, and its protocol has no erasure."""

    def __init__(self) -> None:
        super().__init__("kept by a service, which has to be asked itself")


class ErasedRows(NamedTuple):
    """What was removed from each store, None where that failed, and a sentence for each failure.

    Of the `audit` only names are removed: its entries stay, with pseudonyms that lead nowhere.
    `chats` are those concerned: copies of them are outdated. Not `all_chats` where the store of
    their turns failed.
    """

    turns: int | None
    memories: int | None
    pauses: int | None
    audit: int | None
    failures: tuple[str, ...]
    chats: frozenset[ChatKey]
    all_chats: bool


async def erase_rows(
    stores: StoreSettings,
    environ: Mapping[str, str],
    subject: DataSubject,
    exchanges: Collection[str],
) -> ErasedRows:
    """Remove a subject's rows; pauses are the user's own, of these exchanges, of chats concerned.

    A store that fails does not keep the others from erasing.
    """
    failures: list[str] = []

    async def attempt(
        name: str,
        opened: Callable[[str], AbstractAsyncContextManager[Store]],
        erase: Callable[[Store], Awaitable[Erased]],
        nothing: Erased,
    ) -> Erased | None:
        try:
            if name == "audit":
                place = audit_address(stores, environ)
            else:
                place = resolve_address(getattr(stores, name), environ)
            if place.startswith(("http://", "https://")):
                raise StoredByService
            if not _exists(place):
                return nothing
            async with opened(place) as store:
                return await erase(store)
        except CutoverError as error:
            failures.append(f"{name}: {_reason(error)}")
            return None

    turns = await attempt(
        "conversations", SqlConversations.open, lambda store: store.erase(subject), _NO_TURNS
    )
    # Their vectors go with them, whichever embedder made them.
    memories = await attempt("memory", open_memory, lambda store: store.erase(subject), 0)
    chats = turns.chats if turns else frozenset[ChatKey]()
    if subject.kind == "chat":
        chats |= {ChatKey(subject.flow, subject.value)}
    erase_pauses = partial(_erase_pauses, subject, exchanges, chats)
    pauses = await attempt("pauses", SqlPauses.open_store, erase_pauses, 0)
    audit = await attempt("audit", SqlAudit.open, lambda store: store.erase(subject), 0)
    return ErasedRows(
        turns=turns.turns if turns else None,
        memories=memories,
        pauses=pauses,
        audit=audit,
        failures=tuple(failures),
        chats=chats,
        all_chats=turns is not None or subject.kind == "chat",
    )


async def _erase_pauses(
    subject: DataSubject, exchanges: Collection[str], chats: Collection[ChatKey], store: SqlPauses
) -> int:
    """Remove the pauses of exchanges, of the user and of chats; encrypted ones need no key."""
    users = {subject.value} if subject.kind == "user" else ()
    removed = await store.erase(exchanges, (), users)
    if subject.kind != "message":  # its pause is its exchange's; others of the chat stay
        for flow, session in chats:
            removed += await store.erase((), (session,), flow=flow or None)
    return removed


class ErasedThreads(NamedTuple):
    """The number of sessions whose threads were removed, None where that failed, and why."""

    sessions: int | None
    failures: tuple[str, ...]


async def erase_threads(
    settings: Settings,
    environ: Mapping[str, str],
    sessions: Collection[str],
    *,
    all_known: bool = True,
) -> ErasedThreads:
    """Remove the stacks' threads of sessions; where they have a store, and there are sessions.

    Unless `all_known` there may be others of the subject. The turns are gone by then: a failure
    names the sessions, since a second call could not find them.
    """
    try:
        stores = settings.stores
        conversations = resolve_address(stores.conversations, environ)
        place = checkpoints_address(conversations, resolve_address(stores.checkpoints, environ))
        if not all_known and _exists(place):
            return ErasedThreads(None, (_UNKNOWN,))
        if not sessions or not _exists(place):
            return ErasedThreads(0, ())
        async with AsyncExitStack() as stack:
            for threads in await open_stored_flows(settings.stacks, stack, place):
                for session in sessions:
                    await threads.forget(session)
    except CutoverError as error:
        named = ", ".join(map(repr, sorted(sessions)))
        return ErasedThreads(None, (f"threads of {named}: {_reason(error)}; use --chat",))
    return ErasedThreads(len(sessions), ())


async def erase_set_aside(
    settings: Settings, environ: Mapping[str, str], wanted: Callable[[bytes], bool]
) -> tuple[int | None, tuple[str, ...]]:
    """Remove a subject's exchanges that workers of shadows have set aside.

    Returns their number, None where that failed, and why.
    """
    try:
        broker = resolve_address(settings.shadow.broker, environ)
        if not broker:
            return 0, ()
        library = import_module("effects.stores.shadow_stream")  # of an extra
        async with aclosing(library.RedisShadowStream(broker)) as stream:
            return await stream.erase_set_aside(wanted), ()
    except CutoverError as error:
        return None, (f"exchanges set aside: {_reason(error)}",)


def _exists(place: str) -> bool:
    """Whether a store outlives the process, and its file, if it is one, has been made."""
    scheme = place.partition("://")[0]
    return scheme not in {"", "memory"} and (scheme != "sqlite" or sqlite_file(place).exists())


def _reason(error: CutoverError) -> str:
    if not isinstance(error, EffectFailed):
        return str(error)
    code = error.fault.code
    return f"the store cannot be reached ({code})" if code.endswith("_unavailable") else code
