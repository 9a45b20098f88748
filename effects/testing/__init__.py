"""Public support for tests: a scriptable world of fakes, and an event loop on virtual time."""

from effects.testing.virtual_time import LoopStuck, VirtualLoop
from effects.testing.world import World

__all__ = ["LoopStuck", "VirtualLoop", "World"]
