"""The demonstration's messages: the bundled ones, the shared ones, and files that are no good."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutover.cli import app
from cutover.demo.client import BUNDLED, MessagesRefused, read_messages


def written(folder: Path, content: bytes) -> Path:
    """Write a file of messages."""
    path = folder / "messages.jsonl"
    path.write_bytes(content)
    return path


def test_the_bundled_messages_are_good() -> None:
    """Every one has an id of its own."""
    messages = read_messages(BUNDLED)
    assert len(messages) >= 50
    assert len({message["message_id"] for message in messages}) == len(messages)


def test_shared_questions_are_read_as_they_are(tmp_path: Path, shared_data: Path) -> None:
    """A row of turns is one conversation, in its order."""
    path = shared_data / "vicuna_questions.jsonl"
    if not path.exists():
        pytest.skip("no vicuna_questions.jsonl in ../shared/data")
    rows = path.read_bytes().split(b"\n")[:3]
    messages = read_messages(written(tmp_path, b"\n".join(rows)))
    assert [message["chat_id"] for message in messages] == ["chat-1", "chat-2", "chat-3"]
    assert "time management" in messages[0]["content"]


def test_odd_files_are_read(tmp_path: Path) -> None:
    """A BOM, lines ended by CRLF, blank lines, and line ends that are text in JSON."""
    content = '\ufeff{"content":"a\u2028b\x85c"}\r\n\r\n{"turns":["d","e"],"note":1}\r\n'
    messages = read_messages(written(tmp_path, content.encode()))
    assert [message["content"] for message in messages] == ["a\u2028b\x85c", "d", "e"]
    assert [message.get("chat_id") for message in messages] == [None, "chat-3", "chat-3"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "holds no message"),
        (b"\n \n", "holds no message"),
        (b'{"turns":[]}', "holds no message"),
        (b"\xff\xfe", "cannot be read as UTF-8 text"),
        (b'{"content":"a"}\nnot json', "line 2 is not a JSON object"),
        (b'{"content":"a"}\n["b"]', "line 2 is not a JSON object"),
        (b'{"content":"a","x":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "line 1 is not a JSON"),
        (b'{"content":"\\ud800"}', "line 1 is not a JSON object"),
        (b'{"content":""}', "line 1 has neither 'content' nor 'turns'"),
        (b'{"content":7}', "line 1 has neither 'content' nor 'turns'"),
        (b'{"turns":["a",7]}', "line 1 has neither 'content' nor 'turns'"),
        (b'{"content":"a","message_id":7}', "line 1 cannot be sent: Expected `str`"),
        (b'{"content":"a","user_name":"' + b"x" * 65 + b'"}', "line 1 cannot be sent"),
        (b'{"content":"a\\u0000"}', "line 1 cannot be sent"),
    ],
)
def test_bad_files_are_refused_with_the_line(tmp_path: Path, content: bytes, why: str) -> None:
    """Before anything is started or emptied."""
    path = written(tmp_path, content)
    with pytest.raises(MessagesRefused) as refused:
        read_messages(path)
    assert why in str(refused.value)
    assert repr(str(path)) in str(refused.value)


@pytest.mark.parametrize(
    "mistake",
    [("--messages", "absent"), ("--seconds", "0.5"), ("--seconds", "x"), ("--users", "0")],
)
def test_the_command_exits_2_and_leaves_the_folder_alone(
    tmp_path: Path, mistake: tuple[str, str]
) -> None:
    """A mistyped option must not cost the report of yesterday."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "kept").touch()
    result = CliRunner().invoke(app, ["demo", "--out", str(out), *mistake])
    assert result.exit_code == 2
    assert mistake[0] in result.output or "cannot be read" in result.output
    assert (out / "kept").exists()
