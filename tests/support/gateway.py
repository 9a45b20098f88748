"""A gateway on loopback before the simulated provider, and runs whose calls it answers."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from cutover import Exchange
from cutover.tape import Run
from loadtests.simulator import Simulator
from router.gateway import Gateway, GatewaySettings, Provider, open_connections
from router.gateway.runs import OpenRuns
from tests.support.recordings import answer_other_apis
from tests.support.services import serving


@dataclass(slots=True)
class GatewayStage:
    """A gateway with an exchange whose calls it records."""

    sim: Simulator
    gateway: Gateway
    url: str
    exchange: Exchange
    held: list[Run] = field(default_factory=list)
    """Runs that are not over."""

    def run(self, policy: Any = "live") -> tuple[Run, str]:
        """Begin a run; return it with the base URL of its calls."""
        run = Run(self.exchange, policy, "serving" if policy == "live" else "shadow", policy)
        self.held.append(run)
        return run, f"{self.url}/runs/{self.gateway.runs.open(run)}"

    @property
    def names(self) -> list[str]:
        """The calls on the tape."""
        return [entry.call.name for entry in self.exchange.entries]


@asynccontextmanager
async def gateway_stage(
    providers: Sequence[Provider] = (), **settings: Any
) -> AsyncIterator[GatewayStage]:
    """Serve a gateway whose providers `openai` and `anthropic` are simulated, unless others are."""
    async with Simulator() as sim, open_connections() as session, Exchange() as exchange:
        answer_other_apis(sim)
        simulated = [Provider("openai", sim.base_url), Provider("anthropic", sim.url)]
        chosen = GatewaySettings(providers or simulated, **settings)
        gateway = Gateway(chosen, OpenRuns(), session)
        async with serving(gateway, apart=False) as url:
            yield GatewayStage(sim, gateway, url, exchange)
