"""`cutover init`: what it shows before it sends, what it recognises, and what it writes."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from typer.testing import CliRunner

from contract.flows import SPECS
from cutover.application import application
from cutover.cli import app
from cutover.server.serve import server
from router.config.loader import load_settings
from router.config.watcher import SettingsWatcher
from tests.support.deployment import listening, tasks, until
from tests.support.recorded_answers import TEXT, WORDS
from tests.support.recorded_bodies import TOLD, Story, line, sse
from tests.support.scripted_service import (
    EVENTS,
    LINES,
    Answer,
    Asked,
    Service,
    Stream,
    says,
    serving,
    streams,
)

pytestmark = pytest.mark.sockets

BODY = {"conversation_id": "c1", "message": "Which plan includes exports?"}
SECRET = "s3cret-0123"
OWN = b"".join([*(sse({"text": word}, "token") for word in WORDS), sse({}, "done")])
OPENAI = TOLD["openai"](Story())


@asynccontextmanager
async def both(old: Answer, new: Answer) -> AsyncIterator[tuple[Service, Service]]:
    """Start an old and a new service."""
    async with serving(old) as one, serving(new) as other:
        yield one, other


async def init(
    folder: Path, *arguments: str, typed: str | None = None, body: Any = BODY
) -> tuple[int, str]:
    """Run the command in a folder; returns its status, and what it printed on one line."""
    command = ["init", *arguments, "--config", str(folder / "cutover.toml")]
    command += ["--body", json.dumps(body)] if body is not None else []
    result = await asyncio.to_thread(CliRunner().invoke, app, command, input=typed)
    return result.exit_code, " ".join(result.output.split())


async def test_nothing_is_sent_before_it_is_confirmed(tmp_path: Path) -> None:
    """The request is shown, without the values of headers; no is the answer by default."""
    async with both(streams(OWN), streams(OWN)) as (old, new):
        given = (old.url, new.url, "--path", "/api/assistant", "-H", f"Authorization: {SECRET}")
        for typed in ("n\n", "", None):
            status, said = await init(tmp_path, *given, typed=typed)
            assert status == 1
            assert f"POST {old.url}/api/assistant the old service, legacy" in said
            assert f"POST {new.url}/api/assistant the new service, graph" in said
            assert "authorization: (not shown)" in said
            assert '{"conversation_id": "c1"' in said
            assert said.endswith("nothing was sent; --yes sends it")
            assert SECRET not in said
        assert old.asked == new.asked == []
        status, said = await init(tmp_path, *given, typed="y\n")
        assert (status, len(old.asked), len(new.asked)) == (0, 1, 1), said
    written = (tmp_path / "cutover.toml").read_text("utf-8")
    assert SECRET not in said + written
    assert "-H 'authorization: …'" in said
    for asked in (*old.asked, *new.asked):
        assert asked.header("authorization") == [SECRET]
        assert asked.header("x-cutover-role") == ["shadow"]


async def test_the_request_is_asked_for_or_read_from_a_file(tmp_path: Path) -> None:
    """As the option says, or at the prompt; without either the command is refused."""
    (tmp_path / "body.json").write_text(json.dumps(BODY, indent=1), "utf-8")
    path = ("--path", "/api/assistant")
    async with both(streams(OWN), streams(OWN)) as (old, new):
        file = str(tmp_path / "body.json")
        prompt = await init(tmp_path, old.url, new.url, *path, typed=f"{file}\ny\n", body=None)
        option = ("--body", file, "--yes", "--force")
        named = await init(tmp_path, old.url, new.url, *path, *option, body=None)
        assert [prompt[0], named[0]] == [0, 0], prompt
        assert f"-d @{file}" in named[1]
        status, said = await init(tmp_path, old.url, new.url, *path, "--force", typed="", body=None)
        assert (status, "which request? --body FILE" in said) == (2, True), said
        assert [json.loads(one.body) for one in (*old.asked, *new.asked)] == [BODY] * 4


async def test_what_is_written_serves_and_mirrors(tmp_path: Path) -> None:
    """Two services with paths of their own and one unknown format, in front of one router."""
    async with both(streams(OWN), streams(OWN)) as (old, new):
        status, said = await init(
            tmp_path,
            old.url,
            f"{new.url}/v2/answer",
            "--path",
            "/api/chat",
            "--shadow-safe",
            "--yes",
        )
        assert status == 0, said
        assert "the old service, legacy: a format of its own" in said
        assert f"text at token: text: {len(WORDS)} pieces" in said
        assert "one format: what the one sends, clients of the other can read" in said
        assert "flow api-chat at /api/chat" in said
        assert "session_id is conversation_id" in said
        watched = SettingsWatcher(tmp_path / "cutover.toml", SPECS)
        text = watched.path.read_text("utf-8") + f'\n[captures]\npath = "{tmp_path}/captures"\n'
        watched.path.write_text(text + '[stores]\nhistory = ""\npins = "process"\n', "utf-8")
        async with (
            application(SettingsWatcher(watched.path, SPECS), {}) as built,
            listening(server(built.app, built.services.router, 1)) as url,
            aiohttp.ClientSession() as session,
        ):
            async with session.post(f"{url}/api/chat", json=BODY) as response:
                assert (response.status, await response.read()) == (200, OWN)
            ledger = built.services.router.ledger
            await until(lambda: not ledger.open and not tasks("close"))
            (counted,) = ledger.counts
            assert (counted.flow, counted.state, counted.reason) == (
                "api-chat",
                "compared",
                "equal",
            )
    assert [asked.line for asked in new.asked] == ["POST /v2/answer HTTP/1.1"] * 2
    assert [asked.header("x-cutover-role") for asked in old.asked] == [["shadow"], ["serving"]]


async def test_each_step_is_named_with_what_it_gives_and_takes(tmp_path: Path) -> None:
    """And the next three commands, which can be pasted."""
    async with both(streams(OPENAI), streams(OPENAI)) as (old, new):
        _, said = await init(tmp_path, f"{old.url}/v1/chat", new.url, "--yes")
    for words in (
        "mirror yes graph is called as well, with its own model takes stacks.graph.shadow_safe",
        "gateway yes graph is called as well; equal model calls of both",
        "failover yes legacy answers, before the first event takes flows.v1-chat.enable_langgraph",
        "takeover yes legacy continues the text, with the model's answers to graph by the gateway",
        "stacks.legacy.resumable = true",
        "nothing is mirrored yet, so diff has nothing to compare: run this with --shadow-safe",
    ):
        assert words in said, said
    commands = said.partition(" next ")[2]
    assert commands.startswith("cutover serve --config ")
    assert "cutover diff captures -o report --config " in commands
    curl = shlex.split(commands.partition("curl ")[2].partition(" cutover diff")[0])
    assert curl[:2] == ["-N", "http://127.0.0.1:8080/v1/chat"]
    assert json.loads(curl[curl.index("-d") + 1]) == BODY


async def test_a_file_that_is_there_is_not_replaced_unless_asked(tmp_path: Path) -> None:
    """It is refused before anything is sent."""
    (tmp_path / "cutover.toml").write_text("# mine\n", "utf-8")
    async with both(streams(OWN), streams(OWN)) as (old, new):
        given = (f"{old.url}/api/a", new.url, "--yes")
        status, said = await init(tmp_path, *given)
        assert (status, "--force replaces it" in said, old.asked) == (2, True, [])
        assert (tmp_path / "cutover.toml").read_text("utf-8") == "# mine\n"
        assert (await init(tmp_path, *given, "--force"))[0] == 0
    assert "# mine" not in (tmp_path / "cutover.toml").read_text("utf-8")


@pytest.mark.parametrize(("new", "name"), [(TOLD["ndjson"](Story()), "ndjson"), (OWN, "")])
async def test_two_formats_are_mirrored_and_neither_stands_in_for_the_other(
    tmp_path: Path, new: bytes, name: str
) -> None:
    """What both can say is compared; what a client would read is not translated."""
    kind = LINES if name else EVENTS
    async with both(streams(OPENAI), streams(new, kind=kind)) as (one, other):
        status, said = await init(tmp_path, f"{one.url}/a", other.url, "--yes", "--shadow-safe")
    assert status == 0, said
    for words in (
        f"two formats: openai (old) and {name or 'a format of its own'} (new). Their answers are",
        "compared in what both can say: text,",
        "mirror yes graph is called as well, with its own model; two formats",
        "failover no clients read another format than graph streams",
        "takeover no clients read another format than graph streams",
        "takes a graph that streams as legacy does, and no flows.a.graph_dialect",
    ):
        assert words in said, said
    flow = load_settings(tmp_path / "cutover.toml", SPECS).flows["a"]
    assert flow.stage == "shadow"
    assert flow.declared is not None
    assert flow.declared.graph_dialect is not None
    assert flow.declared.graph_dialect.name == (name or "flows.a.graph_dialect")


async def hung(_: Asked, stream: Stream) -> None:
    """Begin a stream, and never end it."""
    await stream.head()
    await stream.send(sse({"type": "delta", "text": "one "}), sse({"type": "delta", "text": "two"}))
    await stream.hang()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (says(404, b'{"detail":"Not Found"}'), ["404: it has nothing at this path", "Not Found"]),
        (says(401), ["401: it wants credentials", '--header "authorization: Bearer $TOKEN"']),
        (
            says(422, b'{"detail":[{"loc":["body","question"],"msg":"Field required"}]}'),
            ["does not take this body", "it says: body.question: Field required"],
        ),
        (says(405, b"", b"allow: GET"), ["405: it takes no POST there, only GET"]),
        (says(302, b"", b"location: /login?next=x"), ["redirects to /login give that address"]),
        (says(200, b"<html>", b"content-type: text/html"), ["a page in HTML"]),
        (
            says(200, b'{"answer":"x"}', b"content-type: application/json"),
            ["no stream: one JSON document", '"stream": true'],
        ),
        (says(200, b"x", b"content-encoding: br"), ["a compressed body (br)"]),
    ],
)
async def test_what_keeps_one_service_from_being_recognised_is_said(
    tmp_path: Path, answer: Answer, words: list[str]
) -> None:
    """The other one is asked, too, so that both are known at once; nothing is written."""
    async with both(answer, streams(OWN)) as (old, new):
        status, said = await init(tmp_path, f"{old.url}/api/a", new.url, "--yes")
    assert status == 1
    assert len(new.asked) == 1
    for one in (*words, "the new service, graph: a format of its own", "nothing was written"):
        assert one in said, said
    assert not (tmp_path / "cutover.toml").exists()


async def test_a_service_that_is_not_there_is_said_to_be_away(
    tmp_path: Path, unused_port: int
) -> None:
    """With what to look at."""
    async with serving(streams(OWN)) as new:
        place = f"http://127.0.0.1:{unused_port}/api/a"
        status, said = await init(tmp_path, place, new.url, "--yes")
    assert status == 1
    assert f"no answer: no server listens at 127.0.0.1:{unused_port} is the service started" in said


async def test_a_stream_without_end_is_recognised_by_what_came(tmp_path: Path) -> None:
    """It is read for as long as it may take."""
    async with both(hung, hung) as (old, new):
        status, said = await init(tmp_path, f"{old.url}/a", new.url, "--yes", "--seconds", "1")
    assert status == 0, said
    assert "the answer had not ended: what ends a stream is not known" in said
    assert "the rest was not read: --seconds allows more" in said


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("http://old:1", "http://new:2"), "which path do clients send requests to?"),
        (("old:1/a", "http://new:2"), "'old:1/a' is no address"),
        (("http://u:s3cret-0123@old:1/a", "http://new:2"), "a password may not stand in the file"),
        (
            ("http://old:1/a", "http://new:2", "--path", "/readyz"),
            "the router itself answers there",
        ),
        (("http://old:1/a", "http://new:2", "--name", "chat"), "flow 'chat' is built in"),
        (("http://old:1/a", "http://new:2", "-H", "s3cret-0123"), "must be 'name: value'"),
    ],
)
async def test_what_cannot_be_asked_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], why: str
) -> None:
    """In the words of the configuration; no secret is shown."""
    status, said = await init(tmp_path, *arguments, "--yes")
    assert (status, why in said) == (2, True), said
    assert SECRET not in said


@pytest.mark.parametrize("body", ["{", "[1]", "nowhere.json"])
async def test_a_body_that_is_no_request_is_refused(tmp_path: Path, body: str) -> None:
    """No JSON object, or no file."""
    given = ("http://old:1/a", "http://new:2", "--yes", "--body", body)
    status, said = await init(tmp_path, *given, body=None)
    assert (status, "error:" in said) == (2, True), said


async def test_a_long_request_is_not_written_into_the_file(tmp_path: Path) -> None:
    """A picture belongs into no configuration."""
    async with both(streams(OWN), streams(OWN)) as (old, new):
        body = {**BODY, "picture": "x" * 5_000}
        status, said = await init(tmp_path, f"{old.url}/a", new.url, "--yes", body=body)
    assert status == 0
    assert "example" not in (tmp_path / "cutover.toml").read_text("utf-8")
    assert "example is the request above" not in said


async def test_lines_and_plain_text_are_recognised_over_the_wire(tmp_path: Path) -> None:
    """As Ollama sends them, and as a service that writes its answer as it is."""
    ollama = b"".join(
        [
            *(line({"message": {"content": word}, "done": False}) for word in WORDS),
            line({"message": {"content": ""}, "done": True}),
        ]
    )
    async with both(streams(ollama, kind=LINES), streams(ollama, kind=LINES)) as (old, new):
        assert "legacy: ndjson" in (await init(tmp_path, f"{old.url}/a", new.url, "--yes"))[1]
    words = streams(*(word.encode() for word in WORDS), kind=b"text/plain")
    async with both(words, words) as (old, new):
        said = (await init(tmp_path, f"{old.url}/a", new.url, "--yes", "--force"))[1]
    assert "the old service, legacy: text text/plain" in said
    assert f"{len(TEXT)} characters" in said
