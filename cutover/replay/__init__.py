"""Captured exchanges, run from the tape on the code as it is now."""

from cutover.replay.counts import Counts
from cutover.replay.parts import Wanted
from cutover.replay.playing import How
from cutover.replay.pool import WorkersDie
from cutover.replay.session import Progress, Wishes, replay
from cutover.replay.sides import ReplayMisused, Sides, sides_of

__all__ = [
    "Counts",
    "How",
    "Progress",
    "ReplayMisused",
    "Sides",
    "Wanted",
    "Wishes",
    "WorkersDie",
    "replay",
    "sides_of",
]
