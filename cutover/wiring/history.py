"""The history of the configuration: each change of the file, and of flags if reported."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import cache
from pathlib import Path

from contract.errors import CutoverError
from contract.flows import SPECS
from router.admin.audit import Change, write_audit
from router.admin.history import PROVIDER, History, in_force
from router.config.addresses import resolve_address
from router.config.loader import parse_settings
from router.config.schema import Settings
from router.config.watcher import SettingsWatcher
from router.routing.flags import FlagEvaluator, Targeting, defaults

log = logging.getLogger(__name__)

NAME = "history"


def opening(
    settings: Settings, environ: Mapping[str, str]
) -> AbstractAsyncContextManager[History] | None:
    """Return the configured history, to be opened; None where none is configured."""
    place = resolve_address(settings.stores.history, environ)
    return History.open(place) if place else None


def record_change(change: Change, settings: Settings, environ: Mapping[str, str]) -> None:
    """Audit a change of the file, and write it into the history with its author; never raises.

    Routers that see the change later do not write it again.
    """
    write_audit(Path(settings.admin.audit_path), change)
    asyncio.run(_write_history(change, settings, environ))


async def _write_history(change: Change, settings: Settings, environ: Mapping[str, str]) -> None:
    try:
        opened = opening(settings, environ)
        if opened is not None:
            async with opened as history:
                await history.audited(change, settings.version)
    except (CutoverError, OSError) as error:
        log.error("not in the history: %s", error)


async def follow_history(
    watched: SettingsWatcher,
    environ: Mapping[str, str],
    faults: dict[str, str],
    stack: AsyncExitStack,
) -> HistoryWriter | None:
    """Write changes of the file into the history; one that cannot be opened is only a fault."""
    try:
        made = opening(watched.settings(), environ)
        if made is None:
            return None
        history = await stack.enter_async_context(made)
    except (CutoverError, OSError) as error:
        log.error("no history is written: %s", error)
        faults[NAME] = str(error)
        return None
    writer = HistoryWriter(history, watched, faults)
    stack.push_async_callback(writer.aclose)
    watched.on_change(writer.file_changed)
    # The file may have changed since this process read it; then the change itself is written.
    if watched.poll_once() == "same":
        writer.file_changed(watched.settings())
    return writer


class HistoryWriter:
    """Writes changes in order, in the background."""

    def __init__(self, history: History, watched: SettingsWatcher, faults: dict[str, str]) -> None:
        self._history = history
        self._watched = watched
        self._faults = faults
        self._loop = asyncio.get_running_loop()
        self._last: asyncio.Task[None] | None = None

    def file_changed(self, settings: Settings) -> None:
        """Write what new settings changed, in the name of `changed_by` or the file's owner."""
        who = settings.changed_by or owner(self._watched.path)
        values = in_force(settings)
        self._write(lambda: self._history.follow(who, values, settings.version, unset=_unset()))

    def tool_changed(self, change: Change, version: str) -> None:
        """Write a change made through a tool, from any thread, before the file is read again."""
        self._loop.call_soon_threadsafe(self._write, lambda: self._history.audited(change, version))

    def follow(self, flags: FlagEvaluator) -> None:
        """Write the values of flags when they change, evaluated without a user."""

        def changed(names: Sequence[str] | None) -> None:
            self._write(lambda: self._flags_changed(flags, names))

        flags.source.on_change(changed)

    async def aclose(self) -> None:
        """Wait until everything is written; idempotent."""
        if self._last is not None:
            await asyncio.wait([self._last])

    async def _flags_changed(self, flags: FlagEvaluator, names: Sequence[str] | None) -> None:
        settings, who = self._watched.settings(), flags.source.name
        for flow, file in settings.flows.items():
            requested = defaults(file, flags.names)
            found = await flags.source.values(Targeting(flow, ""), requested)
            for name, value in found.items():
                what = f"{flow}.{name}"
                if names is None or what in names:
                    key = f"{PROVIDER}{what}"
                    await self._history.note(who, key, None, value, settings.version)

    def _write(self, work: Callable[[], Awaitable[object]]) -> None:
        before = self._last

        async def write() -> None:
            if before is not None:
                await asyncio.wait([before])
            try:
                await work()
            except CutoverError as error:
                log.error("a change is missing in the history: %s", error)
                self._faults[NAME] = f"a change could not be written down: {error}"
            else:
                self._faults.pop(NAME, None)

        self._last = self._loop.create_task(write(), name="history")


@cache
def _unset() -> dict[str, str]:
    """Return what is in force where the file says nothing."""
    return in_force(parse_settings("", "defaults", SPECS))


def owner(path: Path) -> str:
    """Return the name or number of a file's owner, "" for a missing file."""
    try:
        return path.owner()
    except KeyError:
        return str(path.stat().st_uid)
    except OSError:
        return ""
