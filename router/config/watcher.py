"""Watching the configuration: a good edit is in force within a second, a bad one is reported."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

from contract.flow import FlowSpec
from router.config.errors import ConfigRefused
from router.config.loader import parse_settings, read_config_text
from router.config.schema import Settings, changed_keys

Seen = Literal["same", "settling", "taken", "refused"]

POLL_SECONDS = 0.25

log = logging.getLogger(__name__)


class _Unreadable(str):
    """Why the file cannot be read; stands where its text would."""

    __slots__ = ()


class SettingsWatcher:
    """Knows the settings in force, the fault of the file since, and the count of refused edits.

    `started` are the settings that what is opened at the start has read.

    The file is read at every poll and compared by content: that notices an edit in place, a
    replacement by rename and a changed link alike, whatever the time stamps say. New content
    counts once two polls in a row have seen it, so that a half-written file is never in force
    (an empty one would be valid, and would move all traffic to legacy).
    """

    def __init__(self, path: Path, specs: Mapping[str, FlowSpec]) -> None:
        self.path = path
        self.fault: str | None = None
        self.refused = 0
        self._specs = specs
        self._listeners: list[Callable[[Settings], None]] = []
        self._judged = self._settling = read_config_text(path)
        self._current = self.started = parse_settings(self._judged, str(path), specs)

    def settings(self) -> Settings:
        """Return the settings in force."""
        return self._current

    @property
    def restart(self) -> str:
        """Which changed keys are not in force, and what to do; "" where there are none."""
        changed = changed_keys(self.started, self._current)
        keys = ", ".join(each.key for each in changed if each.read_at_start)
        return f"{keys} changed since the start: restart cutover serve" if keys else ""

    def on_change(self, listener: Callable[[Settings], None]) -> None:
        """Call `listener` with every new settings, on the loop of `watching`."""
        self._listeners.append(listener)

    def poll_once(self) -> Seen:
        """Read the file once and return what was seen."""
        try:
            content = read_config_text(self.path)
        except ConfigRefused as refused:
            content = _Unreadable(refused)
        if content == self._judged:
            self._settling = content
            return "same"
        if content != self._settling:
            self._settling = content
            return "settling"
        self._judged = content
        return self._judge(content)

    def adopt(self, content: str) -> None:
        """Judge content now that is whole and in the file: an edit of our own."""
        self._judged = self._settling = content
        self._judge(content)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[SettingsWatcher]:
        """Poll in a task for as long as the block lasts."""

        async def poll() -> None:
            while True:
                await asyncio.sleep(POLL_SECONDS)
                self.poll_once()

        task = asyncio.create_task(poll(), name="watch-settings")
        try:
            yield self
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def _judge(self, content: str) -> Seen:
        try:
            if isinstance(content, _Unreadable):
                return self._refuse(content)
            if not content.strip():
                # What a full disk leaves of an edit; it would switch everything off.
                return self._refuse(f"{self.path}: empty; for the defaults put a comment in it")
            settings = parse_settings(content, str(self.path), self._specs)
            self._refuse_other_flows(settings)
        except ConfigRefused as refused:
            return self._refuse(str(refused))
        except Exception as error:
            # The watcher must outlive any fault, to see the next edit.
            log.exception("%s cannot be judged", self.path)
            return self._refuse(f"{self.path}: cannot be judged: {type(error).__name__}")
        self.fault = None
        if settings != self._current:
            self._take(settings)
        return "taken"

    def _refuse_other_flows(self, settings: Settings) -> None:
        """Raise `ConfigRefused` where a declared flow came, went or changed."""
        old, new = (
            {name: flow.declared for name, flow in one.flows.items()}
            for one in (self._current, settings)
        )
        changed = sorted(name for name in old | new if old.get(name) != new.get(name))
        if changed:
            why = "flows are declared at start: this takes a restart"
            raise ConfigRefused(str(self.path), f"flows.{changed[0]}", why)

    def _refuse(self, fault: str) -> Seen:
        self.fault = str(fault)
        self.refused += 1
        log.error("%s; version %s stays in force", fault, self._current.version)
        return "refused"

    def _take(self, settings: Settings) -> None:
        changes = ", ".join(each.sentence for each in changed_keys(self._current, settings))
        log.info("settings %s replace %s: %s", settings.version, self._current.version, changes)
        before, self._current = self.restart, settings
        if self.restart and self.restart != before:
            log.warning("settings %s: %s", settings.version, self.restart)
        for listener in self._listeners:
            try:
                listener(settings)
            except Exception:
                log.exception("a listener failed on settings %s", settings.version)
