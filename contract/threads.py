"""Saved threads: conversations as the checkpointer of an application's own graph holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeAlias


class SavedMessage(NamedTuple):
    """A message of a thread; `role` is `user`, `assistant`, or what else the graph calls it."""

    role: str
    content: Any
    message_id: str | None = None


class SavedThread(NamedTuple):
    """The newest state of a thread, and when it was saved, in seconds since the Unix epoch.

    `values` are its other channels and its metadata. With a `fault` it could not be read.
    """

    thread_id: str
    messages: tuple[SavedMessage, ...] = ()
    values: Mapping[str, Any] = {}
    at: int | None = None
    fault: str = ""


ReadThreads: TypeAlias = Callable[[str, str], AbstractContextManager[Iterator[SavedThread]]]
"""A stack's hook `saved_threads(address, channel)`: the threads of a checkpointer, by their ids.

The messages are in `channel`. Nothing is written there. Raises `CutoverError`.
"""
