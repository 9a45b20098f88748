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
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from contract.errors import CutoverError
from effects.files import whole_file
from router.admin.history import in_force
from router.config.errors import ConfigRefused, unknown_name
from router.config.loader import parse_settings, read_config_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping
    from pathlib import Path

    from contract.flow import FlowSpec
    from router.config.schema import Settings

Value = bool | Decimal
"""A switch, or a percentage."""
Tables: TypeAlias = "Mapping[tuple[str, str], Mapping[str, Any] | None]"
"""Whole tables such as `("models", "gpt-4.1")`, as they are to be; None removes one."""

_NOTHING = "null"
_TOO_MUCH = "the edit would have changed more than it should"

LOCK_SECONDS = 5.0
_LOCK_POLL = 0.02


class EditRefused(CutoverError):
    """The edited file would be refused; it is as it was."""


class NotWritten(CutoverError):
    """The file could not be edited, and is as it was."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is as it was: {why}")


@dataclass(frozen=True, slots=True)
class Edited:
    """An edit: the values before and after, the new settings, the file's text.

    Where nothing had to change, `before` and `after` are equal and the file was not touched.
    """

    before: Mapping[str, Any]
    after: Mapping[str, Any]
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
            raise NotWritten(target, _TOO_MUCH)
        _replace(target, new)
        return Edited(before, after, settings, new)


def edit_tables(
    path: Path,
    specs: Mapping[str, FlowSpec],
    plan: Callable[[Settings], Tables],
    check: Callable[[Settings], object],
) -> Edited:
    """Replace or remove tables of `[models]` and `[providers]`; waits for another writer.

    `plan` gets the settings as they are and returns the tables, `check` gets those that would be.
    Both run while no other process writes the file, and may raise to leave it as it is.

    The values before and after are those of the keys that changed, dotted; None for an absent one.
    Raises `EditRefused` where the new settings cannot be used, and otherwise as `edit_flow` does.
    """
    target = path.resolve()
    with _os_errors(target), _only_writer(target):
        text = read_config_text(target)
        old = parse_settings(text, str(path), specs)
        tables = plan(old)
        new = _with_tables(text, target, tables)
        try:
            settings = parse_settings(new, str(path), specs)
        except ConfigRefused as refused:
            raise EditRefused(refused) from refused
        if _without_tables(old, tables) != _without_tables(settings, tables):
            raise NotWritten(target, _TOO_MUCH)
        values, others = in_force(old), in_force(settings)
        keys = sorted(
            key for key in values | others if values.get(key, _NOTHING) != others.get(key, _NOTHING)
        )
        before, after = (
            {key: msgspec.json.decode(one.get(key, _NOTHING)) for key in keys}
            for one in (values, others)
        )
        if keys:
            check(settings)
            _replace(target, new)
        return Edited(before, after, settings, new if keys else text)


def _without_tables(settings: Settings, tables: Tables) -> Settings:
    """Return the settings without these tables: what an edit must leave as it was."""
    left = {
        section: {
            name: table
            for name, table in getattr(settings, section).items()
            if (section, name) not in tables
        }
        for section, _ in tables
    }
    return settings.model_copy(update={**left, "version": ""})


def _values(settings: Settings, flow: str, keys: Mapping[str, Value]) -> dict[str, Value]:
    return {key: getattr(settings.flows[flow], key) for key in keys}


def _without(settings: Settings, flow: str, values: Mapping[str, Value]) -> Settings:
    """Return the settings with these values of a flow: what an edit must leave as it was."""
    found = settings.flows[flow].model_copy(update=values)
    return settings.model_copy(update={"flows": {**settings.flows, flow: found}, "version": ""})


def _document(text: str, path: Path) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise NotWritten(path, f"not understood: {error}") from error


def _with_tables(text: str, path: Path, tables: Tables) -> str:
    document = _document(text, path)
    added = tomlkit.document()
    for (section, name), values in tables.items():
        parent = document.get(section, {})
        if values is None:
            parent.pop(name, None)
        elif name in parent:
            _update(parent[name], values)
        elif isinstance(parent, InlineTable):
            parent[name] = _update(tomlkit.inline_table(), values)
        else:
            beside = added.setdefault(section, tomlkit.table(is_super_table=True))
            beside[name] = _update(tomlkit.table(), values)
    new = tomlkit.dumps(document)
    if not added:
        return new
    # At the end a table is valid however the others are written.
    end = "\r\n" if "\r\n" in text else "\n"
    appended = tomlkit.dumps(added).strip().replace("\n", end)
    return f"{new.rstrip()}{end * 2}{appended}{end}".lstrip()


def _update(table: MutableMapping[str, Any], values: Mapping[str, Any]) -> Any:
    """Make a table hold these values alone; what stays keeps its comment."""
    for key in [key for key in table if key not in values]:
        del table[key]
    for key, value in values.items():
        if table.get(key) != value:
            table[key] = value
    return table


def _with_values(text: str, path: Path, flow: str, values: Mapping[str, Value]) -> str:
    document = _document(text, path)
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
