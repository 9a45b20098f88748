"""Which run a call belongs to: by its path, a header, or its trace, in this order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from cutover.tape.remote import RUN_HEADER

_IN_PATH: Final = re.compile(r"/runs/([^/]+)(/.*)")
_TRACE: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*")


class Named(NamedTuple):
    """The run that a call names, and how: a trace may be anybody's, path and header are ours."""

    run: str
    how: Literal["path", "header", "trace"]


def split_path(path: str) -> tuple[str, str]:
    """Return the id of the run in a path, "" without one, and the path under it."""
    found = _IN_PATH.fullmatch(path)
    return (found[1], found[2]) if found else ("", path)


def named(in_path: str, headers: Mapping[str, str]) -> Named | None:
    """Return the run that a call names, None for one that names none."""
    if in_path:
        return Named(in_path, "path")
    if given := headers.get(RUN_HEADER):
        return Named(given, "header")
    trace = _TRACE.fullmatch(headers.get("traceparent", ""))
    return Named(trace[1], "trace") if trace else None
