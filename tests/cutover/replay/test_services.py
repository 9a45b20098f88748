"""Replays on a service: what it is sent, what it is refused, and what is not replayed on it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import aiohttp
import msgspec
import pytest

from contract.external import ExternalUpdate
from contract.flows import SPECS
from contract.model import GATEWAY_SITE, Chunk
from contract.operations import EXTERNAL_RUN, MODEL_STREAM
from contract.records import VERSION, Outcome, RequestRecord, RunRecord, encode_run
from cutover.replay import (
    Counts,
    PlayOptions,
    ReplayPlan,
    ReplayProgress,
    ServicePlan,
    replay,
    sides_of,
)
from cutover.replay.journal import ReplayMisused, SegmentWriter
from cutover.replay.services import INTERRUPTED, NO_TURN, SERVICE_EXCHANGES
from effects.tape import Tape
from loadtests.processes import own_port
from router.config.loader import parse_settings
from router.gateway.requests import call_key, read_request
from router.gateway.tool_servers import REFUSED
from tests.router.gateway.test_tool_servers import Shop, client_at, outcome
from tests.support.asgi import served
from tests.support.capture_files import runs
from tests.support.deployment import until
from tests.support.effects import KEY
from tests.support.scripted_service import Asked, Service, Stream, serving

CONFIGURATION = """
[stacks.legacy]
url = "%(url)s/"
flows = ["talk"]
shadow_safe = true

[stacks.graph]
url = "%(url)s/"
flows = ["talk"]
shadow_safe = true

[gateway]
enabled = true
listen = "127.0.0.1:%(port)d"
%(more)s
[flows.talk]
path = "/talk"
route_keys = { session_id = "conversation" }
history = "own"
enable_langgraph = true
shadow_percent = 100.0

[flows.talk.dialect]
terminal = ["done"]
text = { token = "text" }
errors = { events = ["error"], code = "code" }
failure = [{ event = "error", data = '{"code":"{code}"}' }]
"""
ANSWER = "Fine."
FRAMES = ((1, f'event: token\ndata: {{"text":"{ANSWER}"}}\n\n'), (2, "event: done\ndata: {}\n\n"))
USER = ((b"authorization", b"Bearer t"),)
PASSED_ON = ("x-cutover-exchange", "x-cutover-role")
INTERRUPTED_STATUS = 130
LATE_S = 0.2
MANY = 2 * SERVICE_EXCHANGES + 3

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


def question(message: str) -> bytes:
    """Return the call of the model that a service makes for a message."""
    messages = [{"role": "user", "content": message}]
    return json.dumps({"model": "m", "messages": messages, "stream": True}).encode()


async def tape_of(message: str) -> Tape:
    """Return the tape of a request for which the model was called once, through the gateway."""
    tape = Tape()
    key = await call_key(read_request(question(message)).call)
    entry = tape.add(MODEL_STREAM, GATEWAY_SITE, key, 0)
    entry.append(Chunk(text=ANSWER, at=1))
    entry.append(Chunk(finish="stop", at=1))
    entry.close("complete", 2)
    return tape


async def captured(number: int, conversation: str = "", turn: int = 0, **more: Any) -> RunRecord:
    """Return a request that legacy served; its message has the number, and is asked as it is."""
    message = f"question {number}"
    body = {"conversation": conversation or f"c{number}", "message": message}
    record = RunRecord(
        v=VERSION,
        exchange=f"e{number}",
        flow="talk",
        role="serving",
        stack="legacy",
        assigned="legacy",
        served="legacy",
        began=number,
        outcome="completed",
        request=RequestRecord(msgspec.Raw(json.dumps(body).encode()), msgspec.Raw(b"{}")),
        frames=FRAMES,
        tape=(await tape_of(message)).record(),
        own_histories=bool(turn),
        turn=turn,
    )
    return msgspec.structs.replace(record, **more)


def write(folder: Path, records: Sequence[RunRecord]) -> Path:
    """Write captures."""
    folder.mkdir(parents=True)
    (folder / "some.jsonl").write_bytes(b"".join(map(encode_run, records)))
    return folder


@dataclass
class Talking:
    """How a service answers, and what it was asked: `said`, in order.

    `asks` returns its calls of the model, `statuses` are what came of them; `before` is awaited
    before it answers.
    """

    gateway: str = ""
    said: list[str] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    passes_on: tuple[str, ...] = PASSED_ON
    asks: Callable[[str], list[bytes]] = lambda message: [question(message)]
    text: str = ANSWER
    key: str = ""
    format: Literal["sse", "text"] = "sse"
    before: Callable[[], Awaitable[object]] | None = None
    endless: bool = False

    async def answer(self, asked: Asked, stream: Stream) -> None:
        """Ask the model, as often as it does, and stream the text."""
        message = json.loads(asked.body)["message"]
        self.said.append(message)
        headers = {name: value for name, value in asked.headers if name in self.passes_on}
        headers["authorization"] = f"Bearer {self.key}"
        async with aiohttp.ClientSession(headers=headers) as session:
            for body in self.asks(message):
                place = f"{self.gateway}/v1/chat/completions"
                async with session.post(place, data=body) as response:
                    self.statuses.append(response.status)
                    await response.read()
        if self.before is not None:
            await self.before()
        if self.format == "text":
            await stream.head(kind=b"text/plain")
            await stream.send(self.text.encode())
            await stream.end()
            return
        await stream.head()
        token = b"event: token\ndata: %b\n\n" % json.dumps({"text": self.text}).encode()
        while self.endless:  # until the connection is closed
            await stream.send(1_000 * token)
        await stream.send(token, b"event: done\ndata: {}\n\n")
        await stream.end()


@dataclass(frozen=True)
class Place:
    """A service, what is replayed on it, and where to."""

    talking: Talking
    service: Service
    plan: ReplayPlan
    configuration: str

    async def replay(
        self, on_progress: Callable[[ReplayProgress], None] = lambda _: None
    ) -> Counts:
        """Replay all."""
        return await asyncio.to_thread(replay, self.plan, on_progress)

    @property
    def replays(self) -> list[RunRecord]:
        """The runs of the replay that were written."""
        return [run for run in runs(self.plan.out / "segments") if run.role == "replay"]


@asynccontextmanager
async def place(
    folder: Path,
    records: Sequence[RunRecord],
    talking: Talking,
    *,
    stack: str = "graph",
    more: str = "",
    flow: str = "",
    **options: Any,
) -> AsyncIterator[Place]:
    """Start a service, for a replay of these captures."""
    captures = write(folder / "captures", records)
    async with serving(talking.answer) as service:
        with own_port() as port:
            talking.gateway = f"http://127.0.0.1:{port}"
            text = CONFIGURATION % {"url": service.url, "port": port, "more": more}
            text = text.replace("[flows.talk]", flow or "[flows.talk]")
            settings = parse_settings(text, "test", SPECS)
            declared = settings.flows["talk"].declared
            assert declared is not None
            yield Place(
                talking,
                service,
                ReplayPlan(
                    str(captures),
                    folder / "out",
                    sides_of(stack, stacks=settings.stacks),
                    PlayOptions(declared={"talk": declared}, **options),
                    services=ServicePlan(settings, {"KEY": KEY}, USER),
                ),
                text,
            )


async def start(here: Place, folder: Path) -> asyncio.subprocess.Process:
    """Start the command for a place."""
    config = folder / "cutover.toml"
    config.write_text(here.configuration, "utf-8")
    words = ("replay", here.plan.captures, "--stack", "graph", "-o", str(here.plan.out))
    command = [sys.executable, "-m", "cutover", *words, "--config", str(config)]
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)


async def test_it_is_called_as_a_shadow_with_the_headers_that_were_given(tmp_path: Path) -> None:
    """A captured request has no headers; a trace of its own correlates the calls as well."""
    records = [await captured(number) for number in range(MANY)]
    async with place(tmp_path, records, Talking(passes_on=("traceparent",))) as here:
        counts = await here.replay()
    assert (counts.equal, counts.different, counts.outside) == (MANY, 0, 0)
    assert counts.compared == {"legacy as recorded → graph as it is now": MANY}
    assert here.talking.statuses == [200] * MANY
    for asked in here.service.asked:
        assert asked.line.startswith("POST /talk ")
        assert asked.header("x-cutover-role") == ["shadow"]
        assert asked.header("authorization") == ["Bearer t"]
        assert asked.header("content-type") == ["application/json"]
    traces = {asked.header("traceparent")[0] for asked in here.service.asked}
    exchanges = {asked.header("x-cutover-exchange")[0] for asked in here.service.asked}
    assert len(traces) == MANY
    assert exchanges == {record.exchange for record in records}


async def test_a_call_that_is_not_on_the_tape_is_a_finding(tmp_path: Path) -> None:
    """A second one is refused; an effect that was never performed, too."""
    talking = Talking(asks=lambda message: [question(message), question("More?")])
    async with place(tmp_path, [await captured(1)], talking) as here:
        counts = await here.replay()
    assert (counts.equal, counts.different) == (0, 1)
    assert talking.statuses == [200, 422]
    [run] = here.replays
    assert [play.how for play in run.plays] == ["exact", "missed"]


async def test_calls_of_no_exchange_are_refused_and_counted(tmp_path: Path) -> None:
    """No model is called for a service that passes no headers on; its replay calls nothing."""
    async with place(tmp_path, [await captured(1)], Talking(passes_on=())) as here:
        counts = await here.replay()
    assert here.talking.statuses == [404]
    assert (counts.outside, counts.silent, counts.different) == (1, 1, 1)


@pytest.mark.usefixtures("no_event_watcher")
async def test_nothing_is_done_for_no_exchange_either(tmp_path: Path) -> None:
    """A tool server is asked for its list, which is on no tape; nothing else is done."""
    talking, shop = Talking(), Shop()
    told: list[object] = []
    server = shop.server()

    async def order() -> None:
        async with client_at(talking.gateway, authorization=f"Bearer {KEY}") as client:
            told.append([tool.name for tool in (await client.list_tools()).tools])
            told.append(await outcome(client, "order", item="tea"))
        headers = {"authorization": f"Bearer {KEY}"}
        async with (
            aiohttp.ClientSession(talking.gateway, headers=headers) as session,
            session.post("/effects", json={"effect": "order"}) as response,
        ):
            told.append(response.status)

    talking.before = order
    app = server.streamable_http_app()
    async with server.session_manager.run(), served(app) as url:
        more = 'key_env = "KEY"\neffects = true\ntool_servers = ["shop"]\n'
        more += f'[tools.mcp.shop]\nurl = "{url}/mcp"\n'
        talking.key = KEY
        async with place(tmp_path, [await captured(1)], talking, more=more) as here:
            counts = await here.replay()
    assert told == [
        ["order", "stock", "refuse", "pack", "deliver", "charge", "purge"],
        (REFUSED, "unknown_exchange"),
        404,
    ]
    assert (shop.done, counts.equal, counts.outside) == ([], 1, 2)
    with own_port() as nobody:
        more = more.replace(url, f"http://127.0.0.1:{nobody}")
        async with place(tmp_path / "away", [await captured(1)], talking, more=more) as here:
            with pytest.raises(ReplayMisused, match="start it, none of them will be called"):
                await here.replay()
            await here.service.gone.wait()  # was connected to, and sent nothing


async def test_turns_of_a_conversation_are_sent_in_their_order(tmp_path: Path) -> None:
    """One after the other, beside those of others; one behind a gap is not sent."""
    records = [
        await captured(1, "a", 1),
        await captured(2, "a", 2),
        await captured(3, "b", 1),
        await captured(4, "b", 3),
        await captured(5, "a", 3),
        await captured(6, "c", 2),
        await captured(7, "d", 1, outcome="failed"),
        await captured(8, "d", 2),
    ]
    talking = Talking()
    async with place(tmp_path, records, talking) as here:
        counts = await here.replay()
    own = [message for message in talking.said if message[-1] in "125"]
    assert own == ["question 1", "question 2", "question 5"]
    assert sorted(talking.said) == [f"question {number}" for number in (1, 2, 3, 5, 7)]
    assert counts.skipped == {NO_TURN: 3}


async def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Behind whole parts; the turns of an interrupted one may have been sent, and are not again."""
    turns = {SERVICE_EXCHANGES - 1: ("a", 1), SERVICE_EXCHANGES: ("a", 2), MANY - 1: ("a", 3)}
    records = [await captured(number, *turns.get(number, ())) for number in range(MANY)]
    written = SegmentWriter.write
    talking, patched = Talking(), pytest.MonkeyPatch()

    def interrupted(writer: SegmentWriter, part: Any, lines: Any) -> None:
        if part.number == 1:
            raise KeyboardInterrupt
        written(writer, part, lines)

    async with place(tmp_path, records, talking) as here:
        with patched.context() as context, suppress(KeyboardInterrupt):
            context.setattr(SegmentWriter, "write", interrupted)
            await asyncio.get_running_loop().run_in_executor(None, _until_interrupted, here.plan)
        assert len(talking.said) == 2 * SERVICE_EXCHANGES
        counts = await here.replay()
        assert counts.skipped == {INTERRUPTED: 1, NO_TURN: 1}
        assert counts.equal == MANY - 2
        asked = len(talking.said)
        assert asked == 2 * SERVICE_EXCHANGES + MANY - SERVICE_EXCHANGES - 2
        with pytest.raises(ReplayMisused, match="holds a whole replay"):
            await here.replay()
        assert len(talking.said) == asked


def _until_interrupted(plan: ReplayPlan) -> None:
    with suppress(KeyboardInterrupt):  # a thread's own would end up in the loop
        replay(plan)


async def test_an_interrupted_command_closes_the_gateway_and_goes_on(tmp_path: Path) -> None:
    """While the service is still answering; the same command then does the rest."""
    records = [await captured(number) for number in range(MANY)]
    opened = asyncio.Event()
    talking = Talking(before=opened.wait)
    async with place(tmp_path, records, talking) as here:
        first = await start(here, tmp_path)
        await until(lambda: len(talking.statuses) == SERVICE_EXCHANGES)
        first.send_signal(signal.SIGINT)
        _, told = await first.communicate()
        assert first.returncode == INTERRUPTED_STATUS
        assert b"the same command goes on where it stopped" in told
        opened.set()
        second = await start(here, tmp_path)
        said, told = await second.communicate()
        assert (second.returncode, b"Traceback" in told) == (0, False), told
        assert f"{MANY}  equal".encode() in said
    assert len(talking.said) == MANY + SERVICE_EXCHANGES


async def test_the_recorded_pace_is_kept(tmp_path: Path) -> None:
    """The gateway answers as slowly as the model did; a frame is not there before its text."""
    record = await captured(1)
    assert record.tape is not None
    [call] = record.tape
    late = int(LATE_S * 1_000_000)
    items = [msgspec.json.encode(Chunk(text=ANSWER, at=late)), call.items[1]]
    slow = msgspec.structs.replace(call, items=tuple(map(msgspec.Raw, items)), ended=late)
    talking = Talking()
    async with place(
        tmp_path, [msgspec.structs.replace(record, tape=(slow,))], talking, pace="recorded"
    ) as here:
        counts = await here.replay()
        [run] = here.replays
    assert counts.equal == 1
    assert run.frames[0][0] >= late


async def test_two_formats_are_compared_in_what_both_say(tmp_path: Path) -> None:
    """The new service streams plain text, and is read as that."""
    talking = Talking(format="text")
    other = '[flows.talk]\ngraph_dialect = "text"'
    async with place(tmp_path, [await captured(1)], talking, flow=other) as here:
        counts = await here.replay()
        talking.text = "Bad."
        out = here.plan.out.with_name("other")
        changed = await asyncio.to_thread(replay, replace(here.plan, out=out))
    assert (counts.equal, changed.different) == (1, 1)
    assert [run.dialect for run in here.replays] == ["text"]


async def test_one_that_hangs_is_a_timeout(tmp_path: Path) -> None:
    """After the seconds that were given; what it calls later is refused."""
    never = asyncio.Event()
    talking = Talking(before=never.wait)
    async with place(tmp_path, [await captured(1)], talking, seconds=0.2) as here:
        counts = await here.replay()
    assert counts.outcomes == {"timeout": 1}
    [run] = here.replays
    assert run.error is not None
    assert run.error.code == "replay_timeout"


async def test_one_that_never_stops_is_stopped(tmp_path: Path) -> None:
    """By the size of its answer, as a shadow: its seconds would fill the memory."""
    async with place(tmp_path, [await captured(1)], Talking(endless=True)) as here:
        counts = await here.replay()
        [run] = here.replays
    assert counts.outcomes == {"failed": 1}
    assert run.error is not None
    assert run.error.code == "runaway"


@pytest.mark.parametrize(
    ("calls", "note"),
    [
        ([], b"at [gateway] listen, with the gateway's key?"),
        ([question("before"), question("question 1")], b"was not started afresh"),
    ],
)
async def test_the_command_says_what_may_be_wrong_with_the_service(
    tmp_path: Path, calls: list[bytes], note: bytes
) -> None:
    """One that calls nothing has another address or key; one may have the conversations."""
    async with place(tmp_path, [await captured(1)], Talking(asks=lambda _: calls)) as here:
        process = await start(here, tmp_path)
        said, _ = await process.communicate()
    assert process.returncode == 1
    assert [b"[gateway] listen" in said, b"afresh" in said] == [not calls, bool(calls)]
    assert note in said


@pytest.mark.parametrize("outcome", ["completed", "refused"])
async def test_without_a_call_on_the_tape_there_is_nothing_to_play(
    tmp_path: Path, outcome: Outcome
) -> None:
    """Its own model would be called; a request that was refused needed none."""
    record = await captured(1, tape=(), outcome=outcome)
    async with place(tmp_path, [record], Talking(asks=lambda _: [])) as here:
        counts = await here.replay()
    [reason, *_] = [*counts.skipped, ""]
    assert reason.startswith("no call of it is on the tape") is (outcome == "completed")
    assert len(here.talking.said) == counts.replayed == (outcome == "refused")


async def test_what_cannot_be_replayed_is_counted_by_its_reason(tmp_path: Path) -> None:
    """Pauses, tapes of a stack in process, and tapes that are gone; an order is enough."""
    in_process, order = Tape(), Tape()
    in_process.add(MODEL_STREAM, "prompt", b"{}", 0).close("complete", 1)
    bought = order.add(EXTERNAL_RUN, "order", b"{}", 0)
    bought.append(ExternalUpdate("ordered"))
    bought.close("complete", 1)
    records = [
        await captured(1, outcome="paused"),
        await captured(2, resumes="e1"),
        await captured(3, tape=in_process.record()),
        await captured(4, tape=None),
        await captured(5, tape=order.record()),
    ]
    async with place(tmp_path, records, Talking(asks=lambda _: [])) as here:
        counts = await here.replay()
    assert {reason.partition(",")[0]: count for reason, count in counts.skipped.items()} == {
        "it waits for a human": 2,
        "its tape is of a stack in the router's process: no service makes such calls": 1,
        "no tape": 1,
    }
    assert here.talking.said == ["question 5"]


async def test_of_a_redacted_exchange_both_services_are_called(tmp_path: Path) -> None:
    """And compared with each other: none can repeat what was removed."""
    talking = Talking(text="Other.")
    async with place(tmp_path, [await captured(1, redacted=True)], talking) as here:
        counts = await here.replay()
    assert counts.compared == {"legacy as it is now → graph as it is now": 1}
    assert (counts.equal, len(talking.said)) == (1, 2)


async def test_the_old_service_is_compared_with_its_own_past(tmp_path: Path) -> None:
    """Where the new one has not run."""
    async with place(tmp_path, [await captured(1)], Talking(), stack="legacy") as here:
        counts = await here.replay()
    assert counts.compared == {"legacy as recorded → legacy as it is now": 1}
    assert counts.equal == 1


async def test_it_is_refused_where_it_could_do_harm_or_nothing(tmp_path: Path) -> None:
    """Each with what to do; nothing is sent."""
    async with place(tmp_path, [await captured(1)], Talking()) as here:
        requested, services = here.plan.sides.requested, here.plan.services
        assert requested.address is not None
        assert services is not None

        async def refusal(plan: ReplayPlan) -> str:
            with pytest.raises(ReplayMisused) as refused:
                await asyncio.to_thread(replay, plan)
            return str(refused.value)

        def at(**changes: Any) -> ReplayPlan:
            address = requested.address.model_copy(update=changes)  # type: ignore[union-attr]
            own = replace(here.plan.sides, requested=replace(requested, address=address))
            return replace(here.plan, sides=own)

        assert "shadow_safe = true" in await refusal(at(shadow_safe=False))
        gateway = services.settings.gateway.model_copy(update={"enabled": False})
        off = services.settings.model_copy(update={"gateway": gateway})
        closed = replace(here.plan, services=replace(services, settings=off))
        assert "[gateway] enabled = true" in await refusal(closed)
        with own_port() as nobody:
            away = await refusal(at(url=f"http://127.0.0.1:{nobody}/"))
        assert f"no server listens at 127.0.0.1:{nobody}" in away
        host, _, port = here.talking.gateway.removeprefix("http://").partition(":")
        taken = await asyncio.start_server(lambda *_: None, host, int(port))
        async with taken:
            assert "if the router runs, stop it" in await refusal(here.plan)
        assert here.talking.said == []
        assert (await here.replay()).equal == 1
