"""The tape of an exchange: every effect is performed once, recorded, and played to other runs."""

from effects.tape.exchange import Exchange, Journal, OutOfReach, port_exchange
from effects.tape.lease import Lease, LentCall
from effects.tape.resume import (
    PauseOrigin,
    PausingHuman,
    interrupted_tape,
    read_paused,
    reopened,
    resume,
    unknown_outcomes,
)
from effects.tape.session import (
    CALL_OVERHEAD,
    MAX_CALL_BYTES,
    NodeTimes,
    Play,
    Policy,
    StateChange,
    TapeSession,
    TooManyCalls,
)
from effects.tape.tape import (
    FRAMES_FACTOR,
    Budget,
    Entry,
    Signal,
    Tape,
    UnknownOperation,
    canonical,
)

__all__ = [
    "CALL_OVERHEAD",
    "FRAMES_FACTOR",
    "MAX_CALL_BYTES",
    "Budget",
    "Entry",
    "Exchange",
    "Journal",
    "Lease",
    "LentCall",
    "NodeTimes",
    "OutOfReach",
    "PauseOrigin",
    "PausingHuman",
    "Play",
    "Policy",
    "Signal",
    "StateChange",
    "Tape",
    "TapeSession",
    "TooManyCalls",
    "UnknownOperation",
    "canonical",
    "interrupted_tape",
    "port_exchange",
    "read_paused",
    "reopened",
    "resume",
    "unknown_outcomes",
]
