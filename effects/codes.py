"""What the faults of a store are called: nobody answers, and what was asked of it failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contract.errors import FaultCode


@dataclass(frozen=True, slots=True)
class Codes:
    """What faults are called: no server or file answers, and a call failed."""

    unavailable: FaultCode
    failed: FaultCode


STORE_CODES = Codes(unavailable="store_unavailable", failed="store_failed")
MEMORY_CODES = Codes(unavailable="memory_unavailable", failed="memory_failed")
LOCK_CODES = Codes(unavailable="lock_unavailable", failed="lock_unavailable")
