"""How far a rescue goes; what each fault asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Literal

from contract.errors import Fault, FaultCode
from effects.circuit_breaker import BreakerPolicy
from effects.model.rescue.splicing import Extent

Conduct = Literal["again", "move", "restart", "larger", "stop"]
"""What a fault asks for.

`again`: the same model after a wait, then the next one. `move`: the next model. `restart`: the
next model or, where there is none, the same one once more. `larger`: a model with a larger
context. `stop`: nothing could help.
"""


_BREAKER: Final = BreakerPolicy()


@dataclass(frozen=True, slots=True)
class RescuePolicy:
    """How often each model is asked for one answer, and how long is waited in between, in seconds.

    Waits are drawn from 0 to `first_wait`, doubled each time. A provider that asks for more than
    `longest_wait` is not waited for.
    """

    attempts: int = 3
    first_wait: float = 0.5
    longest_wait: float = 10.0
    breaker: BreakerPolicy = _BREAKER


_BY_CODE: Final[Mapping[FaultCode, Conduct]] = {
    "model_rate_limited": "again",
    "model_unavailable": "again",
    "model_truncated": "again",
    "model_error": "again",
    "model_timeout_idle": "again",
    # The limit is what the operator lets a user wait for a sign; nobody waits for it twice.
    "model_timeout_first_byte": "move",
    "model_timeout_first_token": "move",
    "model_auth": "move",
    "unknown_model": "move",
    "model_context_length": "larger",
}
_ONCE_MORE: Final = 2


def conduct(fault: Fault, said: Extent) -> Conduct:
    """Say what a fault asks for, after so much of the answer was handed out."""
    if said == "too_much":
        return "stop"
    asked = _BY_CODE.get(fault.code, "stop")
    if asked != "again":
        return asked
    if not fault.retryable:
        return "move"  # no money left, or an error asking again would meet again
    return "again" if said == "nothing" else "restart"


def most_attempts(fault: Fault, policy: RescuePolicy) -> int:
    """Say how often a model that failed so may be asked: after a 500 only once more."""
    once = fault.data.get("status") == HTTPStatus.INTERNAL_SERVER_ERROR
    return min(policy.attempts, _ONCE_MORE) if once else policy.attempts


def blames_provider(fault: Fault) -> bool:
    """Whether a fault tells something of the provider's health, rather than of the request."""
    return fault.code in _BY_CODE and fault.code != "model_context_length"
