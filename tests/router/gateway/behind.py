"""A router before a service whose model is asked through the gateway, at two providers."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from contract.records import RunRecord
from effects.model import Rescued
from router.telemetry import instruments as i
from tests.router.gateway.asking_service import AskingService
from tests.support.deployment import Answer as Got
from tests.support.deployment import Deployment, Setup, deployed
from tests.support.gateways import client_of
from tests.support.loopback_provider import Answer, Loopback, Wire, serving
from tests.support.metrics_page import samples
from tests.support.misbehaving_providers import reset
from tests.support.scripted_service import serving as service_at

CONFIGURATION = """
[metrics]
enabled = true
[gateway]
enabled = true
[rescue]
first_wait_seconds = 0.001
breaker_calls = 50
[stacks.legacy]
url = "{service}/chat/sse"
[providers.second]
base_url = "{second}"
[models.spare]
provider = "second"
model = "loop-2"
input_price = 1.0
output_price = 1.0
"""
PROVIDERS: Mapping[str, str] = {
    "first": "",
    "hasty": "first_byte_seconds = 0.05",
    "prompt": "first_token_seconds = 0.05",
    "lively": "idle_seconds = 0.05",
    "brief": "total_seconds = 5.0",
}
"""The first provider, by the limits it is given; a model of each name, and one without fallback."""
PROVIDER = """
[providers.{name}]
base_url = "{first}"
{limits}
[models.{name}]
provider = "{name}"
model = "loop-1"
fallbacks = ["spare"]
context_tokens = 1_000
input_price = 1000.0
output_price = 1000.0
[models.{name}_alone]
provider = "{name}"
model = "loop-1"
"""


@dataclass
class Changing:
    """A provider that does what the row at hand wants; `asked` counts from its begin."""

    at: Loopback = field(default_factory=Loopback)
    answer: Answer = reset
    before: int = 0

    async def __call__(self, wire: Wire) -> None:
        """Answer one request."""
        await self.answer(wire)

    def becomes(self, answer: Answer) -> None:
        """Behave otherwise from now on."""
        self.answer, self.before = answer, len(self.at.requests)

    @property
    def asked(self) -> int:
        """How often it was asked since."""
        return len(self.at.requests) - self.before


@dataclass
class House:
    """A router before a service whose model is asked at two providers, by the router."""

    place: Deployment
    service: AskingService
    first: Changing
    second: Changing

    async def ask(self, model: str, first: Answer, second: Answer) -> Got:
        """Be a client, once, with the providers as they are given."""
        self.first.becomes(first)
        self.second.becomes(second)
        self.service.model = model
        return await self.place.ask({"message_id": "m", "content": "Hello"})

    @property
    def rescues(self) -> Counter[Rescued]:
        """What the port has done since the deployment began."""
        return self.place.services.model.counts.rescues

    async def last(self) -> RunRecord:
        """Return the run captured last."""
        return (await self.place.lines())[-1]

    async def tokens(self) -> dict[tuple[str, ...], float]:
        """Read the tokens that `/metrics` has counted, by who answered, who was asked, and kind."""
        async with self.place.session.get(f"{self.place.url}/metrics") as page:
            found = samples(await page.text(), i.TOKENS)
        return {labels[3:]: value for labels, value in found.items()}


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[House]:
    """Deploy everything."""
    one, two, service = Changing(), Changing(), AskingService()
    async with serving(one) as one.at, serving(two) as two.at, service_at(service) as at:
        models = "".join(
            PROVIDER.format(name=name, limits=limits, first=one.at.base_url)
            for name, limits in PROVIDERS.items()
        )
        more = CONFIGURATION.format(service=at.url, second=two.at.base_url) + models
        async with deployed(folder, Setup(more=more)) as place, client_of(place.url) as client:
            service.client = client
            yield House(place, service, one, two)
