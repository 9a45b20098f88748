"""A stack behind an address, on real sockets: what passes, what falls back, what is dropped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from contract.records import ErrorRecord
from contract.wire.sse import SseDecoder
from tests.support.deployment import Answer as Got
from tests.support.deployment import Deployment, Setup, deployed, until
from tests.support.log_records import listening
from tests.support.patience import PATIENCE_S
from tests.support.scripted_service import (
    FRAMES,
    HELLO,
    WHOLE,
    Answer,
    Asked,
    Service,
    Stream,
    says,
    serving,
    streams,
)

pytestmark = pytest.mark.sockets

PROBLEM = b'{"code":"message_deleted","title":"Gone","status":410}'
JSON = b"content-type: application/json"


def limits(*, first_event: float = PATIENCE_S, idle: float = PATIENCE_S) -> str:
    """Configure limits; only what hangs meets a brief one."""
    return (
        f"connect_seconds = {PATIENCE_S}\n"
        f"first_event_seconds = {first_event}\n"
        f"idle_seconds = {idle}\n"
    )


@asynccontextmanager
async def house(
    folder: Path, answer: Answer, more: str = "", *, shadow: float = 0
) -> AsyncIterator[tuple[Deployment, Service]]:
    """Deploy a router whose legacy stack is a service and whose graph stack is in process."""
    async with serving(answer) as service:
        stacks = f'[stacks.legacy]\nurl = "{service.url}/chat/sse"\n{more}'
        async with deployed(folder, Setup(more=stacks, shadow=shadow)) as place:
            yield place, service


def stand_in(place: Deployment) -> None:
    """Let graph stand in for legacy."""
    text = place.watched.path.read_text("utf-8")
    place.edit(text.replace("[flows.chat]", "[flows.chat]\nfallback_to_graph = true"))


@pytest.mark.parametrize("size", [1, 7, 40, len(WHOLE)])
async def test_frames_pass_as_the_bytes_they_are(tmp_path: Path, size: int) -> None:
    """However they are cut; what is captured are whole frames."""
    pieces = [WHOLE[at : at + size] for at in range(0, len(WHOLE), size)]
    async with house(tmp_path, streams(*pieces)) as (place, _):
        answer = await place.ask(HELLO)
        assert answer.body == WHOLE
        assert answer.headers["x-cutover-served"].startswith("legacy ")
        run = await place.run()
        assert [text for _, text in run.frames] == [
            one.decode("utf-8", "replace") for one in FRAMES
        ]
        assert (run.outcome, run.stack, run.tape) == ("completed", "legacy", ())


async def test_a_request_is_asked_as_it_came(tmp_path: Path) -> None:
    """Body, query, credentials and trace; nothing of the connection, and who asks for what."""
    body = b'{ "message_id":"m", "content":"Hello", "unknown": 1 }'
    headers = {"traceparent": "00-a-b-01", "cookie": "a=1", "x-cutover-role": "shadow"}
    async with house(tmp_path, streams(WHOLE)) as (place, service):
        async with place.session.post(
            f"{place.url}/chat/sse?tenant=a%20b&x=1", data=body, headers=headers
        ) as response:
            await response.read()
        (asked,) = service.asked
        assert asked.line == "POST /chat/sse?tenant=a%20b&x=1 HTTP/1.1"
        assert asked.body == body
        assert asked.header("host") == [service.url.removeprefix("http://")]
        assert asked.header("traceparent") == ["00-a-b-01"]
        assert asked.header("cookie") == ["a=1"]
        assert asked.header("accept-encoding") == ["identity"]
        assert asked.header("x-cutover-role") == ["serving"]
        assert asked.header("x-cutover-exchange") == [response.headers["x-cutover-exchange"]]
        assert asked.header("x-forwarded-for") == ["127.0.0.1"]
        assert asked.header("x-forwarded-host") == [place.url.removeprefix("http://")]
        assert not asked.header("connection")


async def test_an_answers_headers_reach_the_client(tmp_path: Path) -> None:
    """Its type and its cookies, not its connection's."""

    async def answer(_: Asked, stream: Stream) -> None:
        await stream.head(b"set-cookie: a=1", b"set-cookie: b=2", b"x-request-id: r", b"server: x")
        await stream.send(WHOLE)
        await stream.end()

    async with house(tmp_path, answer) as (place, _), place.post(HELLO) as response:
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers.getall("set-cookie") == ["a=1", "b=2"]
        assert response.headers["x-request-id"] == "r"
        assert response.headers["x-accel-buffering"] == "no"
        assert "server" not in response.headers
        await response.read()


@pytest.mark.parametrize("status", [410, 429])
@pytest.mark.parametrize("kind", ["application/json", "application/problem+json"])
async def test_a_refusal_passes_and_never_falls_back(
    tmp_path: Path, kind: str, status: int
) -> None:
    """Status, body and headers are the stack's own."""
    headers = (b"content-type: " + kind.encode(), b"retry-after: 7")
    async with house(tmp_path, says(status, PROBLEM, *headers)) as (place, _):
        stand_in(place)
        answer = await place.ask(HELLO)
        assert (answer.status, answer.body) == (status, PROBLEM)
        assert (answer.headers["content-type"], answer.headers["retry-after"]) == (kind, "7")
        run = await place.run()
        assert (run.outcome, run.error and run.error.code) == ("refused", "message_deleted")
        assert run.error is not None
        assert (run.error.status, run.error.detail) == (status, PROBLEM.decode())


async def test_the_sentence_of_a_plain_problem_is_on_record(tmp_path: Path) -> None:
    """As that of a stack in this process is, with which it is compared."""
    problem = b'{"type":"about:blank","status":409,"code":"busy","detail":"Another turn runs."}'
    said = says(409, problem, b"content-type: application/problem+json")
    async with house(tmp_path, said) as (place, _):
        await place.ask(HELLO)
        run = await place.run()
        assert run.error == ErrorRecord("busy", status=409, detail="Another turn runs.")


@pytest.mark.parametrize(("status", "code"), [(429, "too_many_requests"), (499, "status_499")])
async def test_a_page_is_no_answer_to_a_client_of_an_api(
    tmp_path: Path, status: int, code: str
) -> None:
    """The status is told in our own words, with the time to wait; the log says what came."""
    page = says(status, b"<html>", b"content-type: text/html", b"retry-after: 7")
    with listening() as lines:
        async with house(tmp_path, page) as (place, _):
            answer = await place.ask(HELLO)
            assert (answer.status, answer.problem["code"]) == (status, code)
            assert answer.headers["retry-after"] == "7"
    [line] = lines.failures
    assert (line["outcome"], line["status"], line["why"]) == (
        "refused",
        status,
        "POST /chat/sse answers text/html",
    )


async def hang(_: Asked, stream: Stream) -> None:
    """Say nothing, ever."""
    await stream.hang()


async def comments(_: Asked, stream: Stream) -> None:
    """Show signs of life, then drop the connection."""
    await stream.head()
    await stream.send(b": one\n\n", b"retry: 10\n\n")
    stream.reset()


async def cut(_: Asked, stream: Stream) -> None:
    """Drop the connection in the middle of the first frame."""
    await stream.head()
    await stream.send(FRAMES[0][:-1])
    stream.reset()


def raw(*pieces: bytes) -> Answer:
    """Write bytes that need be no HTTP, then close: what was written is to arrive."""

    async def answer(_: Asked, stream: Stream) -> None:
        for piece in pieces:
            await stream.raw(piece)
        stream.writer.close()

    return answer


def chunk(data: bytes) -> bytes:
    """Encode a piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


async def packed(_: Asked, stream: Stream) -> None:
    """Compress, though the request does not accept it."""
    await stream.head(b"content-encoding: gzip")
    await stream.send(b"\x1f\x8b")
    await stream.end()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
HALF = FRAMES[0][:9]
LOST = "failed", "connection_lost"
FAULTS: dict[str, tuple[Answer, str, str]] = {
    "500": (says(500, PROBLEM, JSON), "failed", "bad_status"),
    "503": (says(503), "failed", "bad_status"),
    "503 for a while": (says(503, PROBLEM, JSON, b"retry-after: 7"), "failed", "bad_status"),
    "a redirection": (says(302, b"", b"location: /else"), "failed", "bad_status"),
    "no content": (says(204), "truncated", "truncated"),
    "an empty stream": (streams(), "truncated", "truncated"),
    "a page": (says(200, b"<html>\n\n</html>"), "truncated", "truncated"),
    "a page that says so": (streams(WHOLE, kind=b"text/html"), "failed", "content_type"),
    "silence": (hang, "timeout", "first_event_timeout"),
    "signs of life alone": (comments, *LOST),
    "half a frame": (cut, *LOST),
    "half a frame and an end": (streams(FRAMES[0][:-1]), "truncated", "truncated"),
    "compressed": (packed, "failed", "content_encoding"),
    "no answer": (raw(), *LOST),
    "no HTTP": (raw(b"SSH-2.0-OpenSSH_9.6\r\n"), *LOST),
    "half a head": (raw(HEAD), *LOST),
    "half a frame, then nothing": (raw(CHUNKED + chunk(HALF)), *LOST),
    "a chunk that is none": (raw(CHUNKED + b"zz\r\nnothing\r\n"), *LOST),
    "less than it promised": (raw(HEAD + b"content-length: 900\r\n\r\n" + HALF), *LOST),
}


async def test_a_stream_may_call_itself_what_the_configuration_says(tmp_path: Path) -> None:
    """As frameworks do whose default is a page."""
    named = 'media_types = ["text/html"]'
    async with house(tmp_path, streams(WHOLE, kind=b"Text/HTML; charset=utf-8"), named) as (
        place,
        _,
    ):
        assert (await place.ask(HELLO)).body == WHOLE


async def faulty(asked: Asked, stream: Stream) -> None:
    """Answer with the fault a request names."""
    await FAULTS[json.loads(asked.body)["fault"]][0](asked, stream)


@pytest.mark.parametrize("silent", [False, True])
async def test_what_fails_before_the_first_frame_falls_back(
    tmp_path: Path, *, silent: bool
) -> None:
    """The client sees one whole stream of the other stack, or without one a problem of ours.

    Each failure is one line of the log.
    """
    faults = [fault for fault in FAULTS if (fault == "silence") == silent]
    more = f"{limits(first_event=0.05 if silent else PATIENCE_S)}[breaker]\nenabled = false\n"

    async def ask(place: Deployment, fault: str, *, alone: bool) -> tuple[str, bool, Got]:
        body = {**HELLO, "message_id": f"{fault} {alone}", "fault": fault}
        return fault, alone, await place.ask(body)

    with listening() as lines:
        async with house(tmp_path, faulty, more) as (place, service):
            answers = await asyncio.gather(*[ask(place, fault, alone=True) for fault in faults])
            stand_in(place)
            answers += await asyncio.gather(*[ask(place, fault, alone=False) for fault in faults])
            runs = await place.lines()
            assert len(service.asked) == 2 * len(faults)
    assert len(lines.failures) == len(answers)
    for fault, alone, got in answers:
        _, outcome, code = FAULTS[fault]
        exchange = got.headers["x-cutover-exchange"]
        served, *failed = sorted(
            (run for run in runs if run.exchange == exchange), key=lambda run: run.role
        )
        if alone:
            assert (got.status, got.problem["code"]) == (500, "internal"), fault
            assert set(got.problem) == {"title", "status", "code"}, fault
            failed = [served]
        else:
            assert got.steps == ["ACCEPT", "START_REPLY", "SEND", "SUCCESS", "END"], fault
            assert got.headers["x-cutover-served"].startswith("graph "), fault
            assert (served.role, served.outcome, served.reason) == ("fallback", "completed", code)
        [run] = failed
        assert (run.role, run.outcome) == ("serving", outcome), fault
        assert (run.error and run.error.code) == code, fault
        [line] = (one for one in lines.failures if one["exchange"] == exchange)
        then = "status 500" if alone else "fallback by graph"
        assert (line["flow"], line["stack"], line["role"]) == ("chat", "legacy", "serving"), fault
        assert (line["outcome"], line["reason"], line["then"]) == (outcome, code, then), fault
        assert line["why"], fault


async def test_a_service_that_is_down_falls_back_and_without_another_is_500(
    tmp_path: Path,
) -> None:
    """Nothing listens there, and the log says once at which address."""
    with listening() as lines:
        async with house(tmp_path, streams(WHOLE)) as (place, service):
            service.close()
            answer = await place.ask(HELLO)
            assert (answer.status, answer.problem["code"]) == (500, "internal")
            stand_in(place)
            assert (await place.ask(HELLO)).steps[-1] == "END"
            assert {run.error and run.error.code for run in await place.lines()} == {
                "unreachable",
                None,
            }
    assert [line["reason"] for line in lines.failures] == ["unreachable"] * 2
    for line in lines.failures:
        assert line["why"].startswith("cannot connect to '127.0.0.1:")


@pytest.mark.parametrize("how", ["ends", "resets", "hangs", "breaks its promise"])
async def test_what_fails_later_ends_in_the_flows_failure_frames(tmp_path: Path, how: str) -> None:
    """No second prologue, no silent cut: no stack can take a remote stream over."""

    async def answer(asked: Asked, stream: Stream) -> None:
        sent = json.loads(asked.body)["sent"]
        if how == "breaks its promise":
            promise = HEAD + b"content-length: 900\r\n\r\n"
            await raw(promise + b"".join(FRAMES[:sent]))(asked, stream)
            return
        await stream.head()
        await stream.send(*FRAMES[:sent])
        if how == "ends":
            await stream.end()
        elif how == "resets":
            await stream.send(FRAMES[sent][:5])
            stream.reset()
        else:
            await stream.hang()

    brief = limits(idle=0.05 if how == "hangs" else PATIENCE_S)
    with listening() as lines:
        async with house(tmp_path, answer, brief) as (place, _):
            stand_in(place)
            asking = [
                place.ask({**HELLO, "message_id": f"m{sent}", "sent": sent}) for sent in range(1, 6)
            ]
            answers = await asyncio.gather(*asking)
            ends = {(run.outcome, run.served) for run in await place.lines()}
    for sent, got in enumerate(answers, 1):
        told = b"".join(FRAMES[:sent])
        assert got.body.startswith(told)
        rest = [event.text for event in SseDecoder().feed(got.body.removeprefix(told))]
        failed, end = '{"step":"FAILED","code":"internal"}', '{"step":"END"}'
        assert rest == ([end] if sent == 5 else [failed, end])
    outcome = "timeout" if how == "hangs" else "truncated"
    assert ends == {(outcome, "legacy")}
    logged = {line["exchange"]: (line["outcome"], line["then"]) for line in lines.failures}
    assert len(lines.failures) == len(answers)
    assert logged == {
        got.headers["x-cutover-exchange"]: (outcome, "failure frames") for got in answers
    }


async def test_a_failure_the_stack_reports_itself_is_passed_on(tmp_path: Path) -> None:
    """The stack has reported it: no other takes over."""
    told = b'data: {"step":"ACCEPT"}\n\ndata: {"step":"FAILED"}\n\ndata: {"step":"END"}\n\n'
    async with house(tmp_path, streams(told)) as (place, _):
        stand_in(place)
        assert (await place.ask(HELLO)).body == told
        run = await place.run()
        assert (run.outcome, run.error and run.error.code) == ("failed", "reported")


async def test_a_last_frame_may_lack_its_blank_line(tmp_path: Path) -> None:
    """As it arrived; what follows a terminal frame is dropped."""
    async with house(tmp_path, streams(WHOLE[:-2])) as (place, _):
        assert (await place.ask(HELLO)).body == WHOLE[:-2]
    async with house(tmp_path, streams(WHOLE + FRAMES[3], b": more\n\n")) as (place, _):
        assert (await place.ask(HELLO)).body == WHOLE
        assert {run.outcome for run in await place.lines()} == {"completed"}


async def test_the_connection_is_dropped_when_the_client_leaves(tmp_path: Path) -> None:
    """Within 100 ms, before the head and in the middle of the stream."""

    async def answer(_: Asked, stream: Stream) -> None:
        await stream.head()
        await stream.send(*FRAMES[:2])
        await stream.hang()

    for script, reads in ((hang, False), (answer, True)):
        async with house(tmp_path, script) as (place, service):
            posting = asyncio.ensure_future(place.post(HELLO).__aenter__())
            await service.once.wait()
            if reads:
                response = await posting
                await response.content.readuntil(b"\n\n")
                response.close()
            posting.cancel()
            async with asyncio.timeout(PATIENCE_S):
                await service.gone.wait()
            assert (await place.lines())[-1].outcome == "cancelled"


async def test_connections_are_kept_and_used_again(tmp_path: Path) -> None:
    """One after the other; a refusal and a failure too leave theirs usable."""
    async with house(tmp_path, streams(WHOLE)) as (place, service):
        for answer in (streams(WHOLE), says(404, b"{}", b"content-type: application/json")):
            service.answer = answer
            for _ in range(3):
                await place.ask(HELLO)
        assert (len(service.asked), service.connections) == (6, 1)


async def test_a_remote_stack_stands_in_and_is_told_so(tmp_path: Path) -> None:
    """Before the first frame the other stack can."""
    async with serving(streams(WHOLE)) as service, serving(streams(WHOLE)) as down:
        down.close()
        stacks = f'[stacks]\ngraph = "{service.url}/v1/"\nlegacy = "{down.url}"'
        async with deployed(tmp_path, Setup(more=stacks)) as place:
            stand_in(place)
            assert (await place.ask(HELLO)).body == WHOLE
            (asked,) = service.asked
            assert asked.line == "POST /v1/chat/sse HTTP/1.1"
            assert asked.header("x-cutover-role") == ["fallback"]


async def test_a_further_path_of_a_flow_is_asked_there(tmp_path: Path) -> None:
    """Another body is meant for another path."""
    frames = b'event: text\ndata: {"content":"a lamp"}\n\nevent: done\ndata: {}\n\n'
    body = b'{"session_id":"s","image":"data:image/png;base64,aGk=","action":"analyze_only"}'
    async with serving(streams(frames)) as service:
        stacks = f'[stacks]\nlegacy = "{service.url}/"\n'
        async with deployed(tmp_path, Setup(more=stacks)) as place:
            async with place.session.post(f"{place.url}/chat/image", data=body) as response:
                assert await response.read() == frames
            (asked,) = service.asked
            assert (asked.line, asked.body) == ("POST /chat/image HTTP/1.1", body)


BODY = FRAMES[0] + b'data: {"step":"SE\n\n' + b"\xff\xfe\x00\n\n" + b"".join(FRAMES[1:])
PASSED: dict[str, tuple[Answer, bytes]] = {
    "garbage between frames": (streams(BODY), BODY),
    "of known length": (raw(HEAD + b"content-length: %d\r\n\r\n" % len(WHOLE) + WHOLE), WHOLE),
    "said to be not compressed": (
        raw(CHUNKED.replace(b"\r\n\r\n", b"\r\ncontent-encoding: Identity\r\n\r\n") + chunk(WHOLE)),
        WHOLE,
    ),
}


@pytest.mark.parametrize("stream", PASSED)
async def test_what_is_odd_passes_all_the_same(tmp_path: Path, stream: str) -> None:
    """Frames are not parsed on their way: what is none of the flow's is the client's to skip."""
    answer, body = PASSED[stream]
    async with house(tmp_path, answer) as (place, _):
        assert (await place.ask(HELLO)).body == body
        assert (await place.run()).outcome == "completed"


async def test_each_frame_is_there_before_the_next_is_said(tmp_path: Path) -> None:
    """Byte for byte, and on record one by one."""
    goes_on = asyncio.Event()

    async def answer(_: Asked, stream: Stream) -> None:
        await stream.head()
        for frame in FRAMES:
            await stream.send(frame)
            await goes_on.wait()
            goes_on.clear()
        await stream.end()

    async with house(tmp_path, answer) as (place, _):
        async with place.post(HELLO) as response:
            for frame in FRAMES:
                assert await response.content.readexactly(len(frame)) == frame
                goes_on.set()
        run = await place.run()
    assert "".join(text for _, text in run.frames) == WHOLE.decode("utf-8", "replace")
    assert len({at for at, _ in run.frames}) == len(FRAMES)


async def test_a_stream_that_has_ended_leaves_no_task_behind(tmp_path: Path) -> None:
    """Nothing is left to wait for: its exchange is settled and written down without any."""
    made: list[asyncio.Task[object]] = []

    def noted(loop: asyncio.AbstractEventLoop, made_of: Any, /, **more: Any) -> Any:
        made.append(asyncio.Task(made_of, loop=loop, **more))
        return made[-1]

    async with house(tmp_path, streams(WHOLE)) as (place, _):
        asyncio.get_running_loop().set_task_factory(noted)
        assert (await place.ask(HELLO)).body == WHOLE
        await place.run()
        names = [task.get_name().partition(" ")[0] for task in made]
    assert "serving" in names
    assert not {"finish", "close"} & set(names)


@pytest.mark.slow
async def test_what_a_client_does_not_take_waits_and_the_stack_with_it(tmp_path: Path) -> None:
    """Nothing is lost and nothing overtakes."""
    frames = [
        b'data: {"step":"SEND","content":"%d' % number + b"a" * 60_000 + b'"}\n\n'
        for number in range(200)
    ]
    sent = 0

    async def answer(_: Asked, stream: Stream) -> None:
        nonlocal sent
        await stream.head()
        for frame in [FRAMES[0], *frames, FRAMES[-1]]:
            await stream.send(frame)
            sent += 1
        await stream.end()

    async with house(tmp_path, answer) as (place, _), place.post(HELLO) as response:
        runs = place.services.router.runs(response.headers["x-cutover-exchange"])
        assert runs is not None
        await until(lambda: runs[-1].backpressure.waiting)
        assert sent < len(frames)
        assert await response.read() == FRAMES[0] + b"".join(frames) + FRAMES[-1]
