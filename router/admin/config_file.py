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
from itertools import dropwhile
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
    from collections.abc import Callable, Iterator, MutableMapping, Sequence
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


class ValuesDiffer(CutoverError):
    """The values to replace are not those that were expected; the file is as it was."""

    def __init__(self, path: Path, found: Mapping[str, Any]) -> None:
        values = ", ".join(f"{key} = {value}" for key, value in found.items())
        super().__init__(f"{path} is as it was: it has {values}")


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
    path: Path,
    specs: Mapping[str, FlowSpec],
    flow: str,
    values: Mapping[str, Value],
    expected: Mapping[str, Value] | None = None,
) -> Edited:
    """Set some keys of `[flows.<flow>]` in the file; waits for another writer, but not long.

    Raises `ConfigRefused` where the file or a value cannot be used, `NotWritten` where it cannot
    be written, `ValuesDiffer` where it has others than the `expected` ones; then it is as it was.
    """
    target = path.resolve()  # a link stays a link
    with os_errors(target), only_writer(target):
        text = read_config_text(target)
        old = parse_settings(text, str(path), specs)
        if flow not in old.flows:
            raise unknown_name(str(path), f"flows.{flow}", old.flows, "flow")
        if expected is not None and (found := _values(old, flow, expected)) != expected:
            raise ValuesDiffer(target, found)
        before = _values(old, flow, values)
        if before == values:
            return Edited(before, before, old, text)
        plain = {
            key: float(one) if isinstance(one, Decimal) else one for key, one in values.items()
        }
        new = _with_values(text, target, ("flows", flow), plain)
        settings = parse_settings(new, str(path), specs)
        after = _values(settings, flow, values)
        if _without(old, flow, before) != _without(settings, flow, before):
            raise NotWritten(target, _TOO_MUCH)
        replace_text(target, text, new)
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
    with os_errors(target), only_writer(target):
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
            replace_text(target, text, new)
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
    for (section, name), values in tables.items():
        if values is None:
            text = _with_value(text, path, (section, name), None)
        else:
            there = _document(text, path).get(section, {}).get(name, {})
            text = _with_values(text, path, (section, name), {**dict.fromkeys(there), **values})
    return text


def _with_values(
    text: str, path: Path, table: tuple[str, str], values: Mapping[str, Any | None]
) -> str:
    """Set or remove values of a table; one that is not there is made."""
    section, name = table
    parent = _document(text, path).get(section, {})
    if name in parent:
        for key, value in values.items():
            text = _with_value(text, path, (*table, key), value)
        return text
    if isinstance(parent, InlineTable):
        return _with_value(text, path, table, tomlkit.inline_table() | dict(values))
    added = tomlkit.document()
    added.setdefault(section, tomlkit.table(is_super_table=True))[name] = values
    # At the end a table is valid however the others are written.
    end = _line_end(text)
    appended = tomlkit.dumps(added).strip().replace("\n", end)
    return f"{text.rstrip()}{end * 2}{appended}{end}".lstrip()


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _with_value(text: str, path: Path, keys: tuple[str, ...], value: Any | None) -> str:
    """Set one value, or remove it: None."""
    text += "" if text.endswith("\n") else _line_end(text)
    document = _document(text, path)
    table: MutableMapping[str, Any] = document
    for key in keys[:-1]:
        table = table.get(key, {})
    if value is None:
        table.pop(keys[-1], None)
    elif table.get(keys[-1]) != value:
        table[keys[-1]] = value
    return _with_comments(text, tomlkit.dumps(document))


def _with_comments(old: str, new: str) -> str:
    """Return `new`, which has lines more or less than `old` in one place, with all its comments.

    Those between two tables are the first one's for tomlkit, and about the second one for people:
    what is added to a table goes above them, and they stay where one is removed.
    """
    before, after = old.split("\n"), new.split("\n")
    same = (one == other for one, other in zip(before, after, strict=False))
    at = next((number for number, equal in enumerate(same) if not equal), len(before))
    more = len(after) - len(before)
    if more <= 0:
        removed = before[at : at - more]
        double = at > 0 and not after[at - 1].strip()
        kept = removed[_above_comments(removed) :]
        comments = dropwhile(lambda line: double and not line.strip(), kept)
        return "\n".join([*after[:at], *comments, *after[at:]])
    above = _above_comments(after[:at])
    end = _line_end(old).removesuffix("\n")
    added = [line.removesuffix("\r") + end for line in after[at : at + more]]
    return "\n".join([*after[:above], *added, *after[above:at], *after[at + more :]])


def _above_comments(lines: Sequence[str]) -> int:
    """Return how many lines there are above the last comments and blank lines."""
    count = len(lines)
    while count and (not (line := lines[count - 1].strip()) or line.startswith("#")):
        count -= 1
    return count


def replace_text(path: Path, old: str, new: str) -> None:
    """Replace the text of a file by rename, with its owner and mode where that is allowed.

    Raises `NotWritten` where the file has not the `old` text any more.
    """
    there = path.stat()
    with whole_file(path, stat.S_IMODE(there.st_mode)) as file:
        with suppress(PermissionError):
            os.fchown(file.fileno(), there.st_uid, there.st_gid)
        file.write(new.encode())
        # An editor does not wait for the lock.
        if read_config_text(path) != old:
            raise NotWritten(path, "it was edited meanwhile; repeat the request")


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
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
def os_errors(path: Path) -> Iterator[None]:
    """Raise `NotWritten` for what the system refuses."""
    try:
        yield
    except OSError as error:
        raise NotWritten(path, (error.strerror or type(error).__name__).lower()) from error
