"""Stores of pins: in memory and in SQLite; Redis's needs its extra."""

from effects.pins.memory import MemoryPins
from effects.pins.sqlite import SqlitePins
from effects.pins.store import Pin, PinStore

__all__ = ["MemoryPins", "Pin", "PinStore", "SqlitePins"]
