"""Selection: which exchanges of captures are compared, by when they began and how configured."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec

from compare.input.captures import Exchange
from compare.input.segments import Days
from contract.errors import CutoverError

_MILLION = 1_000_000
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d{1,9})([smhdw])")
_UTC = " UTC"


_EXAMPLES = "2026-11-20T10:00Z, 2026-11-20T10:00+08:00 or a duration such as 90m, 2h, 7d"


class MomentRefused(CutoverError):
    """An option is no moment."""

    def __init__(self, option: str, text: str, why: str) -> None:
        super().__init__(f"{option} {text!r} {why}: write {_EXAMPLES}")
        self.option = option


class SpanRefused(CutoverError):
    """A span of time ends before it begins."""

    def __init__(self, since: str, until: str) -> None:
        super().__init__(f"--until {until!r} is not after --since {since!r}")


class Selection(msgspec.Struct, frozen=True):
    """The exchanges of a flow that began from `since` to before `until`, under one configuration.

    Both are microseconds since the Unix epoch; None and "" select everything. Without `fallbacks`,
    those that two stacks served are left out.
    """

    since: int | None = None
    until: int | None = None
    configuration: str = ""
    fallbacks: bool = True
    flow: str = ""

    def holds(self, runs: Exchange) -> bool:
        """Whether an exchange is selected, by its first run."""
        began = runs[0].began
        return (
            (self.since is None or began >= self.since)
            and (self.until is None or began < self.until)
            and self.configuration in {"", runs[0].config}
            and self.flow in {"", runs[0].flow}
            and (self.fallbacks or all(run.role != "fallback" for run in runs))
        )

    @property
    def days(self) -> Days:
        """The folders of captures that may hold what is selected."""
        return Days(
            self.flow,
            "" if self.since is None else _day(self.since),
            "" if self.until is None else _day(self.until - 1),
        )

    @property
    def text(self) -> str:
        """The selection in words; "" of everything."""
        parts = [
            "" if self.since is None else f"since {moment(self.since)}",
            "" if self.until is None else f"until {moment(self.until)}",
            f"under configuration {self.configuration}" if self.configuration else "",
            "" if self.fallbacks else "without a fallback",
            f"of the flow {self.flow}" if self.flow else "",
        ]
        return " ".join(filter(None, parts))


EVERYTHING = Selection()


def selection_of(since: str, until: str, configuration: str, now: int) -> Selection:
    """Read a selection from options, "" where not given; `now` is in microseconds since the epoch.

    Raises `MomentRefused` and `SpanRefused`.
    """
    start = moment_of(since, now, "--since") if since else None
    end = moment_of(until, now, "--until") if until else None
    if start is not None and end is not None and start >= end:
        raise SpanRefused(since, until)
    return Selection(start, end, configuration)


def moment_of(text: str, now: int, option: str) -> int:
    """Read a moment, in microseconds since the Unix epoch.

    A duration (`90m`, `2h`, `7d`) is so long before `now`; else an ISO 8601 time with its zone, or
    a time as reports show it. Raises `MomentRefused`.
    """
    if found := _DURATION.fullmatch(text.strip()):
        return now - int(found[1]) * _SECONDS[found[2]] * _MILLION
    written = text.strip()
    written = f"{written.removesuffix(_UTC)}Z" if written.endswith(_UTC) else written
    try:
        when = datetime.fromisoformat(written)
    except ValueError:
        raise MomentRefused(option, text, "is no time") from None
    if when.tzinfo is None:
        raise MomentRefused(option, text, "has no zone")
    return round(when.timestamp() * _MILLION)


def _day(us: int) -> str:
    """Return the day (UTC) of a moment; "" where no calendar goes so far."""
    try:
        return f"{datetime.fromtimestamp(us / _MILLION, UTC):%Y-%m-%d}"
    except (ValueError, OverflowError, OSError):
        return ""


def moment(us: int) -> str:
    """Write a moment given in microseconds since the Unix epoch, in UTC."""
    try:
        return f"{datetime.fromtimestamp(us / _MILLION, UTC):%Y-%m-%d %H:%M:%S}{_UTC}"
    except (ValueError, OverflowError, OSError):
        return f"{us} µs"  # no calendar goes so far: a recorder's clock was astray
