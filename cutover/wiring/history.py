"""Keeping the history: every change of the file, and of flags where their provider tells."""

from __future__ import annotations

import asyncio
import logging
from functools import cache
from typing import TYPE_CHECKING

from contract.errors import CutoverError
from cutover.flows import SPECS
from cutover.stores import sqlite_file
from router.admin.history import PROVIDER, History, in_force
from router.config import parse_settings, resolve_address
from router.routing.flags import Targeting
from router.routing.flags.values import defaults

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager, AsyncExitStack
    from pathlib import Path

    from router.admin.audit import Change
    from router.config import Settings, SettingsWatcher
    from router.routing.flags import Flagged

log = logging.getLogger(__name__)

NAME = "history"


def opening(
    settings: Settings, environ: Mapping[str, str]
) -> AbstractAsyncContextManager[History] | None:
    """Give the configured history, to be opened; None where none is wanted."""
    place = resolve_address(settings.stores.history, environ)
    return History.open(sqlite_file(place.partition("://")[2])) if place else None


async def keep_history(
    watched: SettingsWatcher,
    environ: Mapping[str, str],
    faults: dict[str, str],
    stack: AsyncExitStack,
) -> Keeper | None:
    """Follow the file; a history that cannot be kept is told in `faults`, and stops nobody."""
    try:
        made = opening(watched.current, environ)
        if made is None:
            return None
        history = await stack.enter_async_context(made)
    except (CutoverError, OSError) as error:
        log.error("no history is kept: %s", error)  # noqa: TRY400 - the reason says it
        faults[NAME] = str(error)
        return None
    keeper = Keeper(history, watched, faults)
    stack.push_async_callback(keeper.aclose)
    watched.on_change(keeper.file_changed)
    # What this process began with may be out of date by now: that it went is no news.
    if watched.poll_once() == "same":
        keeper.file_changed(watched.current)
    return keeper


class Keeper:
    """Writes changes down one after the other, in the background."""

    def __init__(self, history: History, watched: SettingsWatcher, faults: dict[str, str]) -> None:
        self._history = history
        self._watched = watched
        self._faults = faults
        self._loop = asyncio.get_running_loop()
        self._last: asyncio.Task[None] | None = None

    def file_changed(self, settings: Settings) -> None:
        """Note what new settings changed, in the name of whoever the file says, or owns it."""
        who = settings.changed_by or owner(self._watched.path)
        values = in_force(settings)
        self._write(lambda: self._history.follow(who, values, settings.version, unset=_unset()))

    def tool_changed(self, change: Change, version: str) -> None:
        """Note what a person changed through a tool; from any thread, before it is followed."""
        self._loop.call_soon_threadsafe(self._write, lambda: self._history.audited(change, version))

    def follow(self, flags: Flagged) -> None:
        """Note the values of flags, as they are for nobody in particular, when they change."""

        def changed(names: Sequence[str] | None) -> None:
            self._write(lambda: self._flags_changed(flags, names))

        flags.source.on_change(changed)

    async def aclose(self) -> None:
        """Write down what is still to be written; idempotent."""
        if self._last is not None:
            await asyncio.wait([self._last])

    async def _flags_changed(self, flags: Flagged, names: Sequence[str] | None) -> None:
        settings = self._watched.current
        for flow, file in settings.flows.items():
            asked = defaults(file, flags.names)
            found = await flags.source.values(Targeting(flow, ""), asked)
            for name, value in found.items():
                what = f"{flow}.{name}"
                if names is None or what in names:
                    who = flags.source.name
                    await self._history.note(
                        who, f"{PROVIDER}{what}", None, value, settings.version
                    )

    def _write(self, work: Callable[[], Awaitable[object]]) -> None:
        before = self._last

        async def write() -> None:
            if before is not None:
                await asyncio.wait([before])
            try:
                await work()
            except CutoverError as error:
                log.error("a change is missing in the history: %s", error)  # noqa: TRY400 - as above
                self._faults[NAME] = f"a change could not be written down: {error}"
            else:
                self._faults.pop(NAME, None)

        self._last = self._loop.create_task(write(), name="history")


@cache
def _unset() -> dict[str, str]:
    """Give what is in force where the file says nothing."""
    return in_force(parse_settings("", "defaults", SPECS))


def owner(path: Path) -> str:
    """Tell who owns a file: their name, or number, or nobody where it is gone."""
    try:
        return path.owner()
    except KeyError:
        return str(path.stat().st_uid)
    except OSError:
        return ""
