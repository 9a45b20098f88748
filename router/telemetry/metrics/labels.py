"""Labels: bounded, whatever turns up."""

from __future__ import annotations

import re

from router.telemetry.names import OTHER

MOST = 64
_CODE = re.compile(r"[a-z][a-z0-9_]{0,39}|")


class Codes:
    """Lets through the first `MOST` different values that look like codes; the rest is `other`.

    A code is made by whoever wrote a stack, who may have put into it what a user said.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        """Give the label for a value."""
        if value not in self._known:
            if len(self._known) >= MOST or not _CODE.fullmatch(value):
                return OTHER
            self._known.add(value)
        return value
