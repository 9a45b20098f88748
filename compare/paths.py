"""Paths: where in JSON something is: `choices[*].delta.content`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

Path = tuple[str, ...]
"""Keys, and indices of lists as digits; `ANY` stands for every one of them."""

ANY: Final = "*"
_BRACKETS = re.compile(r"\[(\d*|\*)\]")


@lru_cache(maxsize=256)
def path_of(text: str) -> Path:
    """Cut `a.b`, `a[0].b`, `a[*].b` (also `a[].b`, as reports write it) and `a.*.b` into steps."""
    dotted = _BRACKETS.sub(lambda found: f".{found[1] or ANY}", text)
    return tuple(step for step in dotted.split(".") if step)
