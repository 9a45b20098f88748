"""Every row of the table of docs/rescue.md behind a stack elsewhere that asks the gateway.

From end to end: a client, the router, a service with OpenAI's client, the gateway, providers.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace

import pytest
import pytest_asyncio

from contract.model import Usage
from contract.records import RunRecord
from effects.model import Rescued
from router.telemetry import instruments as i
from tests.router.gateway.behind import House, opened
from tests.support.deployment import Answer as Got
from tests.support.loopback_provider import Answer, Wire, in_turn, refusing
from tests.support.metrics_page import samples
from tests.support.misbehaving_providers import event, reset, said, saying, silence
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.asyncio(loop_scope="module")]

TOLD = "words of the provider's own"
"""What no client of ours may ever read."""


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
    house.service.codes.clear()


SPARE = saying("Hello", ", spare", model="loop-2", usage=7)
WHOLE = saying("Hello", " there", usage=3)


def error(status: int, code: str = "odd", **headers: str) -> Answer:
    """Refuse with a text that no client may see."""
    body = json.dumps({"error": {"code": code, "message": TOLD}})
    return refusing(status, body.encode(), **headers)


IN_BAND = event({"error": {"type": "server_error", "code": "overloaded", "message": TOLD}})


async def no_done(wire: Wire) -> None:
    """Finish, and end without a word."""
    await wire.events(said("loop-1", {}, finish_reason="stop"))
    await wire.end()


async def broken_chunk(wire: Wire) -> None:
    """Send half a chunk, then the rest of an answer."""
    await wire.events(b'{"choices":[{"del')
    await wire.events(
        said("loop-1", {"content": " there"}), said("loop-1", {}, finish_reason="stop")
    )
    await wire.end()


@dataclass(frozen=True)
class Row:
    """A provider's fault: who is asked how often, what the client reads, what is counted.

    `code` is that of the honest failure, "" where the answer is whole; `tokens` are those told.
    """

    first: Answer
    text: str
    asked: tuple[int, int]
    code: str = ""
    model: str = "first"
    second: Answer = SPARE
    tokens: int = 0
    followed: Mapping[Rescued, int] = field(default_factory=dict)

    @property
    def spare(self) -> bool:
        """Whether it is the fallback whose answer was heard to its end."""
        return not self.code and self.asked[1] > 0


def over(first: Answer, asked: int = 1, model: str = "first", *, spliced: bool = False) -> Row:
    """Make a row whose answer is the fallback's."""
    followed: dict[Rescued, int] = {"failed_over": 1}
    if asked > 1:
        followed["retried"] = asked - 1
    if spliced:
        followed["spliced"] = 1
    return Row(first, "Hello, spare", (asked, 1), model=model, tokens=14, followed=followed)


def again(first: Answer) -> Row:
    """Make a row whose answer is the first provider's second one."""
    row = Row(in_turn(first, WHOLE), "Hello there", (2, 0), tokens=6)
    return replace(row, followed={"retried": 1})


def failing(first: Answer, code: str, asked: tuple[int, int], text: str = "", **row: object) -> Row:
    """Make a row without a whole answer, which gives up."""
    tried = sum(asked) - 1
    followed: dict[Rescued, int] = {"given_up": 1, **({"retried": tried} if tried else {})}
    return replace(Row(first, text, asked, code, "first_alone", followed=followed), **row)  # type: ignore[arg-type] # its fields


ROWS: Mapping[str, Row] = {
    "429 with Retry-After": again(error(429, retry_after_ms="1")),
    "429 that asks for more than there is": over(error(429, retry_after="9"), model="brief"),
    "429 that asks for more, nowhere to go": failing(
        error(429, retry_after="9"), "model_rate_limited", (1, 0), model="brief_alone"
    ),
    "429 without it, persistent": over(error(429), 3),
    "500 once": again(error(500)),
    "500 twice": over(error(500), 2),
    "503 persistent": over(error(503), 3),
    "503 persistent, nowhere to go": failing(error(503), "model_unavailable", (3, 0)),
    "reset before headers": again(reset),
    "never answers": over(silence, model="hasty"),
    "never answers, nowhere to go": failing(
        silence, "model_timeout_first_byte", (1, 0), model="hasty_alone"
    ),
    "first token very late": over(saying(then=silence), model="prompt"),
    "cut before any content": again(saying(then=reset)),
    "cut in the middle": over(saying("Hel", "lo", then=reset), spliced=True),
    "stalled in the middle": over(saying("Hel", then=silence), model="lively", spliced=True),
    "cut, and another answer": failing(
        saying("Hey", then=reset),
        "model_truncated",
        (1, 1),
        "Hey",
        model="first",
        followed={"failed_over": 1, "not_spliced": 1},
    ),
    "cut twice, nowhere to go": failing(
        saying("Hel", then=reset), "model_truncated", (2, 0), "Hel"
    ),
    "malformed chunk": Row(saying("Hello", then=broken_chunk), "Hello there", (1, 0)),
    "no [DONE]": Row(saying("Hello", then=no_done), "Hello", (1, 0)),
    "usage after the last choice": Row(WHOLE, "Hello there", (1, 0), tokens=6),
    "usage missing": Row(saying("Hello"), "Hello", (1, 0)),
    "context length": over(error(400, "context_length_exceeded")),
    "context length, nowhere to go": failing(
        error(400, "context_length_exceeded"), "model_context_length", (1, 0)
    ),
    "content policy": failing(
        error(400, "content_policy_violation"), "model_content_policy", (1, 0), model="first"
    ),
    "an error inside, before content": over(saying(then=IN_BAND), 3),
    "an error inside, after content": over(saying("Hello", then=IN_BAND), spliced=True),
    "an error inside, nowhere to go": failing(
        saying("Hello", then=IN_BAND), "model_error", (2, 0), "Hello"
    ),
    "a wrong key": over(error(401)),
}


@pytest.mark.untraced
@pytest.mark.parametrize("name", ROWS)
async def test_a_fault_of_the_provider_behind_a_stack(house: House, name: str) -> None:
    """The client sees one honest stream; tape, record and metrics say who answered."""
    row, tokens, rescues = ROWS[name], await house.tokens(), house.rescues
    got = await house.ask(row.model, row.first, row.second)
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


async def test_no_prefill_and_no_second_charge(house: House) -> None:
    """What the fallback is asked is what the client asked, in whole and nothing behind it."""
    await house.ask("first", saying("Hel", then=reset), SPARE)
    before, after = house.first.at.requests[-1], house.second.at.requests[-1]
    assert after.body == {**before.body, "model": "loop-2"}
    assert [message["role"] for message in after.body["messages"]] == ["user"]


@pytest.mark.parametrize("name", ["500 once", "503 persistent", "503 persistent, nowhere to go"])
async def test_an_answer_in_one_piece_is_rescued_too(house: House, name: str) -> None:
    """A service that does not stream from its model hears the same, whole or not at all."""
    row = ROWS[name]
    house.service.in_pieces = False
    got = await house.ask(row.model, row.first, row.second)
    _client(row, got)
    _record(row, await house.last())


async def test_a_cut_answer_in_one_piece_is_an_error(house: House) -> None:
    """Half of it is never shown as all of it."""
    house.service.in_pieces = False
    got = await house.ask("first_alone", saying("Hel", then=reset), SPARE)
    assert got.events[2:] == [{"step": "FAILED", "code": "model_truncated"}, {"step": "END"}]


async def test_a_flapping_provider_behind_a_stack(house: House) -> None:
    """The breaker opens, the fallback serves, one probe decides, and it closes."""
    model = house.place.services.model
    known, policy = model.breakers.policy, model.policy
    model.breakers.policy = replace(known, calls=2, rest=60.0)
    model.policy = replace(policy, attempts=1, breaker=model.breakers.policy)
    try:
        for _ in range(4):
            got = await house.ask("first", error(503), SPARE)
            assert got.events[-2]["model"] == "loop-2"
        assert house.first.asked == 0, "the last one did not ask it any more"
        async with house.place.session.get(f"{house.place.url}/metrics") as page:
            states = samples(await page.text(), i.PROVIDER_BREAKER)
        assert states["first", "loop-1"] == 2
        # Opened anew without a rest, the next call is the probe.
        model.breakers.reset()
        model.policy = replace(model.policy, breaker=replace(known, calls=1, rest=0.0))
        for first, name in ((error(503), "loop-2"), (error(503), "loop-2"), (WHOLE, "loop-1")):
            assert (await house.ask("first", first, SPARE)).events[-2]["model"] == name
            assert house.first.asked == 1
        (state,) = [one for one in model.breaker_states() if one.provider == "first"]
        assert state.state == "closed"
    finally:
        model.policy = policy


async def test_a_client_that_leaves_takes_the_provider_along(house: House) -> None:
    """Through the router, the service and the gateway."""
    asked, left = asyncio.Event(), asyncio.Event()

    async def hold(wire: Wire) -> None:
        asked.set()
        await wire.gone()
        left.set()

    asking = asyncio.create_task(house.ask("first", saying("Hel", then=hold), SPARE))
    await asked.wait()
    asking.cancel()
    async with asyncio.timeout(PATIENCE_S):
        await left.wait()
    assert (await house.last()).outcome == "cancelled"
