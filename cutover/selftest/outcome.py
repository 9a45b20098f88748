"""The outcome of a self-test: what was found, what was missed, what was found without cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from compare.findings import LAYERS
from cutover.selftest.alarms import Alarms
from cutover.selftest.mutants import Mutants
from cutover.selftest.trials import Trial

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compare.findings import Layer

VERSION = 1


class Outcome(msgspec.Struct, frozen=True):
    """All a self-test has to tell; `mutants` is None when none were tried."""

    v: int
    trials: tuple[Trial, ...]
    alarms: Alarms
    mutants: Mutants | None = None

    @property
    def missed(self) -> tuple[Trial, ...]:
        """Faults that were not found as the one cause they are."""
        return tuple(trial for trial in self.trials if not trial.detected)

    @property
    def sound(self) -> bool:
        """Whether everything was found, and nothing without cause."""
        return not list(self.reasons())

    def of_layer(self, layer: Layer) -> tuple[Trial, ...]:
        """Give the trials whose fault belongs on a layer."""
        return tuple(trial for trial in self.trials if trial.layer == layer)

    def reasons(self) -> Iterator[str]:
        """Say what is wrong, a sentence each."""
        for layer in LAYERS:
            if not self.of_layer(layer):
                yield f"no fault was tried on the layer {layer!r}"
        if self.missed:
            yield f"{len(self.missed)} of {len(self.trials)} faults were not found as one cause"
        if not self.alarms.pairs:
            yield "no equal pair was compared"
        if self.alarms.raised:
            yield f"{self.alarms.raised} of {self.alarms.pairs} equal pairs raised an alarm"
        if self.mutants is not None and self.mutants.unexplained:
            yield f"{len(self.mutants.unexplained)} mutants survived, and nobody knows why"


_encoder = msgspec.json.Encoder()


def encode_outcome(outcome: Outcome) -> bytes:
    """Write an outcome as JSON, indented."""
    return msgspec.json.format(_encoder.encode(outcome), indent=2) + b"\n"
