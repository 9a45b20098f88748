"""Names that leave the router in labels, logs and spans: bounded, and free of a user's words."""

from __future__ import annotations

import re

OTHER = "other"
MOST_CODES = 64

_NAME = re.compile(r"[\w.:/@-]{1,100}", re.ASCII)
_CODE = re.compile(r"[a-z][a-z0-9_]{0,39}|")


def safe_name(value: str) -> str:
    """Return a name, `other` where it does not look like one: it may hold a user's words."""
    return value if _NAME.fullmatch(value) else OTHER


class CodeLabels:
    """Lets through the first `MOST_CODES` different values that look like codes, else `other`.

    The author of a stack chooses its codes, and may have put a user's words into one.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        """Return the label for a value."""
        if value not in self._known:
            if len(self._known) >= MOST_CODES or not _CODE.fullmatch(value):
                return OTHER
            self._known.add(value)
        return value
