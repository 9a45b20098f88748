"""Replay: captured exchanges, run from the tape on the code as it is now."""

from cutover.replay.journal import Counts, ReplayMisused
from cutover.replay.parts import ReplaySelection
from cutover.replay.play import PlayOptions
from cutover.replay.pool import WorkersDie
from cutover.replay.services import HeadersUnsent, ServicePlan
from cutover.replay.session import ReplayPlan, ReplayProgress, cluster_needs, replay
from cutover.replay.sides import Sides, sides_of

__all__ = [
    "Counts",
    "HeadersUnsent",
    "PlayOptions",
    "ReplayMisused",
    "ReplayPlan",
    "ReplayProgress",
    "ReplaySelection",
    "ServicePlan",
    "Sides",
    "WorkersDie",
    "cluster_needs",
    "replay",
    "sides_of",
]
