"""A seeded fault: where it is put, and the one cause it must be found as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from compare.findings import Layer
    from cutover.selftest.exchanges import Script
    from cutover.selftest.meddling import Meddle

Place = Literal["run", "code"]


@dataclass(frozen=True)
class RunFault:
    """A spoilt run beside a sound one, and the layer and kind of its one cause."""

    name: str
    script: Script
    layer: Layer
    kind: str
    sound: Script

    @property
    def place(self) -> Place:
        """Where the fault is put."""
        return "run"


@dataclass(frozen=True)
class CodeFault:
    """A spoilt stack, and the layer and kind of its one cause."""

    name: str
    meddle: Meddle
    layer: Layer
    kind: str

    @property
    def place(self) -> Place:
        """Where the fault is put."""
        return "code"


Fault = RunFault | CodeFault
