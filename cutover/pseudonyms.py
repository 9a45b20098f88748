"""Whether what captures hold of somebody can be found again: that takes the pseudonyms' key."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.config import CaptureSettings


def unsearchable(captures: CaptureSettings, environ: Mapping[str, str]) -> str:
    """Say why nobody will be found by a pseudonym, "" where they will be; that is no fault."""
    named = captures.pseudonym_key_env
    if environ.get(named):
        return ""
    why = f"{named!r} is not set" if named else "[captures] pseudonym_key_env names no key"
    return f"{why}: `cutover forget` will find plain ids alone"
