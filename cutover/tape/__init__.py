"""The tape: what an exchange asked of the world, performed once; every other run reads it there."""

from cutover.tape.effect import effect
from cutover.tape.entry import OUTCOME_UNKNOWN, Call, Entry, Fault, Signal, entry_record
from cutover.tape.exchange import Exchange, Journal, at_end, load, tape_record
from cutover.tape.portal import call_blocking
from cutover.tape.run import (
    HUMAN_ANSWER,
    Fork,
    Play,
    Run,
    current_run,
    moment,
    off_tape,
    outside,
    playing,
    timed,
)

__all__ = [
    "HUMAN_ANSWER",
    "OUTCOME_UNKNOWN",
    "Call",
    "Entry",
    "Exchange",
    "Fault",
    "Fork",
    "Journal",
    "Play",
    "Run",
    "Signal",
    "at_end",
    "call_blocking",
    "current_run",
    "effect",
    "entry_record",
    "load",
    "moment",
    "off_tape",
    "outside",
    "playing",
    "tape_record",
    "timed",
]
