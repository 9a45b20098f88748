"""Services that were not designed to fit: declared in a few lines, they get all of the router.

Served byte for byte, mirrored, compared, failed over before the first byte, and taken over in the
middle of the text where they use the gateway and allow it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from contract.flows import SPECS
from contract.qa_header import QA_HEADER, sign
from contract.wire import EventDecoder, WireReader, built_in
from cutover.cli.compare.load import configured_urls, load_targets
from cutover.flows import declared_at, flows_at, settings_at
from loadtests.plan import Engine, LoadPlan
from loadtests.runner import run_load
from router.config.errors import ConfigRefused
from router.config.loader import parse_settings
from tests.support.deployment import QA_KEY, Deployment, Setup, deployed
from tests.support.example_processes import invoked
from tests.support.foreign_services import NODE, Behaviour, Foreign, Wire, running
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")
each_wire = pytest.mark.parametrize(
    "wire", ["text", "ndjson", pytest.param("ai-sdk", marks=needs_node)]
)
KINDS = {"text": "text/plain", "ndjson": "application/x-ndjson", "ai-sdk": "text/event-stream"}
FIXED = "abcdefgh"
HELLO = {"role": "user", "content": "Hello", "parts": [{"type": "text", "text": "Hello"}]}
"""A message as `useChat` sends it, with the content that the others read."""


@dataclass(frozen=True)
class World:
    """A router before two services of one wire."""

    wire: Wire
    place: Deployment
    legacy: Foreign
    graph: Foreign

    async def ask(self) -> tuple[aiohttp.ClientResponse, bytes]:
        """Send a message; returns the response, and its body as far as it came."""
        url, body = f"{self.place.url}/api/assistant", b""
        asked = {"messages": [HELLO]}
        async with self.place.session.post(url, json=asked) as response:
            try:
                async for piece in response.content.iter_any():
                    body += piece
            except aiohttp.ClientError:
                body += b"(broken off)"
        await self.place.settled()
        return response, body

    async def set_up(self, *, legacy: Behaviour | None = None, **graph: Any) -> None:
        """Let both services call their model through the gateway; graph may break."""
        model = f"{self.place.gateway}/v1"
        old = legacy or Behaviour()
        old.model = model
        await self.legacy.set_up(old)
        await self.graph.set_up(Behaviour(model=model, **graph))

    def said(self, body: bytes) -> str:
        """Read the answer, as a strict client of the wire does."""
        if self.wire == "ai-sdk":
            return use_chat(body)
        reader = WireReader(EventDecoder(built_in()[self.wire]))
        return "".join(event.text() or "" for event in (*reader.feed(body), *reader.flush()))


def use_chat(body: bytes) -> str:
    """Read a UI message stream as `useChat` does: a piece of an unknown part is an error."""
    parts: dict[str, str] = {}
    opened: set[str] = set()
    *frames, last, nothing = body.split(b"\n\n")
    assert (last, nothing) == (b"data: [DONE]", b"")
    for frame in frames:
        if frame.startswith(b":"):
            continue
        part = json.loads(frame.removeprefix(b"data: "))
        kind, name = part["type"], part.get("id", "")
        if kind == "text-start":
            opened.add(name)
        elif kind == "text-delta":
            assert name in opened, "a piece of a part that has not begun"
            parts[name] = parts.get(name, "") + part["delta"]
        elif kind == "text-end":
            opened.remove(name)
    assert not opened
    return "".join(parts.values())


async def initialised(folder: Path, old: Foreign, new: Foreign) -> str:
    """Run `cutover init` for two services, as its user would; returns what it has written."""
    file = folder / "first.toml"
    command = ("init", old.url, new.url, "--path", "/api/assistant", "--shadow-safe", "--yes")
    body = json.dumps({"messages": [HELLO]})
    said = await invoked(*command, "--body", body, "--config", str(file))
    assert said.exit_code == 0, said.output
    for who, service in (("old service, legacy", old), ("new service, graph", new)):
        assert f"the {who}: {service.wire}" in said.output
    return file.read_text("utf-8")


def serving_on_graph(text: str) -> str:
    """Let graph serve all, and both take over from each other, as docs/remote.md says."""
    text = text.replace("langgraph_percent = 0.0", "langgraph_percent = 100.0")
    text = text.replace("[stacks.graph]\n", "[stacks.graph]\nresumable = true\n")
    own = "[stacks.legacy]\nshadow_safe = true\nresumable = true\n"
    return text.replace("[stacks.legacy]\n", own)


@asynccontextmanager
async def world(
    folder: Path, wire: Wire, changed: Callable[[str], str] = str, *, new: Wire | None = None
) -> AsyncIterator[World]:
    """Start two services, and a router with what `init` writes for them, and the gateway.

    `changed` is what is changed in the file afterwards; the `new` service may have another wire.
    """
    async with AsyncExitStack() as opened:
        wires = wire, new or wire
        legacy, graph = [await opened.enter_async_context(running(one)) for one in wires]
        text = changed(await initialised(folder, legacy, graph))
        setup = Setup(more=f"{text}\n[gateway]\nenabled = true\n", chat=False)
        place = await opened.enter_async_context(deployed(folder, setup))
        yield World(wire, place, legacy, graph)


@each_wire
async def test_served_mirrored_and_compared(tmp_path: Path, wire: Wire) -> None:
    """The client gets the service's own bytes; other pieces are equal, another text is found."""
    async with world(tmp_path, wire) as here:
        await here.graph.set_up(Behaviour(every=3))
        response, body = await here.ask()
        assert (response.status, response.content_type) == (200, KINDS[wire])
        assert here.said(body) == FIXED
        assert response.headers.get("x-vercel-ai-ui-message-stream") == (
            "v1" if wire == "ai-sdk" else None
        )
        runs = await here.place.lines()
        assert [(run.role, run.stack, run.outcome) for run in runs] == [
            ("serving", "legacy", "completed"),
            ("shadow", "graph", "completed"),
        ]
        assert "".join(frame for _, frame in runs[0].frames).encode() == body
        config = here.place.watched.path
        places = str(tmp_path / "captures"), "--config", str(config)
        said = await invoked("diff", *places, "-o", str(tmp_path / "equal"))
        assert said.exit_code == 0, said.output
        assert here.place.books() == {"compared(equal)": 1}
        await here.graph.set_up(Behaviour(says="Well: "))
        await here.ask()
        await here.place.lines()
        said = await invoked("diff", *places, "-o", str(tmp_path / "different"))
        assert said.exit_code == 1, said.output
        assert "1 of 2 pairs differs, from 1 cause" in said.output
        assert here.place.books() == {"compared(equal)": 1, "compared(different)": 1}
        assert "Final text differs" in said.output


@each_wire
async def test_noise_is_measured_and_no_service_that_is_away_replayed(
    tmp_path: Path, wire: Wire
) -> None:
    """Legacy asked twice and graph once; then the services are stopped."""
    for name in ("first", "again"):
        (tmp_path / name).mkdir()
        async with world(tmp_path / name, wire) as here:
            await here.graph.set_up(Behaviour(every=3))
            await here.ask()
            await here.place.lines()
    first, again = (str(tmp_path / name / "captures") for name in ("first", "again"))
    config = ("--config", str(tmp_path / "first" / "cutover.toml"))
    said = await invoked("noise", first, again, *config, "-o", str(tmp_path / "noise"))
    assert said.exit_code == 3, said.output  # one message is too few to tell
    study = json.loads((tmp_path / "noise" / "noise.json").read_bytes())["study"]
    assert study["messages"] == 1
    assert {one["measure"]: one["difference"] for one in study["judgements"]} == {
        "text": 0,
        "tools": 0,
        "structure": 0,
    }
    options = ("--stack", "graph", "--processes", "0", *config)
    said = await invoked("replay", first, *options, "-o", str(tmp_path / "replay"))
    assert said.exit_code == 2, said.output
    assert "start the service with the code to be replayed" in " ".join(said.output.split())


@each_wire
async def test_a_shadow_gets_the_models_answer_from_the_tape(tmp_path: Path, wire: Wire) -> None:
    """The model is asked once, and the pair is equal, however each of them cuts the answer."""
    async with world(tmp_path, wire) as here:
        await here.set_up(every=3)
        await here.ask()
        assert here.place.model_calls == 1
        serving, shadow = await here.place.lines()
        assert [play.how for play in (*serving.plays, *shadow.plays)] == ["live", "exact"]
        config = str(here.place.watched.path)
        out = str(tmp_path / "out")
        places = str(tmp_path / "captures"), "-o", out, "--config", config
        said = await invoked("diff", *places)
        assert said.exit_code == 0, said.output


@each_wire
async def test_failed_over_before_the_first_byte(tmp_path: Path, wire: Wire) -> None:
    """As if the other one had been asked."""
    async with world(tmp_path, wire, serving_on_graph) as here:
        await here.graph.set_up(Behaviour(breaks=0))
        response, body = await here.ask()
        assert response.status == 200
        assert response.headers["x-cutover-served"].startswith("legacy ")
        assert here.said(body) == FIXED


@each_wire
@pytest.mark.parametrize(("breaks", "every"), [(1, 3), (4, 2), (3, 1)])
async def test_taken_over_in_the_middle_of_the_text(
    tmp_path: Path, wire: Wire, breaks: int, every: int
) -> None:
    """One stream with the whole text once; the model is asked once."""
    async with world(tmp_path, wire, serving_on_graph) as here:
        await here.set_up(legacy=Behaviour(every=every), breaks=breaks)
        response, body = await here.ask()
        assert response.headers["x-cutover-served"].startswith("graph ")
        assert here.place.model_calls == 1
        first, second = await here.place.lines()
        assert (first.outcome, first.served) == ("truncated", "legacy")
        assert (second.role, second.outcome) == ("fallback", "completed")
        whole = "".join(
            json.loads(bytes(item)).get("text", "") for item in (first.tape or ())[0].items
        )
        assert here.said(body) == whole != ""
        # The other two have no comments.
        assert (b": served-by legacy" in body) == (wire == "ai-sdk")
        assert here.place.services.router.counts.takeovers == 1


BROKEN = {
    "text": b"(broken off)",
    "ndjson": b'{"error":"the answer broke off: internal"}\n',
    "ai-sdk": b'data: {"type":"error","errorText":"the answer broke off: internal"}\n\n'
    b"data: [DONE]\n\n",
}


@each_wire
@pytest.mark.parametrize(
    ("legacy", "error"),
    [
        pytest.param(Behaviour(says="Well: "), "prefix_mismatch", id="another text"),
        pytest.param(Behaviour(breaks=1), "connection_lost", id="breaks off, too"),
        pytest.param(Behaviour(breaks=0), "bad_status", id="does not answer"),
    ],
)
async def test_where_nothing_can_continue_the_stream_it_ends_honestly(
    tmp_path: Path, wire: Wire, legacy: Behaviour, error: str
) -> None:
    """In the words of the wire; plain text has none, and the connection breaks."""
    async with world(tmp_path, wire, serving_on_graph) as here:
        await here.set_up(legacy=legacy, breaks=3)
        _, body = await here.ask()
        assert body.endswith(BROKEN[wire])
        _, second = await here.place.lines()
        assert second.error is not None
        assert second.error.code == error


@each_wire
async def test_the_doctor_says_what_works(tmp_path: Path, wire: Wire) -> None:
    """Takeover, too."""
    async with world(tmp_path, wire, serving_on_graph) as here:
        said = await invoked("doctor", "--config", str(here.place.watched.path))
        shown = " ".join(said.output.split())
        assert "takeover yes legacy continues the text" in shown
        framing = built_in()[wire].framing
        assert f"declared: {framing}, ends with" in shown


@each_wire
async def test_loaded_where_the_configuration_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wire: Wire
) -> None:
    """Each stream is whole and has words."""
    monkeypatch.setattr("loadtests.runner.WARM_UP_SECONDS", 0.25)
    async with world(tmp_path, wire) as here:
        config = here.place.watched.path
        urls = configured_urls(settings_at(config), flows_at(config)["assistant"])
        assert urls == tuple(f"{one.url}/api/assistant" for one in (here.legacy, here.graph))
        await check_load(here, tmp_path)


async def check_load(here: World, folder: Path, engine: Engine = "open") -> None:
    """Load both services where the configuration says; each stream is whole and has words."""
    config, locust = here.place.watched.path, engine == "locust"
    messages = folder / "messages.jsonl"
    messages.write_bytes(json.dumps({"messages": [HELLO]}).encode())
    urls = configured_urls(settings_at(config), flows_at(config)["assistant"])
    plan = LoadPlan(
        targets=load_targets("", urls, ((), ()), ""),
        messages=messages,
        users=4,
        rate=None if locust else 20.0,
        seconds=60.0 if locust else 1.0,
        think=0.1,
        pairs=1,
        engine=engine,
        flow="assistant",
        declared=declared_at(config, "assistant"),
        patience=PATIENCE_S,
    )
    report = await run_load(plan, folder / "load")
    for stack in report.stacks:
        words = next(metric for metric in stack.metrics if metric.name == "ttft")
        endings = dict(stack.endings)
        # Locust may kill a user between two breaths: such a request is given up, not judged.
        whole = stack.requests - (endings.pop("cancelled", 0) if locust else 0)
        assert (endings, dict(stack.codes)) == ({"complete": whole}, {})
        assert 0 < whole <= words.n <= stack.requests


@pytest.mark.parametrize(
    ("old", "new", "engine"),
    [
        ("text", "ndjson", "open"),
        ("ndjson", "text", "locust"),
        pytest.param("ai-sdk", "text", "open", marks=needs_node),
    ],
)
async def test_two_formats_are_loaded_each_read_in_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: Wire, new: Wire, engine: Engine
) -> None:
    """The services' models are behind the router, and both are asked as often."""
    monkeypatch.setattr("loadtests.runner.WARM_UP_SECONDS", 0.25)
    few = Path(__file__).parents[1] / "loadtests" / "few_users.py"
    monkeypatch.setattr("loadtests.runner.LOCUSTFILE", few)
    async with world(tmp_path, old, new=new) as here:
        await here.set_up(every=3)
        await check_load(here, tmp_path, engine)
        assert here.place.model_calls > 0


async def test_two_formats_are_not_loaded_through_the_router(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Legacy would answer for graph: it is refused before anything is sent, with what to do."""
    monkeypatch.setenv(QA_KEY, "qa")
    async with world(tmp_path, "text", new="ndjson") as here:
        router = ("--url", here.place.url, "--qa-key-env", QA_KEY)
        flow = ("--flow", "assistant", "--config", str(here.place.watched.path))
        said = await invoked("load", *router, *flow, "-o", str(tmp_path / "load"))
        assert said.exit_code == 2, said.output
        assert "legacy answers all requests; load the services themselves" in " ".join(
            said.output.split()
        )
        assert await here.place.lines() == []


@pytest.mark.parametrize(
    ("old", "new"),
    [("text", "ndjson"), ("ndjson", "text"), pytest.param("text", "ai-sdk", marks=needs_node)],
)
async def test_two_formats_are_mirrored_and_compared_in_what_both_can_say(
    tmp_path: Path, old: Wire, new: Wire
) -> None:
    """One text is equal in the ledger and the report; another one is found in both."""
    async with world(tmp_path, old, new=new) as here:
        await here.set_up(every=3)
        _, body = await here.ask()
        assert here.said(body) != ""
        assert here.place.books() == {"compared(equal)": 1}
        serving, shadow = await here.place.lines()
        assert (serving.dialect, shadow.dialect, shadow.outcome) == ("", new, "completed")
        config = "--config", str(here.place.watched.path)
        captures = str(tmp_path / "captures")
        said = await invoked("diff", captures, *config, "-o", str(tmp_path / "equal"))
        assert said.exit_code == 0, said.output
        await here.set_up(says="Well: ")
        await here.ask()
        await here.place.lines()
        assert here.place.books() == {"compared(equal)": 1, "compared(different)": 1}
        said = await invoked("diff", captures, *config, "-o", str(tmp_path / "different"))
        assert said.exit_code == 1, said.output
        assert "1 of 2 pairs differs, from 1 cause" in said.output
        assert "Final text differs" in said.output


async def test_of_two_formats_the_other_one_never_reaches_a_client(tmp_path: Path) -> None:
    """Graph may serve nothing by the file; a QA header is answered by legacy, and says so."""
    async with world(tmp_path, "text", new="ndjson") as here:
        router = here.place.services.router
        key = router.flows["assistant"].route_key({}, "")
        forced = {QA_HEADER: sign("graph", 1 << 32, key, router.assigner.qa_key)}
        url = f"{here.place.url}/api/assistant"
        async with here.place.session.post(url, json={}, headers=forced) as response:
            assert (await response.read()).decode() == FIXED
            assert response.headers["x-cutover-served"].startswith("legacy ")
        config = here.place.watched.path
        said = await invoked("doctor", "--probe", "--config", str(config))
        shown = " ".join(said.output.split())
        assert "shadow, legacy serving holds" in shown
        assert "clients read another format than graph streams (ndjson)" in shown
        with pytest.raises(ConfigRefused, match="cannot serve until graph_dialect is gone"):
            parse_settings(serving_on_graph(config.read_text("utf-8")), "file", SPECS)
