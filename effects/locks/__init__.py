"""Locks: of this process, or leased where several processes see them; Redis is imported apart."""

from effects.locks.fake import MemoryLeases
from effects.locks.leases import LeasedLocks, Leases
from effects.locks.process import ProcessLocks
from effects.locks.sqlite import SqliteLeases
from effects.locks.steady import SteadyLocks

__all__ = ["LeasedLocks", "Leases", "MemoryLeases", "ProcessLocks", "SqliteLeases", "SteadyLocks"]
