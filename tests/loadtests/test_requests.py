"""Requests are fresh, whole and go where they should."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from contract.errors import CutoverError
from contract.flows.chat import CHAT, ChatRequest
from contract.flows.companion import COMPANION
from contract.flows.declared import DeclaredFlow, declared_spec
from contract.flows.session import SESSION
from contract.qa_header import verify
from contract.wire import built_in
from loadtests.plan import LoadPlan
from loadtests.requests import (
    ConversationsUnnamed,
    FlowUnknown,
    LoadMessage,
    MessageFileRefused,
    Target,
    TargetRefused,
    flow_named,
    parse_header,
    read_messages,
)
from loadtests.runner import run_load

LINE = b'{"message_id":"m1","content":"hi","chat_id":"c1","user_name":"ann","note":"ours"}\n'


@pytest.fixture
def messages(tmp_path: Path) -> Path:
    """Return a messages file of two lines, one blank between them."""
    path = tmp_path / "messages.jsonl"
    path.write_bytes(LINE + b"\n" + LINE.replace(b"m1", b"m2"))
    return path


def test_a_device_is_no_messages_file() -> None:
    """It may have no end."""
    with pytest.raises(MessageFileRefused, match="a device, not a file"):
        read_messages(CHAT, Path("/dev/zero"))


def test_every_request_has_ids_of_its_own(messages: Path) -> None:
    """Message and conversation are new each time, people stay, notes are not sent."""
    read = read_messages(CHAT, messages)
    first, third = read.fresh(0, "t-0"), read.fresh(2, "t-2")
    body = msgspec.json.decode(first.body)
    assert (first.message_id, third.message_id) == ("m1-t-0", "m1-t-2")
    assert body == {
        "message_id": "m1-t-0",
        "content": "hi",
        "chat_id": "c1-t-0",
        "user_name": "ann",
    }
    assert len(read) == 2


def test_a_long_id_is_cut_to_what_the_flow_takes(tmp_path: Path) -> None:
    """The tag stays whole: it is what makes the id new."""
    path = tmp_path / "long.jsonl"
    path.write_bytes(LINE.replace(b"m1", b"m" * 128))
    fresh = read_messages(CHAT, path).fresh(0, "tag-77")
    assert msgspec.json.decode(fresh.body, type=ChatRequest).message_id.endswith("-tag-77")


def test_the_route_key_is_the_one_asked_for(messages: Path) -> None:
    """The flow's default, or another key's field."""
    assert read_messages(CHAT, messages).fresh(0, "t").route_key == "m1-t"
    assert read_messages(CHAT, messages, "session_id").fresh(0, "t").route_key == "c1-t"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no message"),
        (b"{oops\n", "line 1"),
        (LINE + b'{"content":"x"}\n', "line 2"),
        (LINE.replace(b"ann", b"\xff"), "line 1"),
        (LINE.replace(b'"ours"', b"[" * 100_000), "line 1"),
    ],
)
def test_a_bad_messages_file_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    """With file and line, before anything is sent."""
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(MessageFileRefused, match=says):
        read_messages(CHAT, path)


def test_a_missing_messages_file_is_refused(tmp_path: Path) -> None:
    """With its name."""
    with pytest.raises(MessageFileRefused, match="absent"):
        read_messages(CHAT, tmp_path / "absent.jsonl")


def test_a_request_is_written_whole() -> None:
    """Path below the address's own, length of the body, own headers."""
    target = Target(stack="graph", url="http://127.0.0.1:81/base/", headers=(("X-A", "b"),))
    written = target.request(LoadMessage("m", "m", "/chat/sse", b"{}", "/chat/sse"))
    head, _, body = written.partition(b"\r\n\r\n")
    assert body == b"{}"
    assert head.startswith(b"POST /base/chat/sse HTTP/1.1\r\nHost: 127.0.0.1:81\r\n")
    assert b"Content-Length: 2\r\n" in head
    assert head.endswith(b"X-A: b")


def test_a_target_with_a_key_sends_a_valid_qa_header() -> None:
    """It is signed over the request's route key, and the key stays here."""
    target = Target(stack="graph", url="http://127.0.0.1:81", qa_key="secret")
    written = target.request(LoadMessage("m-1", "m-1", "/chat/sse", b"{}", "/chat/sse"))
    _, _, value = written.partition(b"x-cutover-qa: ")
    assert verify(value.splitlines()[0].decode(), "m-1", b"secret", time.time()) == "graph"
    assert b"secret" not in written


@pytest.mark.parametrize(
    "url",
    [
        *("", "ftp://h", "ftp://u:p@h", "127.0.0.1:80", "http://", "http://u:p@h"),
        *("http://u:p@h:99999", "http://u:p/p@h", "http://[::1", "http://h/?k=p@"),
    ],
)
def test_an_unusable_address_is_refused(url: str) -> None:
    """And its password is not shown."""
    with pytest.raises(TargetRefused) as caught:
        Target(stack="graph", url=url)
    assert "p@" not in str(caught.value)


def test_ports_and_encryption_come_from_the_address() -> None:
    """Defaults of both schemes."""
    plain, safe = (Target(stack="a", url=f"{scheme}://h") for scheme in ("http", "https"))
    assert (plain.port, plain.tls, safe.port, safe.tls) == (80, False, 443, True)


def test_a_header_is_read() -> None:
    """The value may hold colons."""
    assert parse_header("X-Stack:  graph:2 ") == ("X-Stack", "graph:2")


@pytest.mark.parametrize("text", ["X-Stack graph", ": a", "X Y: a", "X: a\r\nY: b", "X: \x00"])
def test_a_bad_header_is_refused_without_its_value(text: str) -> None:
    """It may be a secret."""
    with pytest.raises(TargetRefused) as caught:
        parse_header(text)
    assert "graph" not in str(caught.value).partition(":")[2]


def test_a_message_goes_to_the_first_path_that_takes_it(tmp_path: Path) -> None:
    """A picture at the path of pictures, and a line no path takes is refused as the first says."""
    path = tmp_path / "visits.jsonl"
    picture = b'{"session_id":"s1","image":"data:image/png;base64,","action":"analyze_only"}\n'
    path.write_bytes(b'{"session_id":"s1","message":"hi","image":"a note"}\n' + picture)
    said, shown = (read_messages(COMPANION, path).fresh(index, "t") for index in (0, 1))
    assert (said.path, shown.path) == ("/chat", "/chat/image")
    assert msgspec.json.decode(said.body) == {"session_id": "s1-t", "message": "hi"}
    for above, where in (("", "/chat/image"), ("/v1/", "/v1/chat/image"), ("/v1", "/v1/image")):
        written = Target(stack="a", url=f"http://h{above}").request(shown)
        assert written.startswith(f"POST {where} HTTP".encode())
    path.write_bytes(b'{"session_id":"s1"}\n')
    with pytest.raises(MessageFileRefused, match="`message`"):
        read_messages(COMPANION, path)


async def test_an_unnamed_conversation_cannot_be_signed(tmp_path: Path) -> None:
    """The router routes it by the name it gives it: the wish would not count, and so is refused."""
    path = tmp_path / "sessions.jsonl"
    path.write_bytes(b'{"session_id":"s1","message":"hi"}\n')
    assert read_messages(SESSION, path).routable
    path.write_bytes(b'{"session_id":"s1","message":"hi"}\n{"message":"hi"}\n')
    read = read_messages(SESSION, path)
    assert [read.fresh(index, "t").route_key for index in (0, 1)] == ["s1-t", None]
    assert not read.routable
    target = Target(stack="graph", url="http://127.0.0.1:1", qa_key="k")
    plan = LoadPlan(targets=(target,), messages=path, flow="session")
    with pytest.raises(ConversationsUnnamed, match="QA header"):
        await run_load(plan, tmp_path / "out")


def test_a_declared_flow_is_sent_as_declared(tmp_path: Path) -> None:
    """Whole bodies, with new ids where they are text, wherever they stand."""
    spec = declared_spec(
        "support",
        DeclaredFlow(
            path="/api/support",
            dialect=built_in()["openai"],
            route_keys={"session_id": "metadata.ticket", "user_id": "user"},
        ),
    )
    path = tmp_path / "tickets.jsonl"
    path.write_bytes(
        b'{"metadata":{"ticket":"t1"},"user":"ann","note":"theirs"}\n'
        b'{"metadata":{"ticket":7},"user":"ann"}\n{"metadata":"none"}\n'
    )
    first, second, third = (read_messages(spec, path).fresh(index, "x") for index in range(3))
    whole = {"metadata": {"ticket": "t1-x"}, "user": "ann", "note": "theirs"}
    assert (msgspec.json.decode(first.body), first.path) == (whole, "/api/support")
    assert (first.message_id, first.route_key) == ("t1-x", "t1-x")
    assert (second.message_id, msgspec.json.decode(second.body)["metadata"]) == ("7", {"ticket": 7})
    assert third.message_id == "x"
    assert third.route_key == spec.route_key({"metadata": "none"}, "session_id")
    assert read_messages(spec, path, "user_id").fresh(0, "x").route_key == "ann"
    path.write_bytes(b"[]\n")
    with pytest.raises(MessageFileRefused, match="line 1"):
        read_messages(spec, path)


def test_an_unknown_flow_is_named() -> None:
    """With the flows there are."""
    assert flow_named("chat") is CHAT
    with pytest.raises(FlowUnknown, match="'chat'") as caught:
        flow_named("chess")
    assert isinstance(caught.value, CutoverError)
