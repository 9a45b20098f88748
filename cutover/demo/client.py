"""The demonstration's client: what it sends and receives, what it answers and approves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from contract.errors import CutoverError
from contract.flows import SPECS
from contract.flows.chat import ChatRequest
from contract.human import Form, FormField, FormValue
from contract.wire.sse import SseDecoder, is_comment
from router.admin.config_file import edit_flow

BUNDLED = Path(__file__).parent.parent / "demo_messages.jsonl"
Body = dict[str, Any]
MARK = "demo-crash"
"""Prefix of the message ids that the planted fault strikes."""
_BODY = ("message_id", "chat_id", "user_id", "user_name", "content", "prompt_params")


class MessagesRefused(CutoverError):
    """A file of messages cannot be used."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"messages {str(path)!r}: {why}")


def read_messages(path: Path) -> list[Body]:
    """Read bodies from JSONL, `{"content": …}` or `{"turns": [ … ]}`; raises `MessagesRefused`."""
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


def _row(path: Path, number: int, line: str) -> list[Body]:
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


def _message(path: Path, number: int, row: Body, index: int) -> Body:
    if not isinstance(row.get("content"), str) or not row["content"]:
        raise MessagesRefused(path, f"line {number} has neither 'content' nor 'turns'")
    body = {key: row[key] for key in _BODY if row.get(key) is not None}
    body.setdefault("message_id", f"message-{number}-{index}")
    try:
        msgspec.convert(body, ChatRequest)
    except msgspec.ValidationError as error:
        raise MessagesRefused(path, f"line {number} cannot be sent: {error}") from error
    return body


_PARALLEL = 8


@dataclass(frozen=True, slots=True)
class DemoStream:
    """One answer: the stacks assigned and serving, its bytes, and its exchange."""

    assigned: str
    served: str
    body: bytes
    exchange: str = ""

    @property
    def events(self) -> list[tuple[str, Body]]:
        """The events: names and data; a chat's have no names."""
        return [(it.event, msgspec.json.decode(it.data)) for it in SseDecoder().feed(self.body)]

    @property
    def complete(self) -> bool:
        """Whether a chat's answer ended well."""
        events = self.events
        return bool(events) and events[-1][1].get("step") == "END"

    @property
    def status(self) -> str:
        """How a stream of companion or ops ended; "" where it broke off."""
        events = self.events
        return str(events[-1][1]["status"]) if events and events[-1][0] == "done" else ""

    @property
    def takeover(self) -> str | None:
        """The comment that names the stack that took over, if one did."""
        frames = self.body.split(b"\n\n")
        return next((frame.decode() for frame in frames if is_comment(frame)), None)


async def send_all(
    url: str, messages: Sequence[Body], progress: Callable[[float], None]
) -> list[DemoStream]:
    """Send all messages, some concurrently; those of one chat in order."""
    chats: dict[str, list[Body]] = {}
    for message in messages:
        chats.setdefault(message.get("chat_id") or message["message_id"], []).append(message)
    gate = asyncio.Semaphore(_PARALLEL)
    answers: list[DemoStream] = []
    async with aiohttp.ClientSession() as session:

        async def chat(turns: Sequence[Body]) -> None:
            async with gate:
                for message in turns:
                    answers.append(await send(session, f"{url}/chat/sse", message))
                    progress(len(answers) / len(messages))

        await asyncio.gather(*(chat(turns) for turns in chats.values()))
    return answers


async def send(session: aiohttp.ClientSession, url: str, body: object) -> DemoStream:
    """Send one request and read its whole stream."""
    async with session.post(url, json=body) as response:
        headers = response.headers
        return DemoStream(
            assigned=headers.get("x-cutover-assigned", ""),
            served=headers.get("x-cutover-served", "").split(" ")[0],
            body=await response.read(),
            exchange=headers.get("x-cutover-exchange", ""),
        )


FLOW = "companion"
MESSAGE = "Remind me to call mum: ask me when first."
ANSWER = "tonight at eight"
"""The user's answer to a text field."""
_IN_FORCE_WITHIN = 20.0


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question: the stream that asked it, the answer, and the stream that continued."""

    first: DemoStream
    answer: dict[str, FormValue]
    continued: DemoStream | None = None

    @property
    def streams(self) -> list[DemoStream]:
        """Both streams, or the first alone."""
        return [self.first] if self.continued is None else [self.first, self.continued]


async def answer_question(url: str, config: Path) -> AnsweredQuestion:
    """Be asked by graph, roll the flow back to legacy, answer, and continue.

    A model may ask nothing, as real ones do: then there is only the first stream.
    """
    async with aiohttp.ClientSession() as session:
        turn = {"session_id": "demo-question", "message": MESSAGE}
        first = await send(session, f"{url}/chat", turn)
        question = next((data for name, data in first.events if name == "hitl"), None)
        if question is None:
            return AnsweredQuestion(first, {})
        edit_flow(config, SPECS, FLOW, {"enable_langgraph": False})
        await _in_force(session, url)
        answer = filled(msgspec.convert(question["form"], Form))
        named = {"hitl_id": question["hitl_id"]}
        reply = {**named, "action": "edit", "data": answer}
        async with session.post(f"{url}/hitl/respond", json=reply) as response:
            await response.read()
        return AnsweredQuestion(first, answer, await send(session, f"{url}/hitl/continue", named))


def filled(form: Form) -> dict[str, FormValue]:
    """Return an answer to every field."""
    return {field.name: _value(field) for field in form.fields}


def _value(field: FormField) -> FormValue:
    match field.type:
        case "text":
            return ANSWER
        case "number":
            return 8
        case "boolean":
            return True
        case "choice":
            return field.options[0]
        case "list":
            return field.options[:1] or (ANSWER,)


async def _in_force(session: aiohttp.ClientSession, url: str) -> None:
    """Wait until the router has read the file: it does so four times a second."""
    until = time.monotonic() + _IN_FORCE_WITHIN
    while time.monotonic() < until:
        async with session.get(f"{url}/readyz") as response:
            if (await response.json())["stages"][FLOW] == "off":
                return
        await asyncio.sleep(0.05)


INSTRUCTION = "delete the temporary files *.log"
APPROVER = "ada"
TEMPORARY = ("app.log", "old.log", "notes.txt")
"""Files the demonstration makes; the instruction is about those that are logs."""


@dataclass(frozen=True, slots=True)
class ApprovedInstruction:
    """A risky instruction: the stream that asked for an approval, and the one that continued.

    `before` are the files that were there when the approval was asked for, `after` those at the
    end.
    """

    first: DemoStream
    continued: DemoStream
    before: tuple[str, ...]
    after: tuple[str, ...]


async def approve_instruction(url: str, temporary: Path) -> ApprovedInstruction:
    """Instruct a worker to delete files in a folder, and approve it.

    The rules read this instruction: no model, simulated or real, is asked what it means.
    """
    _write_files(temporary)
    async with aiohttp.ClientSession() as session:
        turn = {"session_id": "demo-approval", "input": INSTRUCTION}
        first = await send(session, f"{url}/ops/react", turn)
        before = _files(temporary)
        ids = (data["approval_id"] for name, data in first.events if name == "approval_required")
        decision = {"approval_id": next(ids, ""), "approved": True, "by": APPROVER}
        continued = await send(session, f"{url}/ops/resume", decision)
    return ApprovedInstruction(first, continued, before, _files(temporary))


def _write_files(folder: Path) -> None:
    folder.mkdir()
    for name in TEMPORARY:
        (folder / name).write_text("written by the demonstration\n", "utf-8")


def _files(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in folder.iterdir()))
