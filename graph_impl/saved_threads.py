"""Threads that an application's own graph has saved, read for an import and left as they are."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from contract.errors import CutoverError
from contract.threads import SavedMessage, SavedThread
from graph_impl.threads import plain_values

IDS_AT_ONCE: Final = 500
"""Ids of threads that are read at once."""
_PAGE: Final = (
    "SELECT DISTINCT thread_id FROM checkpoints WHERE thread_id > ? ORDER BY thread_id LIMIT ?"
)


class CheckpointsUnreadable(CutoverError):
    """A place holds no checkpoints of LangGraph, or cannot be reached."""

    def __init__(self, scheme: str, reason: str) -> None:
        super().__init__(f"the checkpoints in {scheme!r} cannot be read: {reason}")


class Page(Protocol):
    """Lists up to `IDS_AT_ONCE` ids of threads after one, in order."""

    def __call__(self, after: str) -> Sequence[str]:
        """List ids."""
        ...


class OpenedSaver(NamedTuple):
    """A checkpointer that is only read; `errors` are those of its database."""

    saver: BaseCheckpointSaver[Any]
    page: Page
    errors: type[Exception]


@contextmanager
def saved_threads(address: str, channel: str) -> Iterator[Iterator[SavedThread]]:
    """Open the checkpoints at a `sqlite:///` or `postgresql://` address, and yield the threads.

    The newest state of each, without subgraphs. Raises `CheckpointsUnreadable`, also while reading.
    """
    scheme, _, rest = address.partition("://")
    opening: AbstractContextManager[OpenedSaver]
    match scheme:
        case "sqlite":
            opening = _sqlite_saver(Path(rest.removeprefix("/")))
        case "postgresql":  # its library is an extra
            opening = import_module("graph_impl.postgres_threads").postgres_saver(address)
        case _:
            raise CheckpointsUnreadable(scheme or address, "known are sqlite and postgresql")
    with opening as opened:
        yield _threads(opened, scheme, channel)


def _threads(opened: OpenedSaver, scheme: str, channel: str) -> Iterator[SavedThread]:
    after = ""
    try:
        while ids := opened.page(after):
            for after in ids:
                yield _thread(opened, after, channel)
    except opened.errors as error:
        raise CheckpointsUnreadable(scheme, _reason(error)) from error


def _reason(error: Exception) -> str:
    # A server's text may hold its address, and that a password.
    return str(error) if isinstance(error, sqlite3.Error) else type(error).__name__


def _thread(opened: OpenedSaver, thread: str, channel: str) -> SavedThread:
    try:
        found = opened.saver.get_tuple({"configurable": {"thread_id": thread}})
        if found is None:
            return SavedThread(thread, fault="it has no state of its own, only its subgraphs have")
        values: Mapping[str, Any] = found.checkpoint["channel_values"]
        if not isinstance(messages := values.get(channel), list):
            there = ", ".join(map(repr, sorted(values))) or "none"
            return SavedThread(thread, fault=f"no messages in channel {channel!r}; it has {there}")
        return SavedThread(
            thread,
            tuple(map(_message, messages)),
            {**found.metadata, **values},
            int(datetime.fromisoformat(found.checkpoint["ts"]).timestamp()),
        )
    except opened.errors:
        raise
    except Exception as error:  # noqa: BLE001 - a state is whatever an application has saved
        return SavedThread(thread, fault=f"its state cannot be decoded ({type(error).__name__})")


def _message(message: Any) -> SavedMessage:
    match message:
        case HumanMessage():
            return SavedMessage("user", message.content, message.id)
        case AIMessage():
            return SavedMessage("assistant", message.content, message.id)
        case ChatMessage():
            return SavedMessage(message.role, message.content, message.id)
        case BaseMessage():
            return SavedMessage(message.type, message.content, message.id)
        case dict():
            role = message.get("role") or message.get("type")
            inner: Any = message.get("data")  # as `messages_to_dict` writes them
            found = inner if isinstance(inner, dict) else message
            return SavedMessage(str(role), found.get("content"), found.get("id"))
        case [str(role), content]:
            return SavedMessage(role, content)
        case _:
            return SavedMessage(type(message).__name__, None)


@contextmanager
def _sqlite_saver(path: Path) -> Iterator[OpenedSaver]:
    try:
        # A file that is not there would be created.
        connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
    except sqlite3.Error as error:
        raise CheckpointsUnreadable(scheme="sqlite", reason=f"{str(path)!r}: {error}") from error
    with closing(connection):

        def page(after: str) -> Sequence[str]:
            return [thread for (thread,) in connection.execute(_PAGE, (after, IDS_AT_ONCE))]

        saver = SqliteSaver(connection, serde=plain_values())
        saver.is_setup = True  # its tables are there, or the file is none of its
        yield OpenedSaver(saver, page, sqlite3.Error)
