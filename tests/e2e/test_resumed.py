"""Two services on one model tape: the one breaks off in the middle, the other goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, DefaultAioHttpClient

from tests.support.deployment import Answer, Deployment, Setup, deployed
from tests.support.scripted_service import HELLO, Asked, Service, Stream
from tests.support.scripted_service import serving as service_at

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


@dataclass
class Chatter:
    """A chat service that asks its model with OpenAI's client, through the gateway if it has one.

    It sends what it has after every `every`-th piece, in its own way of writing JSON, and drops
    the connection instead of the `breaks`-th time. `says` is put before what the model says.
    """

    every: int = 1
    breaks: int = -1
    says: str = ""
    gateway: str = ""
    spaced: bool = False
    roles: list[str] = field(default_factory=list)
    text: str = ""

    async def __call__(self, asked: Asked, stream: Stream) -> None:
        """Answer one request of the router."""
        self.roles += asked.header("x-cutover-role")
        await stream.head()
        await stream.send(self.event("ACCEPT"), self.event("START_REPLY"))
        self.text, sent = self.says, 0
        async with aclosing(self.pieces(asked)) as pieces:
            async for count, piece in pieces:
                self.text += piece
                if count % self.every:
                    continue
                if sent == self.breaks:
                    stream.reset()
                    return
                sent += 1
                await stream.send(self.event("SEND", self.text))
        await stream.send(self.event("SUCCESS", self.text), self.event("END"))
        await stream.end()

    async def pieces(self, asked: Asked) -> AsyncGenerator[tuple[int, str], None]:
        """Ask the model; without a gateway there is none, and a fixed text instead."""
        if not self.gateway:
            for count, piece in enumerate("abcdefgh", 1):
                yield count, piece
            return
        exchange = asked.header("x-cutover-exchange")[0]
        async with (
            AsyncOpenAI(
                api_key="none",
                base_url=f"{self.gateway}/exchanges/{exchange}/v1",
                default_headers={"x-cutover-role": asked.header("x-cutover-role")[0]},
                http_client=DefaultAioHttpClient(trust_env=False),
            ) as client,
            await client.chat.completions.create(
                model="gpt-4.1", messages=[{"role": "user", "content": "Hello"}], stream=True
            ) as answer,
        ):
            count = 0
            async for chunk in answer:
                if chunk.choices and chunk.choices[0].delta.content:
                    count += 1
                    yield count, chunk.choices[0].delta.content

    def event(self, step: str, content: str | None = None) -> bytes:
        """Write an event."""
        payload = {"step": step} if content is None else {"step": step, "content": content}
        separators = (", ", ": ") if self.spaced else (",", ":")
        return f"data: {json.dumps(payload, separators=separators)}\n\n".encode()


@asynccontextmanager
async def house(
    folder: Path, legacy: Chatter, graph: Chatter, *, resumable: str = "true"
) -> AsyncIterator[Deployment]:
    """Deploy a router with a gateway before two services that use it; graph stands by."""
    async with service_at(legacy) as one, service_at(graph) as other:
        setup = Setup(more=stacks(one, other, resumable), stack="graph")
        async with deployed(folder, setup) as place:
            for chatter in (legacy, graph):
                chatter.gateway = place.gateway if chatter.gateway else ""
            yield place


def stacks(legacy: Service, graph: Service, resumable: str) -> str:
    """Configure both, and the gateway."""
    return f"""
[gateway]
enabled = true
[stacks.graph]
url = "{graph.url}/chat/sse"
[stacks.legacy]
url = "{legacy.url}/chat/sse"
resumable = {resumable}
"""


def grown(answer: Answer) -> list[str]:
    """Return the texts of a stream; each goes on from the one before, and says more."""
    texts = [event["content"] for event in answer.events if event["step"] == "SEND"]
    assert all(b.startswith(a) and len(b) > len(a) for a, b in pairwise(texts))
    return texts


@pytest.mark.untraced
@pytest.mark.parametrize(("breaks", "every"), [(0, 3), (1, 1), (5, 3), (4, 2)])
async def test_the_stream_goes_on_in_the_text(tmp_path: Path, breaks: int, every: int) -> None:
    """One prologue, the whole text, one end; the model was asked once; the records say it all."""
    graph = Chatter(breaks=breaks, gateway="yes")
    legacy = Chatter(every=every, spaced=True, gateway="yes")
    async with house(tmp_path, legacy, graph) as place:
        answer = await place.ask(HELLO)
        assert place.model_calls == 1
        first, second = await place.lines()
    assert answer.steps == ["ACCEPT", "START_REPLY", "SEND", "SUCCESS", "END"]
    assert answer.events[-2]["content"] == legacy.text != ""
    grown(answer)
    assert answer.body.count(b": served-by legacy ") == 1
    before, _, after = answer.body.partition(b": served-by ")
    # What was under way when the connection broke may be lost.
    assert before.count(b"data:") <= 2 + breaks
    assert b'"step": "ACCEPT"' not in after
    assert (graph.roles, legacy.roles) == (["serving"], ["fallback"])
    assert (first.outcome, first.reason, first.served) == ("truncated", "connection_lost", "legacy")
    assert (second.role, second.outcome, second.sent) == (
        "fallback",
        "completed",
        before.count(b"data:"),
    )
    assert [play.how for play in (*first.plays, *second.plays)] == ["live", "exact"]
    assert place.books() == {"not_sampled()": 1}
    assert place.services.router.counts.takeovers == 1


TAPED = {"breaks": 2, "gateway": "yes"}


@pytest.mark.parametrize(
    ("graph", "legacy", "resumable", "error"),
    [
        pytest.param(TAPED, {"says": "Well: "}, "true", "prefix_mismatch", id="another text"),
        pytest.param(TAPED, {"breaks": 4}, "true", "connection_lost", id="breaks off later"),
        # It ends before it says anything new: the failure follows what the client had.
        pytest.param(TAPED, {"breaks": 1}, "true", "connection_lost", id="breaks off earlier"),
        pytest.param(TAPED, {}, "false", "", id="not declared resumable"),
        pytest.param({"breaks": 2}, {}, "true", "", id="not on the gateway's tape"),
    ],
)
async def test_where_the_text_cannot_go_on_failure_frames_follow(
    tmp_path: Path, graph: dict[str, Any], legacy: dict[str, Any], resumable: str, error: str
) -> None:
    """What the client has cannot be taken back; there is no third stack, and no other call.

    `error` is that of the fallback; "" where none is started.
    """
    gateway = graph.get("gateway", "")
    first, second = Chatter(**graph), Chatter(**legacy, gateway=gateway)
    async with house(tmp_path, second, first, resumable=resumable) as place:
        answer = await place.ask(HELLO)
        assert place.model_calls == bool(gateway)
        first_run, *rest = await place.lines()
    assert answer.steps == ["ACCEPT", "START_REPLY", "SEND", "FAILED", "END"]
    assert (b"served-by" in answer.body) == (legacy.get("breaks") == 4)
    assert grown(answer)
    assert first_run.outcome == "truncated"
    assert second.roles == [run.role for run in rest] == (["fallback"] if error else [])
    assert [run.error.code for run in rest if run.error] == ([error] if error else [])
    if error == "connection_lost":
        steps = [json.loads(frame[6:])["step"] for _, frame in rest[0].frames]
        assert (rest[0].outcome, steps[-2:]) == ("truncated", ["FAILED", "END"])


async def test_it_breaks_behind_the_prologue(tmp_path: Path) -> None:
    """No text has been sent: no tape is due, and the prologue is not repeated."""
    graph, legacy = Chatter(breaks=0), Chatter()
    async with house(tmp_path, legacy, graph) as place:
        answer = await place.ask(HELLO)
    assert answer.steps == ["ACCEPT", "START_REPLY", "SEND", "SUCCESS", "END"]
    assert grown(answer)[-1] == "abcdefgh"


@dataclass
class Relay(Chatter):
    """A service that speaks OpenAI's own wire: each piece of the text is an event."""

    told: int = 0

    def event(self, step: str, content: str | None = None) -> bytes:
        """Write an event; one that is none of this wire is a comment."""
        if step == "END":
            return b"data: [DONE]\n\n"
        if step == "ACCEPT":
            return b": accepted\n\n"
        delta: dict[str, str] = {"role": "assistant"}
        if content is not None:
            delta = {"content": content[self.told :]}
            self.told = len(content)
        finish = "stop" if step == "SUCCESS" else None
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return f"data: {json.dumps({'id': str(id(self)), 'choices': [choice]})}\n\n".encode()


SUPPORT = """
[flows.support]
path = "/api/support"
dialect = "openai"
enable_langgraph = true
langgraph_percent = 100
"""


@pytest.mark.parametrize(("breaks", "every"), [(1, 3), (4, 2)])
async def test_a_declared_flow_goes_on_with_what_is_missing(
    tmp_path: Path, breaks: int, every: int
) -> None:
    """A delta in which the two meet is cut; the pieces make the whole text, once."""
    graph, legacy = Relay(breaks=breaks, gateway="yes"), Relay(every=every, gateway="yes")
    async with service_at(legacy) as one, service_at(graph) as other:
        more = stacks(one, other, "true").replace("/chat/sse", "/") + SUPPORT
        async with deployed(tmp_path, Setup(more=more)) as place:
            legacy.gateway = graph.gateway = place.gateway
            async with place.session.post(f"{place.url}/api/support", data=b"{}") as response:
                body = await response.read()
            assert place.model_calls == 1
    frames = [frame for frame in body.split(b"\n\n") if frame.startswith(b"data: {")]
    choices = [json.loads(frame[6:])["choices"][0] for frame in frames]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == legacy.text != ""
    assert sum("role" in choice["delta"] for choice in choices) == 1
    assert sum(choice["finish_reason"] == "stop" for choice in choices) == 1
    assert body.endswith(b"data: [DONE]\n\n")
    assert body.count(b": served-by legacy ") == 1
