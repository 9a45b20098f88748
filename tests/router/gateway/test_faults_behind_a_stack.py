"""Faults of providers behind a stack elsewhere that asks the gateway: one row a kind of ending.

From end to end: a client, the router, a service with OpenAI's client, the gateway, providers. Every
row of the table of docs/rescue.md goes through the gateway in tests/effects/model/test_rescue.py.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from openai import APIError, AsyncOpenAI

from contract.model import Usage
from contract.records import RunRecord
from effects.model import Rescued
from router.telemetry import instruments as i
from tests.support.deployment import Answer as Got
from tests.support.deployment import Deployment, Setup, deployed
from tests.support.gateways import client_of
from tests.support.loopback_provider import Answer, Loopback, Wire, in_turn, refusing, serving
from tests.support.metrics_page import samples
from tests.support.misbehaving_providers import Held, reset, saying
from tests.support.scripted_service import Asked, Stream
from tests.support.scripted_service import serving as service_at

pytestmark = [pytest.mark.sockets, pytest.mark.asyncio(loop_scope="module")]

TOLD = "words of the provider's own"
"""What no client of ours may ever read."""
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
[providers.primary]
base_url = "{first}"
[models.first]
provider = "primary"
model = "loop-1"
fallbacks = ["spare"]
input_price = 1000.0
output_price = 1000.0
[models.first_alone]
provider = "primary"
model = "loop-1"
[providers.second]
base_url = "{second}"
[models.spare]
provider = "second"
model = "loop-2"
input_price = 1.0
output_price = 1.0
"""


@dataclass
class AskingService:
    """Streams what its model says as events of the chat flow; honest where the model fails.

    `model` is the called one, `in_pieces` how.
    """

    client: AsyncOpenAI = field(init=False)
    model: str = "m"
    in_pieces: bool = True

    async def __call__(self, asked: Asked, stream: Stream) -> None:
        """Answer one request of the router."""
        await stream.head()
        await stream.send(_frame("ACCEPT"), _frame("START_REPLY"))
        try:
            told = await (self._pieces if self.in_pieces else self._whole)(asked, stream)
        except APIError as error:
            await stream.send(_frame("FAILED", code=error.code))
        else:
            await stream.send(_frame("SUCCESS", **told))
        await stream.send(_frame("END"))
        await stream.end()

    def _question(self, asked: Asked) -> dict[str, Any]:
        names = ("x-cutover-exchange", "x-cutover-role")
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": json.loads(asked.body)["content"]}],
            "extra_headers": {name: asked.header(name)[0] for name in names},
        }

    async def _pieces(self, asked: Asked, stream: Stream) -> dict[str, Any]:
        answer = await self.client.chat.completions.create(
            **self._question(asked), stream=True, stream_options={"include_usage": True}
        )
        said, model, tokens = "", "", 0
        async for chunk in answer:
            model = chunk.model or model
            with suppress(AttributeError):
                tokens = chunk.usage.total_tokens
            for choice in chunk.choices:
                if choice.delta.content:
                    said += choice.delta.content
                    await stream.send(_frame("SEND", content=choice.delta.content))
        return {"content": said, "model": model, "tokens": tokens}

    async def _whole(self, asked: Asked, stream: Stream) -> dict[str, Any]:
        answer = await self.client.chat.completions.create(**self._question(asked))
        said = answer.choices[0].message.content or ""
        await stream.send(_frame("SEND", content=said))
        tokens = answer.usage.total_tokens if answer.usage else 0
        return {"content": said, "model": answer.model, "tokens": tokens}


def _frame(step: str, **more: object) -> bytes:
    return b"data: " + json.dumps({"step": step, **more}).encode() + b"\n\n"


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
        more = CONFIGURATION.format(service=at.url, first=one.at.base_url, second=two.at.base_url)
        async with deployed(folder, Setup(more=more)) as place, client_of(place.gateway) as client:
            service.client = client
            yield House(place, service, one, two)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """Deploy once for all rows."""
    async with opened(tmp_path_factory.mktemp("house")) as made:
        yield made


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def fresh(house: House) -> None:
    """Let no row know of the one before it."""
    house.place.services.model.breakers.reset()
    house.service.in_pieces = True


SPARE = saying("Hello", ", spare", model="loop-2", usage=7)
WHOLE = saying("Hello", " there", usage=3)


def error(status: int, code: str = "odd") -> Answer:
    """Refuse with a text that no client may see."""
    return refusing(status, json.dumps({"error": {"code": code, "message": TOLD}}).encode())


@dataclass(frozen=True)
class Row:
    """A provider's fault: who is asked how often, what the client reads, what is counted.

    `code` is that of the honest failure, "" where the answer is whole; `tokens` are those told.
    """

    first: Answer
    text: str
    asked: tuple[int, int]
    followed: Mapping[Rescued, int]
    code: str = ""
    model: str = "first"
    tokens: int = 0

    @property
    def spare(self) -> bool:
        """Whether it is the fallback whose answer was heard to its end."""
        return not self.code and self.asked[1] > 0


CUT, OTHER = saying("Hel", then=reset), saying("Hey", then=reset)
BESIDE: Mapping[Rescued, int] = {"failed_over": 1, "not_spliced": 1}
ROWS: Mapping[str, Row] = {
    "no fault": Row(WHOLE, "Hello there", (1, 0), {}, tokens=6),
    "no usage": Row(saying("Hello"), "Hello", (1, 0), {}),
    "called again": Row(
        in_turn(error(500), WHOLE), "Hello there", (2, 0), {"retried": 1}, tokens=6
    ),
    "failed over": Row(
        error(503), "Hello, spare", (3, 1), {"retried": 2, "failed_over": 1}, tokens=14
    ),
    "spliced": Row(CUT, "Hello, spare", (1, 1), {"failed_over": 1, "spliced": 1}, tokens=14),
    "given up": Row(
        error(503),
        "",
        (3, 0),
        {"retried": 2, "given_up": 1},
        "model_unavailable",
        "first_alone",
    ),
    "given up in the middle": Row(
        CUT, "Hel", (2, 0), {"retried": 1, "given_up": 1}, "model_truncated", "first_alone"
    ),
    "another answer": Row(OTHER, "Hey", (1, 1), BESIDE, "model_truncated"),
    "content policy": Row(
        error(400, "content_policy_violation"), "", (1, 0), {"given_up": 1}, "model_content_policy"
    ),
}


@pytest.mark.untraced
@pytest.mark.parametrize("name", ROWS)
async def test_a_fault_of_the_provider_behind_a_stack(house: House, name: str) -> None:
    """The client sees one honest stream; tape, record and metrics say who answered."""
    row, tokens, rescues = ROWS[name], await house.tokens(), house.rescues
    got = await house.ask(row.model, row.first, SPARE)
    assert (house.first.asked, house.second.asked) == row.asked
    _client(row, got)
    _record(row, await house.last())
    assert house.rescues - rescues == Counter(row.followed)
    grown = Counter(await house.tokens()) - Counter(tokens)
    assert grown == _counted(row)


def _client(row: Row, got: Got) -> None:
    """What the client sees: frames, an honest failure, a model's name, no exception."""
    ending = "FAILED" if row.code else "SUCCESS"
    assert (got.status, [one for one in got.steps if one != "SEND"]) == (
        200,
        ["ACCEPT", "START_REPLY", ending, "END"],
    )
    texts = [one["content"] for one in got.events if one["step"] == "SEND"]
    assert "".join(texts) == row.text
    name = "loop-2" if row.spare else "loop-1"
    assert got.events[-2] == (
        {"step": "FAILED", "code": row.code}
        if row.code
        else {"step": "SUCCESS", "content": row.text, "model": name, "tokens": row.tokens}
    )
    assert TOLD.encode() not in got.body


def _record(row: Row, run: RunRecord) -> None:
    """What is written down: one call with one answer, however often a provider was asked."""
    assert (run.outcome, run.served) == ("failed" if row.code else "completed", "legacy")
    assert run.tape is not None
    [entry] = run.tape
    assert (entry.port, entry.op, entry.end) == (
        "model",
        "stream",
        "error" if row.code else "complete",
    )
    assert (entry.fault.code if entry.fault else "") == row.code
    chunks = [json.loads(bytes(item)) for item in entry.items]
    assert "".join(chunk.get("text", "") for chunk in chunks) == row.text
    assert TOLD.encode() not in b"".join(bytes(item) for item in entry.items)
    [use] = run.models
    assert use.by == ("spare" if row.spare else "")
    half = row.tokens // 2
    assert use.usage == (Usage(half, half, row.tokens) if row.tokens else None)
    if row.spare:
        assert run.cost == pytest.approx(row.tokens / 1e6), "by the fallback's price"


def _counted(row: Row) -> Counter[tuple[str, ...]]:
    """What `/metrics` counts: the tokens of the one that answered."""
    by = "spare" if row.spare else row.model
    kinds = ("input", "output") if row.tokens else ()
    return Counter({(by, row.model, kind): row.tokens // 2 for kind in kinds})


@pytest.mark.parametrize("name", ["called again", "failed over", "given up"])
async def test_an_answer_in_one_piece_is_rescued_too(house: House, name: str) -> None:
    """A service that does not stream from its model hears the same, whole or not at all."""
    row = ROWS[name]
    house.service.in_pieces = False
    got = await house.ask(row.model, row.first, SPARE)
    _client(row, got)
    _record(row, await house.last())


async def test_a_cut_answer_in_one_piece_is_an_error(house: House) -> None:
    """Half of it is never shown as all of it."""
    house.service.in_pieces = False
    got = await house.ask("first_alone", saying("Hel", then=reset), SPARE)
    assert got.events[2:] == [{"step": "FAILED", "code": "model_truncated"}, {"step": "END"}]


async def test_a_whole_answer_need_not_continue_a_broken_one(house: House) -> None:
    """Tape and client have the fallback's answer alone; streamed, the same is `another answer`."""
    house.service.in_pieces = False
    row = Row(OTHER, "Hello, spare", (1, 1), {"failed_over": 1}, tokens=14)
    got = await house.ask(row.model, row.first, SPARE)
    _client(row, got)
    _record(row, await house.last())


async def test_a_client_that_leaves_takes_the_provider_along(house: House) -> None:
    """Through the router, the service and the gateway."""
    held = Held()
    asking = asyncio.create_task(house.ask("first", saying("Hel", then=held), SPARE))
    await held.asked.wait()
    asking.cancel()
    await held.until_left()
    assert (await house.last()).outcome == "cancelled"
