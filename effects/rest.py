"""Rest: whoever is asked briefly and failed is left in peace, and one caller finds out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

REST_SECONDS = 1.0
"""How long nobody asks after a failure; then one request at a time finds out."""

log = logging.getLogger(__name__)


class Rest:
    """Whether somebody answers; shared by all who ask.

    `meanwhile` says what holds while there is no answer; `fault` says it in `/readyz`.
    """

    def __init__(self, name: str, meanwhile: str, monotonic: Callable[[], float]) -> None:
        self.name = name
        self.meanwhile = meanwhile
        self.fault: str | None = None
        self._monotonic = monotonic
        self._again = 0.0

    def willing(self) -> bool:
        """Whether it is to be asked now."""
        if self.fault is None:
            return True
        now = self._monotonic()
        if now < self._again:
            return False
        self._again = now + REST_SECONDS
        return True

    def failed(self, why: str) -> None:
        """There was no answer: rest."""
        if self.fault is None:
            log.warning("%s: %s; %s", self.name, why, self.meanwhile)
        self.fault = f"{why}; {self.meanwhile}"
        self._again = self._monotonic() + REST_SECONDS

    def answered(self) -> None:
        """There was one: ask as often as there is need."""
        if self.fault is not None:
            log.info("%s: answers again", self.name)
        self.fault = None
