"""`cutover init`: what it finds out of two services, and what it writes."""

import asyncio
import json
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from cutover.errors import CutoverError, Unusable
from harness import root
from harness.cli import cli
from harness.config import decode, load, parse
from harness.live import LiveSettings
from harness.services import dialect, flow_of, open_services
from harness.setup.init import Asking, Discovery, look, write
from harness.setup.trial import Example, Trial
from rules.flows import FLOWS
from tests.support.origin import Asked, Origin, Reply
from tests.support.stage import staged

pytestmark = pytest.mark.sockets

RECORDINGS = Path(__file__).parents[1] / "cutover" / "wire" / "recordings"
SSE, LINES = "text/event-stream", "application/x-ndjson"


@dataclass(frozen=True)
class Stranger:
    """A service that takes one request: at a path, with a key in its body."""

    path: str
    key: str
    stream: bytes
    media: str = SSE
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()

    def reply(self, asked: Asked) -> Reply:
        """Return what it answers."""
        body = asked.body.decode()
        if not re.fullmatch(self.path, asked.target) or asked.method != self.method:
            here = re.fullmatch(self.path, asked.target.partition("?")[0])
            return Reply([b"{}"], status=405 if here else 404, headers=(("allow", self.method),))
        if '"fails"' in body:
            return Reply([b"{}"], status=500)
        if self.key and f'"{self.key}"' not in body and self.key not in body.split("="):
            return Reply([b"{}"], status=422)
        return Reply([self.stream], self.media, headers=self.headers)


@dataclass
class Answering(Origin):
    """Serves strangers, each at a path of its own."""

    strangers: Sequence[Stranger] = field(kw_only=True)

    async def _read(self, reader: asyncio.StreamReader) -> Asked:
        asked = await super()._read(reader)
        self.script(min((one.reply(asked) for one in self.strangers), key=lambda one: one.status))
        return asked


def recorded(name: str) -> bytes:
    """Return a recorded stream."""
    return (RECORDINGS / name).read_bytes()


async def found(
    *strangers: Stranger, new: Stranger | None = None, **asking: Any
) -> tuple[Discovery, str]:
    """Return what is found of a service, and of a new one if it is another, and what was told."""
    told: list[str] = []
    async with (
        Answering(strangers=strangers) as old,
        Answering(strangers=[new] if new else strangers) as other,
    ):
        given = Asking(**asking)
        result = await look(old.url, other.url, given, told.append, lambda likely: likely)
    return result, "\n".join(told)


ROWS = tomllib.loads(Path(__file__).with_name("services.toml").read_text("utf-8"))
KNOWN: Mapping[str, tuple[str, str, str, str, str]] = ROWS["known"]
MEDIA = {"sse": SSE, "ndjson": LINES, "txt": "text/plain"}


def known(name: str) -> Stranger:
    """Return a service that speaks a well-known API."""
    path, key, recording, *_ = KNOWN[name]
    return Stranger(path, key, recorded(recording), MEDIA[recording.rpartition(".")[2]])


@pytest.mark.parametrize("name", KNOWN)
async def test_a_well_known_api_is_found_without_being_named(name: str, tmp_path: Path) -> None:
    """Path, dialect and conversation; what is written is valid at every share up to 100 %."""
    path, *_, form, conversation = KNOWN[name]
    result, told = await found(known(name))
    assert (result.dialect, result.keys.get("conversation", "")) == (form, conversation)
    assert "whole" in told
    assert conversation or "may go to different services" in told
    out = tmp_path / "cutover.toml"
    commands = write(result, out, lambda _: None)
    settings = load(out)
    assert list(settings.flows) == ["main"]
    table = settings.flows["main"]
    example = Example.of(table.example)
    assert re.fullmatch(path, example.target)
    assert json.loads(example.body) == json.loads(result.example.body)
    flow = flow_of("main", settings)
    key = flow.key(flow.body(example.received(table.paths[0])), table.sticky)
    assert bool(key) is bool(conversation)
    assert [one.split()[0] for one in commands] == ["cutover", "cutover", "curl"]


def own(
    service: dict[str, Any], asking: dict[str, Any], due: dict[str, Any]
) -> tuple[Stranger, dict[str, Any], dict[str, Any]]:
    """Return a service, how it is asked for, and what is written of it."""
    recording = service.pop("recording", "")
    stream = recorded(recording) if recording else service.pop("stream").encode()
    return Stranger(stream=stream, **service), asking, due


OWN = {name: own(**row) for name, row in ROWS["own"].items()}


@pytest.mark.parametrize("name", OWN)
async def test_a_service_of_ones_own_is_asked_as_its_owner_says(name: str, tmp_path: Path) -> None:
    """Ids in path, query, form, header; GET; an answer that is no stream."""
    stranger, asking, due = OWN[name]
    result, told = await found(stranger, **asking)
    assert " 0 events" not in told
    *_, curl = write(result, tmp_path / "cutover.toml", lambda _: None)
    assert shlex.split(curl)[2].endswith(result.example.target.replace(" ", "%20"))
    table = load(tmp_path / "cutover.toml").flows["main"].model_dump()
    assert {name: table[name] for name in due} == due


@pytest.mark.parametrize("share", [0.0, 100.0])
@pytest.mark.parametrize("name", [*KNOWN, *OWN])
async def test_what_is_written_serves(name: str, share: float, tmp_path: Path) -> None:
    """The bytes of either service, under its own path, at either end of a ramp."""
    stranger, asking = (known(name), {}) if name in KNOWN else OWN[name][:2]
    async with (
        Answering(strangers=[stranger]) as old,
        Answering(strangers=[stranger]) as new,
        staged() as stage,
    ):
        asked = Asking(**asking)
        result = await look(old.url, new.url, asked, lambda _: None, lambda likely: likely)
        write(result, tmp_path / "cutover.toml", lambda _: None)
        tables = tomllib.loads((tmp_path / "cutover.toml").read_text("utf-8"))
        tables["flows"]["main"] |= {"enable_langgraph": share > 0, "langgraph_percent": share}
        settings = parse(tables)
        async with open_services(settings) as services:
            app = root.application(LiveSettings(settings), stage.world, services)
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
                example = result.example
                request: Any = {"content": example.body, "headers": dict(example.headers)}
                answer = await client.request(example.method, example.target, **request)
                ready = (await client.get("/readyz")).text + (await client.get("/metrics")).text
    assert answer.content == stranger.stream
    assert answer.headers["x-cutover-served"] == ("graph" if share else "legacy")
    assert not [one for one in FLOWS if f'"{one}"' in ready]


TOKENS = (
    b'data: {"kind":"start","session":"ab12"}\n\n',
    b'data: {"kind":"token","piece":{"t":"Hello"}}\n\n',
    b'data: {"kind":"token","piece":{"t":" you"}}\n\n',
    b'data: {"kind":"bye"}\n\n',
)


@pytest.mark.parametrize(
    ("stream", "media", "framing"),
    [(b"".join(TOKENS), SSE, "sse"), (b'{"w":"Hello"}\n{"w":" you"}\n', LINES, "ndjson")],
)
async def test_an_unknown_stream_gets_a_dialect_of_its_own(
    stream: bytes, media: str, framing: str, tmp_path: Path
) -> None:
    """It shows how an answer begins, and reads it."""
    result, told = await drafted(stream, tmp_path, media)
    assert "whole: 'Hello you'" in told
    assert "see that the texts above are right" in told
    written = (tmp_path / "dialect.toml").read_text("utf-8")
    assert "Hello" in written.partition("framing")[0]
    form = dialect(str(tmp_path / "dialect.toml"))
    assert (result.read, form.framing) == (True, framing)
    cut = Trial(200, media, stream[:-20], whole=False)
    assert not cut.read_whole(form)


FORMS = ROWS["forms"]


@pytest.mark.parametrize("name", FORMS)
async def test_a_dialect_is_made_from_an_answer(name: str, tmp_path: Path) -> None:
    """With its end, so that a cut is seen."""
    answer, text = FORMS[name]
    stream = answer.encode()
    result, _ = await drafted(stream, tmp_path)
    form = dialect(str(tmp_path / "dialect.toml"))
    assert Trial(200, SSE, stream, whole=True).reading(form)[1] == text
    assert result.read
    assert not Trial(200, SSE, stream.rpartition(b"data:")[0], whole=True).read_whole(form)


async def test_a_dialect_that_finds_no_text_is_to_be_completed(tmp_path: Path) -> None:
    """It is valid: doctor says what is missing."""
    result, told = await drafted(b'data: {"n":1}\n\ndata: {"n":2}\n\n', tmp_path)
    assert not result.read
    assert told.endswith("was made from one: complete it")


async def drafted(stream: bytes, folder: Path, media: str = SSE) -> tuple[Discovery, str]:
    """Return what is found of a stream, and what is said; files are written to a folder."""
    stranger = Stranger("/say", "text", stream, media)
    result, told = await found(stranger, path="/say", body='{"text": "hi"}')
    said: list[str] = []
    write(result, folder / "cutover.toml", said.append)
    return result, told + said[0]


async def test_what_is_no_stream_of_json_is_said() -> None:
    """No dialect reads it, and none is made up."""
    with pytest.raises(CutoverError, match="its events are no JSON"):
        await found(Stranger("/chat", "message", b"data: Hel\n\ndata: lo\n\n"))


async def test_a_path_that_only_takes_get_says_so() -> None:
    """It is there: the method is what to give."""
    with pytest.raises(CutoverError, match="/ask takes GET: --method GET"):
        await found(Stranger("/ask", "", b"hi", "text/plain", "GET"), path="/ask")


async def test_an_id_in_the_answer_s_header_is_offered_as_the_key() -> None:
    """A client that sends it back can be told by it."""
    given = (("X-Conversation-Id", "c7"),)
    _, told = await found(Stranger("/chat", "message", recorded("chat-text.sse"), headers=given))
    assert "give --header 'x-conversation-id: c1'" in told


@pytest.mark.parametrize(("asking", "sentence"), ROWS["refused"].values(), ids=ROWS["refused"])
async def test_what_cannot_be_configured_says_what_to_give(
    asking: dict[str, Any], sentence: str
) -> None:
    """Nothing is written, and the sentence names what was tried or found."""
    with pytest.raises(CutoverError, match=re.escape(sentence)):
        await found(Stranger("/say", "mine", recorded("chat-text.sse")), **asking)


async def test_a_server_that_names_its_graphs_is_asked_for_one(tmp_path: Path) -> None:
    """LangGraph's: the first graph that it lists, not one that is made up."""
    listed = Stranger("/assistants/search", "", b'[{"graph_id": "billing"}]', "application/json")
    runs = Stranger("/runs/stream", "billing", recorded("langgraph-text.sse"))
    result, _ = await found(listed, runs)
    write(result, tmp_path / "cutover.toml", lambda _: None)
    assert '"assistant_id": "billing"' in (tmp_path / "cutover.toml").read_text("utf-8")


async def test_paths_that_a_service_describes_are_offered() -> None:
    """FastAPI's description of itself, where nothing that was tried is there."""
    described = b'{"paths": {"/v2/talk": {"post": {}}, "/health": {"get": {}}}}'
    stranger = Stranger("/openapi.json", "", described, "application/json", "GET")
    with pytest.raises(CutoverError, match=r"offers POST /v2/talk\."):
        await found(stranger)


async def test_two_services_that_speak_differently_are_refused() -> None:
    """No router could let one go on with a stream of the other."""
    one = Stranger("/chat", "message", recorded("chat-text.sse"))
    other = Stranger("/chat", "message", recorded("anthropic-text.sse"))
    with pytest.raises(CutoverError, match=r"OLD speaks chat-completions.*NEW anthropic.*Another"):
        await found(one, new=other)
    with pytest.raises(
        CutoverError, match=r"NEW .* not take the same request: status 404.*Another"
    ):
        await found(one, new=Stranger("/v2/chat", "", one.stream))


async def test_what_is_commented_out_is_valid(tmp_path: Path) -> None:
    """The gateway's tables need only their `#` taken away."""
    result, _ = await found(known("ai sdk"))
    out = tmp_path / "cutover.toml"
    write(result, out, lambda _: None)
    text = re.sub(r"^#(?=[\[a-z])", "", out.read_text("utf-8"), flags=re.MULTILINE)
    settings = decode(text.encode(), out)
    assert settings.gateway is not None
    assert {settings.server.port, settings.gateway.port} == {8080, 8081}
    assert tomllib.loads(text)["providers"]["openai"]


async def test_credentials_are_sent_and_not_written(tmp_path: Path) -> None:
    """Neither into the file nor into the command that is shown."""
    result, told = await found(known("ai sdk"), headers=[("Authorization", "Bearer sk-secret")])
    commands = write(result, tmp_path / "cutover.toml", lambda _: None)
    written = (tmp_path / "cutover.toml").read_text("utf-8")
    assert ("Authorization", "Bearer sk-secret") in result.example.headers
    assert "sk-secret" not in "".join((written, told, *commands))


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS["apps"])
async def test_an_app_is_started(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the folder that one is in; one that cannot be is said."""
    app, due = ROWS["apps"][name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(ROWS["modules"]["shop.py"])
    told: list[str] = []
    try:
        await look("shop:app", app, Asking(), told.append, lambda likely: likely)
    except Unusable as error:
        told.append(str(error))
    assert due in "\n".join(told)


def test_a_file_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    """Said before any service is asked."""
    out = tmp_path / "cutover.toml"
    out.write_text("# mine", "utf-8")
    done = CliRunner().invoke(cli, ["init", "http://127.0.0.1:1", "http://x", "--out", str(out)])
    assert "is there already" in str(done.exception)
    assert out.read_text("utf-8") == "# mine"
