"""What ramps in tests are made of: a clock one moves, a gate that answers what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field

from evidence.decision import Check, Decision, Verdict


@dataclass
class RampTime:
    """A clock that a wait moves; it stops the ramp after `looks` waits."""

    time: float = 1_790_000_000.0
    looks: int = 1_000
    waits: list[float] = field(default_factory=list)

    def now(self) -> float:
        """Return the time."""
        return self.time

    def wait(self, seconds: float) -> bool:
        """Move the time forward."""
        self.waits.append(seconds)
        self.time += seconds
        return len(self.waits) < self.looks


@dataclass
class ScriptedGate:
    """A gate that gives one verdict after another, the last one for ever; an error is raised."""

    verdicts: list[Verdict | Exception]
    asked: list[tuple[float, float | None]] = field(default_factory=list)

    def __call__(self, to: float, since: float | None) -> Decision:
        """Return the next verdict."""
        self.asked.append((to, since))
        found = self.verdicts.pop(0) if len(self.verdicts) > 1 else self.verdicts[0]
        if isinstance(found, Exception):
            raise found
        return decision(found, to)


def decision(verdict: Verdict, to: float) -> Decision:
    """Return a decision of one check."""
    check = Check(name="drawn", verdict=verdict, reason=f"the test says {verdict}")
    return Decision(flow="chat", verdict=verdict, percent=0.0, to=to, checks=(check,))
