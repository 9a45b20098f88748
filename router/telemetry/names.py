"""Names that leave the router: what a user, a model or a stack made up as one may be a sentence."""

from __future__ import annotations

import re

OTHER = "other"
_NAME = re.compile(r"[\w.:/@-]{1,100}", re.ASCII)


def name(value: str) -> str:
    """Give a name as it is, `other` where it does not look like one."""
    return value if _NAME.fullmatch(value) else OTHER
