"""Groups: what changed in one frame or call is one cause, however many fields it is in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import TypeVar

import msgspec

from compare.findings import Finding, general_path, signature_of

F = TypeVar("F", bound=Finding)

_WHOLE = re.compile(r".*?\.(?:form|usage)(?=[.\[]|$)", re.DOTALL)
"""Parts that change as a whole: which of their fields do is the request's, not the cause's."""
_STEP = re.compile(r"\.[^.\[]+|\[\d+\]")


def grouped(made: Sequence[F], place: str) -> list[F]:
    """Mark all findings below a place as following from the first, which stands for all.

    Its path is what all have in common; `detail` says what stands below that.
    """
    if not made:
        return []
    below = [finding.path.removeprefix(place) for finding in made]
    common = _common(below)
    details = dict.fromkeys(general_path(path.removeprefix(common)) for path in below)
    first, *others = made
    cause = msgspec.structs.replace(
        first, path=f"{place}{common}", detail=" ".join(filter(None, details))
    )
    after = signature_of(cause)
    return [cause, *(msgspec.structs.replace(finding, after=after) for finding in others)]


def _common(paths: Sequence[str]) -> str:
    """Find the part that holds all changes, in whole steps and no item of a list."""
    common = paths[0]
    if len(paths) > 1:
        levels = zip(*map(_STEP.findall, paths), strict=False)
        steps = [level[0] for level in takewhile(lambda level: len(set(level)) == 1, levels)]
        while steps and steps[-1].startswith("["):
            steps.pop()
        common = "".join(steps)
    whole = _WHOLE.match(common)
    return whole[0] if whole else common
