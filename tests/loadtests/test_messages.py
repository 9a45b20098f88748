"""Requests are fresh, whole and go where they should."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from contract.chat import CHAT, ChatRequest
from contract.errors import CutoverError
from loadtests.flows import FlowUnknown, flow_named
from loadtests.forcing import qa_header
from loadtests.messages import Message, MessagesRefused, read_messages
from loadtests.targets import Target, TargetRefused, parse_header
from router.qa_header import Forced, verify

LINE = b'{"message_id":"m1","content":"hi","chat_id":"c1","user_name":"ann","note":"ours"}\n'


@pytest.fixture
def messages(tmp_path: Path) -> Path:
    """Return a messages file of two lines, one blank between them."""
    path = tmp_path / "messages.jsonl"
    path.write_bytes(LINE + b"\n" + LINE.replace(b"m1", b"m2"))
    return path


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
    with pytest.raises(MessagesRefused, match=says):
        read_messages(CHAT, path)


def test_a_missing_messages_file_is_refused(tmp_path: Path) -> None:
    """With its name."""
    with pytest.raises(MessagesRefused, match="absent"):
        read_messages(CHAT, tmp_path / "absent.jsonl")


def test_a_request_is_written_whole() -> None:
    """Path below the address's own, length of the body, own headers."""
    target = Target(stack="graph", url="http://127.0.0.1:81/base/", headers=(("X-A", "b"),))
    written = target.request("/chat/sse", Message("m", "m", b"{}"))
    head, _, body = written.partition(b"\r\n\r\n")
    assert body == b"{}"
    assert head.startswith(b"POST /base/chat/sse HTTP/1.1\r\nHost: 127.0.0.1:81\r\n")
    assert b"Content-Length: 2\r\n" in head
    assert head.endswith(b"X-A: b")


def test_a_wish_for_a_stack_is_one_the_router_honours() -> None:
    """The signature is the router's own, over the request's route key."""
    _, value = qa_header("graph", "m-1", "secret", now=1_000.0)
    assert verify(value, "m-1", b"secret", 1_000.0) == Forced("graph")
    target = Target(stack="graph", url="http://127.0.0.1:81", qa_key="secret")
    written = target.request("/chat/sse", Message("m-1", "m-1", b"{}"))
    assert b"x-cutover-qa: graph;exp=" in written
    assert b"secret" not in written


@pytest.mark.parametrize(
    "url",
    [
        *("", "ftp://h", "ftp://u:p@h", "127.0.0.1:80", "http://", "http://u:p@h"),
        *("http://u:p@h:99999", "http://u:p/p@h", "http://[::1"),
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


def test_an_unknown_flow_is_named() -> None:
    """With the flows there are."""
    assert flow_named("chat") is CHAT
    with pytest.raises(FlowUnknown, match="'chat'") as caught:
        flow_named("chess")
    assert isinstance(caught.value, CutoverError)
