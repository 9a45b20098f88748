"""Comparing plain recorded streams: `diff --dialect`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from compare.input.recordings import Recordings
from compare.recordings import PlainQuestion, compare_recordings
from compare.rules import NO_RULES, Rules
from compare.streams.dialects import spoken
from compare.waivers import NO_WAIVERS, Waivers
from contract.errors import CutoverError
from cutover.flows import SPECS
from cutover.reports import known_flows

if TYPE_CHECKING:
    from collections.abc import Callable

    from compare.layers.frames import Chunking
    from compare.streams.dialects import Spoken
    from compare.tally import Tally


class TwoSidesDue(CutoverError):
    """Plain streams were to be compared, but not with what."""

    def __init__(self, places: int) -> None:
        super().__init__(f"--dialect compares two places, legacy and graph; {places} given")


@dataclass(frozen=True, slots=True)
class AskedPlain:
    """What is asked about two places of plain streams."""

    legacy: Recordings
    graph: Recordings
    spoken: Spoken
    chunking: Chunking = "ignore"
    rules: Rules = NO_RULES
    waivers: Waivers = NO_WAIVERS

    @property
    def captures(self) -> str:
        """Name what is compared, as the report does."""
        return f"{self.legacy.place} → {self.graph.place}"

    @property
    def flows(self) -> frozenset[str]:
        """Name the flows there are rules and waivers for."""
        return known_flows(SPECS) | {self.spoken.name}

    @property
    def size(self) -> int:
        """How many bytes there are to read."""
        return self.legacy.size + self.graph.size

    def tally(self, on_bytes: Callable[[int], None]) -> Tally:
        """Compare; raises `CapturesUnreadable`."""
        question = PlainQuestion(self.spoken, self.chunking, self.rules)
        return compare_recordings(self.legacy, self.graph, question, on_bytes)


def asked_plain(
    places: list[str], dialect: str, chunking: Chunking, rules: Rules, waivers: Waivers
) -> AskedPlain:
    """Look through both places and find the dialect; refuses what cannot be meant."""
    if len(places) != 2:  # noqa: PLR2004 (legacy and graph)
        raise TwoSidesDue(len(places))
    legacy, graph = (Recordings(Path(place)) for place in places)
    return AskedPlain(legacy, graph, spoken(dialect, SPECS), chunking, rules, waivers)
