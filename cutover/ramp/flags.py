"""The flags that a ramp turns: the port, the configuration file, and what a flag service needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from contract.errors import CutoverError
from contract.flows import SPECS
from cutover.ramp.machine import Flags
from cutover.wiring.history import record_change
from router.admin.audit import Change, now, write_audit
from router.admin.config_file import NotWritten, Value, ValuesDiffer, edit_flow
from router.config.errors import ConfigRefused, unknown_name
from router.config.loader import load_settings
from router.config.schema import FlowSettings, Settings, percentage

SWITCH: Final = "enable_langgraph"
PERCENT: Final = "langgraph_percent"


class FlagsUnavailable(CutoverError):
    """The flags could not be read or written; after a write they may have either values."""

    def __init__(self, where: object, why: str) -> None:
        super().__init__(f"{where} {why}")


class FlagsChanged(CutoverError):
    """The flags are not the expected ones any more; nothing was written."""

    def __init__(self, where: object, found: object) -> None:
        super().__init__(f"{where} was changed meanwhile: {found}")


class FlagsReadOnly(CutoverError):
    """The flags cannot be written from here."""

    def __init__(self, where: object, why: str) -> None:
        super().__init__(f"{where} {why}; --advise says what a ramp would do, and writes nothing")


class FlagWriter(Protocol):
    """Reads the flags of one flow, and replaces them if they are as expected."""

    def check(self) -> None:
        """Raise `FlagsReadOnly` where flags can be read and not written."""
        ...

    def read(self) -> Flags:
        """Return the flags in force; raises `FlagsUnavailable`."""
        ...

    def write(self, expected: Flags, new: Flags) -> None:
        """Put flags in force; raises `FlagsChanged` where they are not the `expected` ones.

        Raises `FlagsUnavailable`, after which the flags are as expected or the new ones.
        """
        ...


@dataclass(slots=True)
class FakeFlags:
    """Flags in memory: the fake in tests.

    `fault` is raised by every call, `write_fault` by every write, while it is set. `lost_answers`
    makes the next writes count and raise `FlagsUnavailable` all the same.
    """

    flags: Flags = field(default_factory=lambda: Flags(enabled=True, percent=0.0))
    fault: FlagsUnavailable | None = None
    write_fault: FlagsUnavailable | None = None
    lost_answers: int = 0

    def check(self) -> None:
        """Flags in memory can be written."""

    def read(self) -> Flags:
        """Return the flags."""
        if self.fault is not None:
            raise self.fault
        return self.flags

    def write(self, expected: Flags, new: Flags) -> None:
        """Replace the flags."""
        if self.write_fault is not None:
            raise self.write_fault
        if self.read() != expected:
            raise FlagsChanged(self, self.flags)
        self.flags = new
        if self.lost_answers:
            self.lost_answers -= 1
            raise FlagsUnavailable(self, "lost the answer")


@dataclass(frozen=True, slots=True)
class FileFlags:
    """The flags of a flow in cutover.toml, edited as `cutover rollback` does it."""

    config: Path
    flow: str
    who: str

    def check(self) -> None:
        """Raise `FlagsReadOnly` where the file cannot be replaced, or routers do not read it."""
        settings = load_settings(self.config, SPECS)
        flags = settings.flags
        if flags.provider not in {"", "file"} and {SWITCH, PERCENT} & set(flags.ask):
            why = f"gives routers the flags of {flags.provider}, which [ramp] writer does not write"
            raise FlagsReadOnly(self.config, why)
        target = self.config.resolve()
        if not (os.access(target, os.W_OK) and os.access(target.parent, os.W_OK)):
            raise FlagsReadOnly(self.config, "cannot be replaced")

    def read(self) -> Flags:
        """Return the flags of the file."""
        try:
            return flags_of(self.settings())
        except (CutoverError, OSError) as error:
            raise FlagsUnavailable(self.config, f"cannot be read: {error}") from error

    def write(self, expected: Flags, new: Flags) -> None:
        """Edit the file, in the audit and the history."""
        try:
            edited = edit_flow(self.config, SPECS, self.flow, _values(new), _values(expected))
        except ValuesDiffer as error:
            raise FlagsChanged(str(self.config), error) from error
        except (ConfigRefused, NotWritten, OSError) as error:
            raise FlagsUnavailable(self.config, f"cannot be written: {error}") from error
        if edited.changed:
            change = _change(self.who, self.flow, edited.before, edited.after)
            record_change(change, edited.settings, os.environ)

    def settings(self) -> FlowSettings:
        """Return the settings of the flow; raises `ConfigRefused`."""
        flows = load_settings(self.config, SPECS).flows
        if self.flow not in flows:
            raise unknown_name(str(self.config), f"flows.{self.flow}", flows, "flow")
        return flows[self.flow]


@dataclass(frozen=True, slots=True)
class ServiceFlags:
    """The flags of a service that routers read, beside those of the file, whose `false` is final.

    Only the service is written, and the audit.
    """

    file: FileFlags
    service: FlagWriter
    audit: Callable[[Change], None]

    def check(self) -> None:
        """Raise `FlagsReadOnly` where the service cannot be written, or is not decisive."""
        asked = load_settings(self.file.config, SPECS).flags.ask
        if missing := sorted({SWITCH, PERCENT} - set(asked)):
            why = f"asks no provider for {missing[0]}: routers read it from the file"
            raise FlagsReadOnly(self.file.config, why)
        if not self.file.read().enabled:
            why = f"has {SWITCH} = false, which is final: set it to true"
            raise FlagsReadOnly(self.file.config, why)
        self.service.check()

    def read(self) -> Flags:
        """Return the flags in force."""
        file, service = self.file.read(), self.service.read()
        return Flags(enabled=file.enabled and service.enabled, percent=service.percent)

    def write(self, expected: Flags, new: Flags) -> None:
        """Write the service's flags."""
        if (found := self.read()) != expected:
            raise FlagsChanged(self.file.flow, found)
        if new == expected:
            return
        self.service.write(expected, new)
        self.audit(_change(self.file.who, self.file.flow, _values(expected), _values(new)))


def file_audit(settings: Settings) -> Callable[[Change], None]:
    """Return what audits a change that the router itself puts into its history."""
    path = Path(settings.admin.audit_path)
    return lambda change: write_audit(path, change)


def flags_of(flow: FlowSettings) -> Flags:
    """Return the flags of a flow's settings."""
    return Flags(enabled=flow.enable_langgraph, percent=float(flow.langgraph_percent))


def read_flags(where: str, switch: object, percent: object) -> Flags:
    """Return the flags that a service has; raises `FlagsUnavailable` for unusable values."""
    if not isinstance(switch, bool):
        raise FlagsUnavailable(where, f"has {SWITCH} = {switch!r}, neither true nor false")
    try:
        return Flags(enabled=switch, percent=float(percentage(percent)))
    except ValueError as error:
        raise FlagsUnavailable(where, f"has {PERCENT} = {percent!r}: {error}") from error


def _values(flags: Flags) -> dict[str, Value]:
    return {SWITCH: flags.enabled, PERCENT: percentage(flags.percent)}


def _change(
    who: str, flow: str, before: Mapping[str, object], after: Mapping[str, object]
) -> Change:
    what = "ramp" if after[SWITCH] else "rollback"
    return Change(at=now(), who=who, what=what, flow=flow, before=before, after=after)
