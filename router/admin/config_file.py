"""Editing cutover.toml: one writer at a time, comments kept, whole or not at all."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import tomlkit
from tomlkit.exceptions import TOMLKitError

from contract.errors import CutoverError
from effects.files import whole_file
from router.config.errors import unknown_name
from router.config.loader import parse_settings, read_config_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from contract.flow import FlowSpec
    from router.config.schema import Settings

Value = bool | Decimal
"""A switch, or a percentage."""

LOCK_SECONDS = 5.0
_LOCK_POLL = 0.02


class NotWritten(CutoverError):
    """The file could not be edited, and is as it was."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is as it was: {why}")


@dataclass(frozen=True, slots=True)
class Edited:
    """An edit of one flow: the values before and after, the new settings, the file's text.

    Where nothing had to change, `before` and `after` are equal and the file was not touched.
    """

    before: Mapping[str, Value]
    after: Mapping[str, Value]
    settings: Settings
    text: str

    @property
    def changed(self) -> bool:
        """Whether the file was written."""
        return self.before != self.after


def edit_flow(
    path: Path, specs: Mapping[str, FlowSpec], flow: str, values: Mapping[str, Value]
) -> Edited:
    """Set some keys of `[flows.<flow>]` in the file; waits for another writer, but not long.

    Raises `ConfigRefused` where the file or a value cannot be used, `NotWritten` where it cannot
    be written; then it is as it was.
    """
    target = path.resolve()  # a link stays a link
    with _os_errors(target), _only_writer(target):
        text = read_config_text(target)
        old = parse_settings(text, str(path), specs)
        if flow not in old.flows:
            raise unknown_name(str(path), f"flows.{flow}", old.flows, "flow")
        before = _values(old, flow, values)
        if before == values:
            return Edited(before, before, old, text)
        new = _with_values(text, target, flow, values)
        settings = parse_settings(new, str(path), specs)
        after = _values(settings, flow, values)
        if _without(old, flow, before) != _without(settings, flow, before):
            raise NotWritten(target, "the edit would have changed more than it should")
        _replace(target, new)
        return Edited(before, after, settings, new)


def _values(settings: Settings, flow: str, keys: Mapping[str, Value]) -> dict[str, Value]:
    return {key: getattr(settings.flows[flow], key) for key in keys}


def _without(settings: Settings, flow: str, values: Mapping[str, Value]) -> Settings:
    """Return the settings with these values of a flow: what an edit must leave as it was."""
    found = settings.flows[flow].model_copy(update=values)
    return settings.model_copy(update={"flows": {**settings.flows, flow: found}, "version": ""})


def _with_values(text: str, path: Path, flow: str, values: Mapping[str, Value]) -> str:
    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        raise NotWritten(path, f"not understood: {error}") from error
    flows = document.setdefault("flows", tomlkit.table(is_super_table=True))
    table = flows.setdefault(flow, tomlkit.table())
    for key, value in values.items():
        table[key] = float(value) if isinstance(value, Decimal) else value
    return tomlkit.dumps(document)


def _replace(path: Path, text: str) -> None:
    """Replace the file by rename, with its owner and mode where that is allowed."""
    there = path.stat()
    with whole_file(path, stat.S_IMODE(there.st_mode)) as file:
        with suppress(PermissionError):
            os.fchown(file.fileno(), there.st_uid, there.st_gid)
        file.write(text.encode())


@contextmanager
def _only_writer(path: Path) -> Iterator[None]:
    """Hold the lock beside the file; the system releases it with the process."""
    deadline = time.monotonic() + LOCK_SECONDS
    with path.with_name(f".{path.name}.lock").open("a", encoding="utf-8") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise NotWritten(path, "another process is writing it") from None
                time.sleep(_LOCK_POLL)
            else:
                break
        yield


@contextmanager
def _os_errors(path: Path) -> Iterator[None]:
    """Raise `NotWritten` for what the system refuses."""
    try:
        yield
    except OSError as error:
        raise NotWritten(path, (error.strerror or type(error).__name__).lower()) from error
