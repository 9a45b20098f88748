"""A router with the companion on both stacks, over one scripted world."""

from __future__ import annotations

from contract.flow import Flow
from contract.flows.companion import COMPANION, CompanionOptions, ImageTurn, MessageTurn
from contract.stores import Turn
from effects.testing import World
from graph_impl import FLOWS as GRAPH
from legacy import FLOWS as LEGACY
from tests.flows.companion.visits import Visit
from tests.router.asking import Desk, Reply


class Place(Desk):
    """Takes turns of visits; the world is that of the first visit."""

    options = CompanionOptions()

    def __init__(
        self,
        world: World,
        *,
        legacy: Flow = LEGACY["companion"],
        graph: Flow = GRAPH["companion"],
    ) -> None:
        super().__init__(world, legacy=legacy, graph=graph, spec=COMPANION)

    async def visit(self, body: MessageTurn | ImageTurn, leaves: int = -1) -> Reply:
        """Take a turn, at the path its request belongs to."""
        path = "/chat/image" if isinstance(body, ImageTurn) else ""
        return await self.take(body, path, leaves)

    @property
    def kept(self) -> list[tuple[str, str]]:
        """What the store holds: who said what."""
        return [(turn.role, turn.content) for turn in self.turns]

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Every turn kept."""
        return self.world.conversations.turns


def place(visit: Visit) -> Place:
    """Make a router over a visit's world, with its stores as they are."""
    return Place(visit.world())
