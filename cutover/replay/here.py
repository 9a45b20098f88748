"""Here: the parts one after another in this process, where a debugger can look on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cutover.flows import SPECS
from cutover.replay.outputs import Outputs
from cutover.replay.replaying import Replayer
from cutover.replay.work import Job, work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cutover.replay.counts import Counts
    from cutover.replay.parts import Part
    from cutover.replay.worker import Terms


class Here:
    """A pool without processes: a stack that blocks or ends its process takes all with it."""

    def __init__(self, terms: Terms) -> None:
        self._at_once = terms.how.at_once
        self._outputs = Outputs(terms.out)
        self._replayer = Replayer(terms.sides, terms.how, SPECS)

    def run(self, parts: Iterator[Part]) -> Iterator[tuple[Part, Counts]]:
        """Do parts in their order; yield each with its counts."""
        for part in parts:
            with asyncio.Runner() as runner:
                result = runner.run(work(Job(part, self._at_once), self._replayer, _unheard))
            self._outputs.write(part, result.lines)
            yield part, result.counts


def _unheard(_: str, __: str) -> None:
    """Nobody watches: there is no process to be replaced."""
