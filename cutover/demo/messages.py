"""What the demonstration asks: the bundled messages, or one's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from contract.errors import CutoverError
from contract.flows.chat import ChatRequest

BUNDLED = Path(__file__).parent.parent / "demo_messages.jsonl"
_BODY = ("message_id", "chat_id", "user_id", "user_name", "content", "prompt_params")


class MessagesRefused(CutoverError):
    """A file of messages cannot be used."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"messages {str(path)!r}: {why}")


@dataclass(frozen=True, slots=True)
class Message:
    """One request body; messages of one chat are sent one after the other."""

    message_id: str
    chat: str
    body: dict[str, Any]


def read(path: Path) -> list[Message]:
    """Read a JSONL file of `{"content": …}` or `{"turns": [ … ]}`; raises `MessagesRefused`."""
    try:
        # Not `splitlines`: JSON may hold U+2028 and other line ends of text as they are.
        lines = path.read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise MessagesRefused(path, "cannot be read as UTF-8 text") from error
    messages = [
        message
        for number, line in enumerate(lines, 1)
        if line.strip()
        for message in _row(path, number, line)
    ]
    if not messages:
        raise MessagesRefused(path, "holds no message")
    return messages


def _row(path: Path, number: int, line: str) -> list[Message]:
    try:
        row = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MessagesRefused(path, f"line {number} is not a JSON object") from error
    if isinstance(row.get("turns"), list):
        chat = f"chat-{row.get('question_id', number)}"
        rows = [{"content": turn, "chat_id": chat} for turn in row["turns"]]
    else:
        rows = [row]
    return [_message(path, number, part, index) for index, part in enumerate(rows)]


def _message(path: Path, number: int, row: dict[str, Any], index: int) -> Message:
    if not isinstance(row.get("content"), str) or not row["content"]:
        raise MessagesRefused(path, f"line {number} has neither 'content' nor 'turns'")
    body = {key: row[key] for key in _BODY if row.get(key) is not None}
    body.setdefault("message_id", f"message-{number}-{index}")
    try:
        msgspec.convert(body, ChatRequest)
    except msgspec.ValidationError as error:
        raise MessagesRefused(path, f"line {number} cannot be sent: {error}") from error
    return Message(body["message_id"], body.get("chat_id", body["message_id"]), body)
