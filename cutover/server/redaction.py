"""Striking out: what nobody may read in a log is replaced by what it was."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from router.config import Patterns

STRUCK = "[secret]"
_ID = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{32}(?![0-9A-Za-z])")
"""An exchange's: it has to stay whole, also where its digits look like somebody's number."""


class Striking:
    """Strikes secrets by what they are and personal data by patterns."""

    def __init__(self, patterns: Patterns, secrets: frozenset[str] = frozenset()) -> None:
        self._patterns = patterns
        self._secrets = sorted(secrets, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Give a text without them; raises `PatternTooSlow`: then nothing of it may be read."""
        for secret in self._secrets:
            text = text.replace(secret, STRUCK)
        return "".join(self._struck(text))

    def unneeded(self, texts: Iterable[str]) -> bool:
        """Whether nothing in any of the texts can have to be struck: one look at all is cheaper."""
        together = "\n".join(texts)
        raw = together.encode("utf-8", "surrogatepass")
        return not (
            any(secret in together for secret in self._secrets) or self._patterns.possible(raw)
        )

    def _struck(self, text: str) -> Iterator[str]:
        end = 0
        raw = text.encode("utf-8", "surrogatepass")
        found = sorted(self._patterns.possible(raw).matches(text))
        ids = [one.span() for one in _ID.finditer(text)] if found else ()
        for match in found:
            if any(start <= match.start and match.end <= stop for start, stop in ids):
                continue
            if match.start >= end:
                yield text[end : match.start]
                yield f"[{match.name}]"
            end = max(end, match.end)
        yield text[end:]
