"""Content classes: what kind of change stands between two values, coarse enough to recur."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

ContentClass = Literal[
    "added",
    "missing",
    "white space",
    "date",
    "number",
    "wording",
    "inserted",
    "left out",
    "punctuation",
]

NOT_SET = "not set"
"""How the value begins of an argument that is left to its default."""

TELLING = 3
"""Characters a change needs to be known again elsewhere: a digit or a comma turns up anywhere."""

LONGEST = 64
"""Characters of a date or number at most: what is farther from a change does not reach it."""

AROUND = 8
"""Characters around a change that are looked at where it stands elsewhere."""

_BLANK = re.compile(
    r"[\s\u00a0\u00ad\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufe00-\ufe0f\ufeff]+"
)
_DATE = re.compile(
    # What a date may begin with, asked first: of most characters nothing more is asked.
    r"(?=[-+\dA-Z星周])(?:"
    r"\d{1,4}[-/.年]\d{1,2}[-/.月]\d{1,4}日?|\d{1,2}:\d{2}(?::\d{2})?(?:\.\d+)?(?:\s?[AaPp][Mm]\b)?"
    r"|[+-]\d{2}:?\d{2}\b|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b"
    r"|\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b"
    r"|\b(?:January|February|March|April|May|June|July|August|September|October|November|December)\b"
    r"|星期[一二三四五六日天]|周[一二三四五六日]"
    r"|\b(?:UTC|GMT|CES?T|BST|[ECMP][SD]T|[IJK]ST)\b)"
)
_NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?", re.IGNORECASE)
_VALUES: Final[tuple[tuple[re.Pattern[str], ContentClass], ...]] = (
    (_DATE, "date"),
    (_NUMBER, "number"),
)


@lru_cache(maxsize=256)
def content_class(legacy: str | None, graph: str | None) -> ContentClass:
    """Return the class of a change; None is nothing, and so is an empty text.

    Dates and numbers are classes only where all else is equal.
    """
    legacy = None if legacy is not None and legacy.startswith(NOT_SET) else legacy
    graph = None if graph is not None and graph.startswith(NOT_SET) else graph
    if not legacy or not graph:
        return "missing" if legacy or graph is None else "added"
    old, new = core(legacy, graph)
    if _BLANK.sub("", old) == _BLANK.sub("", new):
        return "white space"
    start = _shared(legacy, graph, min(len(legacy), len(graph)))
    spans = (legacy, start + len(old)), (graph, start + len(new))
    for pattern, name in _VALUES:
        # Long texts are read whole only where such a value stands at the change.
        at_change = (
            pattern.search(text, max(0, start - LONGEST), end + LONGEST) for text, end in spans
        )
        if any(at_change) and pattern.sub("", legacy) == pattern.sub("", graph):
            return name
    return "wording"


@lru_cache(maxsize=256)
def text_class(legacy: str | None, graph: str | None) -> ContentClass:
    """Return the class of a change in a text that is mostly a template's.

    Of another wording, text that graph alone has (`inserted`) or lacks (`left out`), and mere
    `punctuation`, are classes of their own.
    """
    found = content_class(legacy, graph)
    if found != "wording":
        return found
    old, new = core(legacy or "", graph or "")
    if not any(map(str.isalnum, old + new)):
        return "punctuation"
    return "inserted" if not old else "wording" if new else "left out"


@lru_cache(maxsize=256)
def core(legacy: str, graph: str) -> tuple[str, str]:
    """Return what differs between two texts, without what both begin and end with."""
    most = min(len(legacy), len(graph))
    start = _shared(legacy, graph, most)
    end = _shared(legacy[::-1], graph[::-1], most - start)
    return legacy[start : len(legacy) - end], graph[start : len(graph) - end]


def _shared(one: str, other: str, most: int) -> int:
    """Count the characters two texts have in common from their beginning, by halving."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def recurs(cause: tuple[str, str], legacy: str, graph: str) -> bool:
    """Whether one change, once or several times, is all that differs between two further values.

    `cause` holds a value of each side. What is too short to be known again must be all there is.
    """
    if cause == (legacy, graph):
        return True
    before, after = cause
    if min(len(before), len(after)) >= TELLING and legacy.replace(before, after) == graph:
        return before in legacy
    changed = core(legacy, graph)
    if sum(map(len, changed)) >= TELLING and changed == core(*cause):
        return True
    return _quoted(cause, legacy, graph, changed)


def _quoted(cause: tuple[str, str], legacy: str, graph: str, changed: tuple[str, str]) -> bool:
    """Whether what changed stands in the cause's values, too, with what stands around it.

    A prompt may quote a part of what was shown: from where the part begins, or to where it ends.
    """
    before, after = cause
    old, new = ("" if it == "null" else it.strip('"') for it in changed)  # null is no text
    if not new and len(old) >= TELLING:
        return before.count(old) > after.count(old)
    if not old and len(new) >= TELLING:
        return before.count(new) < after.count(new)
    old, new = changed
    if old not in before or new not in after:
        return False
    start = _shared(legacy, graph, min(len(legacy), len(graph)))
    behind = len(legacy) - start - len(old)
    lead, trail = legacy[max(0, start - AROUND) : start], legacy[len(legacy) - behind :][:AROUND]
    while lead and not (lead + old in before and lead + new in after):
        lead = lead[1:]
    old, new = lead + old, lead + new
    while trail and not (old + trail in before and new + trail in after):
        trail = trail[:-1]
    old, new = old + trail, new + trail
    known = min(len(old), len(new)) >= TELLING and old in before and new in after
    return known and not (old in after and new in before)
