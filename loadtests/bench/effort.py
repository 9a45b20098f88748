"""How much is measured, and telling how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Watch = Callable[[str, float], None]
"""Is told the name of a bench and the share of it that is done."""


def _nobody(_name: str, _share: float) -> None:
    return


@dataclass(frozen=True, slots=True)
class Effort:
    """Rounds and their size: `requests` a round in a closed loop, `seconds` in an open one."""

    rounds: int = 9
    requests: int = 400
    pairs: int = 20
    seconds: float = 3.0
    watch: Watch = _nobody

    def advance(self, name: str, share: float) -> None:
        """Tell how far a bench is."""
        self.watch(name, share)


FULL = Effort()
QUICK = Effort(rounds=3, requests=100, pairs=4, seconds=2.0)
