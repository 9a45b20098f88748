"""Paths: where in JSON something is: `choices[*].delta.content`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

Path = tuple[str, ...]
"""Keys, and indices of lists as digits; `ANY` stands for every one of them."""

ANY: Final = "*"
ANY_DEPTH: Final = "**"
"""Of rules: any number of steps."""
_BRACKETS = re.compile(r"\[(\d*|\*)\]")
_INDICES = r"(?:\[(?:\d*|\*)\])"
_STEP = rf"[^.\[\]]+{_INDICES}*"
_SOUND = re.compile(rf"(?:{_STEP}|{_INDICES}+)(?:\.{_STEP})*")


@lru_cache(maxsize=256)
def path_of(text: str) -> Path:
    """Cut `a.b`, `a[0].b`, `a[*].b` (also `a[].b`, as reports write it) and `a.*.b` into steps."""
    dotted = _BRACKETS.sub(lambda found: f".{found[1] or ANY}", text)
    return tuple(step for step in dotted.split(".") if step)


def path_fault(text: str) -> str | None:
    """Say where a path cannot be read, and what is due there; None of a sound one."""
    found = _SOUND.match(text)
    rest = text[found.end() if found else 0 :]
    if found and not rest:
        return None
    if not rest:
        return "a path is due, such as 'a.b' or 'a[*].b'"
    at = len(text) - len(rest) + 1
    match rest[0]:
        case "[" | "]":
            due = "brackets hold an index, '*' or nothing: a[0], a[*], a[]"
        case ".":
            due = "a key is due before and behind a dot, and indices follow their key: a.b[0].c"
        case _:
            due = "a dot is due behind brackets: a[0].b"
    return f"{text!r} is no path from character {at} on, {rest!r}: {due}"
