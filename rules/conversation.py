"""Conversations with a model: prompts, fixed texts, turns and messages, calls and their answers.

Messages are such as providers accept; an answer is put together as it streams in.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from contract.errors import EffectFailed, Refused
from contract.flows.chat import PromptValue
from contract.flows.session import lock_key
from contract.model import (
    AssistantMessage,
    Chunk,
    Message,
    ModelCall,
    ToolCall,
    ToolMessage,
    ToolResult,
    ToolSpec,
    Usage,
    UserMessage,
    as_whole,
)
from contract.ports import Effects
from contract.stores import Turn
from rules.prompts import Prompt, with_history

Layout = tuple[tuple[Message, ...], tuple[ToolSpec, ...]]
"""The messages of a conversation, and the tools to offer."""

NO_NAME: Final = "invalid_tool_name"
"""Replaces a name that a model invented and no provider accepts."""

EARLY_ENDINGS: Final = frozenset({"content_filter", "length"})
"""Finish reasons after which a round's tool calls, cut short, are not run."""

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_VALUE: Final = re.compile(r"\{(\w+)\}")

_ASCII_PER_TOKEN = 4
NOTHING: Final = "这是本次对话的开始。"
_QUESTION_MARK: Final = re.compile(r"？|\?(?![A-Za-z0-9])")
"""Not the one in an address, before its query."""
_SENTENCE_ENDS: Final = "。！？!?\n"
_TOPICS: Final = 3
_TOPIC: Final = 40
"""Characters of a quoted message."""


def parameters(
    now: datetime, timezone: str, overrides: Mapping[str, PromptValue] | None
) -> dict[str, PromptValue]:
    """Build the parameters of a prompt; what a request sends overrides the built-in ones."""
    local = now.astimezone(ZoneInfo(timezone))
    return {
        "current_date": local.strftime("%Y-%m-%d"),
        "current_time": local.strftime("%H:%M:%S"),
        **(overrides or {}),
    }


def fixed_text(
    texts: Mapping[str, str], overrides: Mapping[str, str], name: str, /, **values: object
) -> str:
    """Return a flow's fixed text with `{name}` of each value filled in."""

    def value_of(found: re.Match[str]) -> str:
        return str(values.get(found[1], found[0]))

    return _VALUE.sub(value_of, overrides.get(name, texts[name]))


def message_of(turn: Turn) -> Message:
    """Turn a stored turn into a message; a user's text carries their name."""
    if turn.role == "assistant":
        return AssistantMessage(turn.content)
    if turn.user_name:
        return UserMessage(f"[{turn.user_name}]: {turn.content}")
    return UserMessage(turn.content)


def prompt_messages(prompt: Prompt, history: Iterable[Turn], current: Turn) -> tuple[Message, ...]:
    """Lay out a conversation: the prompt around the earlier turns, then the current one."""
    return (*with_history(prompt, map(message_of, history)), message_of(current))


def tool_round(text: str, calls: tuple[ToolCall, ...]) -> AssistantMessage:
    """Build the model's message of a tool round; no text is null, not an empty string."""
    return AssistantMessage(text or None, calls)


def tool_answer(call: ToolCall, result: ToolResult) -> ToolMessage:
    """Build the message with a tool's result."""
    content = result.content if result.error is None else f"Error: {result.error}"
    return ToolMessage(call.id, content)


def acceptable_messages(
    messages: tuple[Message, ...], offered: Collection[str]
) -> tuple[Message, ...]:
    """Return messages as providers accept them: they refuse some that their models have made.

    A reply without text is left out; an invalid name of a call that was not `offered` is replaced
    by `NO_NAME`. The call is run, and shown, by the name it was made with.
    """
    accepted: list[Message] = []
    for message in messages:
        if not isinstance(message, AssistantMessage):
            accepted.append(message)
        elif message.tool_calls:
            calls = [
                call
                if _NAME.fullmatch(call.name) or call.name in offered
                else replace(call, name=NO_NAME)
                for call in message.tool_calls
            ]
            accepted.append(replace(message, tool_calls=tuple(calls)))
        elif message.content and message.content.strip():
            accepted.append(message)
    found = tuple(accepted)
    return messages if found == messages else found


class ModelParameters(Protocol):
    """Parameters of a flow's model call; no `max_tokens`, or 0, is the model's own limit."""

    @property
    def model_id(self) -> str:
        """The model."""
        ...

    @property
    def temperature(self) -> float:
        """From 0 to 2."""
        ...

    @property
    def max_tokens(self) -> int | None:
        """Of one answer."""
        ...


async def check_model(effects: Effects, model_id: str, max_tokens: int | None) -> None:
    """Refuse an unknown model, and more tokens than it can answer; raises `Refused`."""
    try:
        info = await effects.model.lookup("model", model_id)
    except EffectFailed as failure:
        if failure.fault.code == "unknown_model":
            raise Refused(422, "unknown_model", f"no model {model_id!r} is registered") from failure
        raise
    most = info.max_output_tokens
    if max_tokens is not None and max_tokens > most:
        raise Refused(422, "max_tokens_too_large", f"at most {most} tokens with this model")


def question(
    parameters: ModelParameters,
    messages: tuple[Message, ...],
    tools: tuple[ToolSpec, ...],
    *,
    last: bool,
) -> ModelCall:
    """Build a model call; the `last` one of a reply may not call tools."""
    return ModelCall(
        model_id=parameters.model_id,
        messages=acceptable_messages(messages, {tool.name for tool in tools}),
        temperature=parameters.temperature,
        max_tokens=parameters.max_tokens or None,
        tools=tools,
        tool_choice=("none" if last else "auto") if tools else None,
    )


class ModelAnswer:
    """An answer as it comes, chunk by chunk; tool calls are put together by their index."""

    __slots__ = ("_pieces", "finish", "text", "usage")

    def __init__(self) -> None:
        self.text = ""
        self.finish = ""
        self.usage = Usage()
        self._pieces: dict[int, list[str]] = {}

    def add(self, chunk: Chunk) -> str:
        """Take a chunk in; return its text.

        Of a tool call the id counts once, name and arguments add up.
        """
        if chunk.finish:
            self.finish = chunk.finish
        if chunk.usage is not None:
            self.usage += chunk.usage
        for delta in chunk.tool_calls:
            piece = self._pieces.setdefault(delta.index, ["", "", ""])
            piece[0] = piece[0] or delta.id
            piece[1] += delta.name
            piece[2] += delta.arguments
        self.text += chunk.text
        return chunk.text

    def calls(self, question: ModelCall) -> tuple[ToolCall, ...]:
        """Return the calls of the whole answer, in index order; none if the question allowed none.

        A missing id, or one of an earlier call, becomes our own.
        """
        if question.tool_choice != "auto" or self.finish in EARLY_ENDINGS:
            return ()
        rounds = rounds_of(question.messages)
        seen = {call.id for calls in rounds for call in calls}
        calls: list[ToolCall] = []
        for index, (call_id, name, arguments) in sorted(self._pieces.items()):
            unique = call_id
            if not call_id or call_id in seen:
                unique = f"call_{len(rounds)}_{index}"
            while unique in seen:  # the model may use our form, too
                unique += "_"
            seen.add(unique)
            calls.append(ToolCall(unique, name, arguments))
        return tuple(calls)


async def read_text(effects: Effects, site: str, call: ModelCall) -> str:
    """Call the model and return the whole text of its answer."""
    answer = effects.model.stream(site, as_whole(call))
    return "".join([chunk.text async for chunk in answer])


def rounds_of(messages: Iterable[Message]) -> list[tuple[ToolCall, ...]]:
    """Return the calls of each round of tools so far."""
    return [
        message.tool_calls
        for message in messages
        if isinstance(message, AssistantMessage) and message.tool_calls
    ]


def estimate(text: str) -> int:
    """Estimate tokens: four ASCII characters a token, any other character a token of its own."""
    if text.isascii():
        return -(-len(text) // _ASCII_PER_TOKEN)
    ascii_count = len(text.encode("ascii", "ignore"))
    return len(text) - ascii_count - (-ascii_count // _ASCII_PER_TOKEN)


def window(turns: Sequence[Turn], budget: int) -> tuple[Turn, ...]:
    """Keep the newest turns that fit into `budget` estimated tokens, oldest first."""
    kept: list[Turn] = []
    left = budget
    for turn in reversed(turns):
        left -= estimate(turn.content)
        if left < 0:
            break
        kept.append(turn)
    return tuple(reversed(kept))


async def user_turn(
    effects: Effects, session: str, content: str, user_id: str | None = None
) -> Turn:
    """Make the turn of a user's message to a session, under a fresh id; it is not stored yet."""
    return Turn(
        message_id=await effects.ids.new("message"),
        role="user",
        content=content,
        chat_id=session,
        user_id=user_id,
    )


async def store_reply(
    effects: Effects, turn: Turn, content: str, data: dict[str, Any] | None = None
) -> Turn:
    """Store a finished answer under a fresh id, with the data beside it; returns its turn."""
    reply = Turn(
        message_id=await effects.ids.new("reply"),
        role="assistant",
        content=content,
        chat_id=turn.chat_id,
        user_id=turn.user_id,
        reply_to=turn.message_id,
        data=data,
    )
    await effects.conversations.put("reply", reply)
    return reply


async def lock_session(effects: Effects, session: str, seconds: float) -> None:
    """Lock a session; raises `Refused` while another turn of it is under way."""
    if not await effects.locks.acquire("session", lock_key(session), seconds):
        raise Refused(409, "session_busy", "another turn of this session is under way")


async def end_session_turn(
    effects: Effects, session: str, turn: Turn, content: str, data: dict[str, Any] | None = None
) -> Turn:
    """Store the finished answer to a session's turn, then release the session; returns its turn."""
    reply = await store_reply(effects, turn, content, data)
    await effects.locks.release("session", lock_key(session))
    return reply


def summary(earlier: Sequence[Turn], shown: Sequence[Turn]) -> str:
    """Sum up a conversation: its length, and the last user messages that are not shown."""
    if not earlier:
        return NOTHING
    length = f"此前共有 {len(earlier)} 条消息。"
    topics = _hidden_topics(earlier, shown)[-_TOPICS:]
    if not topics:
        return length
    return length + "更早时用户说过：" + "；".join(topics) + "。"


def full_summary(earlier: Sequence[Turn], shown: Sequence[Turn], limit: int) -> str:
    """Sum up a conversation of which up to `limit` turns are read, with five quotes at most.

    Its length by speaker, the user's first words, the last messages that are not shown, and the
    last question.
    """
    if not earlier:
        return NOTHING
    texts = [turn.content for turn in earlier if turn.role == "user"]
    cut = len(earlier) >= limit
    counted = f"{'至少有' if cut else '共有'} {len(earlier)} 条消息"
    lines = [f"此前{counted}：用户 {len(texts)} 条，你 {len(earlier) - len(texts)} 条。"]
    if texts:
        lines.append(
            f"{'能看到的最早一句' if cut else '对话从这里开始'}：「{_clipped(texts[0])}」。"
        )
    topics = _hidden_topics(earlier, shown)[1:][-_TOPICS:]
    if topics:
        lines.append("更早时用户还说过：" + "；".join(f"「{topic}」" for topic in topics) + "。")
    if last := _last_question(texts):
        lines.append(f"用户最近的问题：「{last}」。")
    return "".join(lines)


def _hidden_topics(earlier: Sequence[Turn], shown: Sequence[Turn]) -> list[str]:
    """Quote each of the user's messages that is not shown."""
    hidden = earlier[: len(earlier) - len(shown)]
    return [_clipped(turn.content) for turn in hidden if turn.role == "user"]


def _last_question(texts: Sequence[str]) -> str:
    """Return the last sentence that ends in a question mark, "" where none does."""
    for text in reversed(texts):
        end = max((mark.end() for mark in _QUESTION_MARK.finditer(text)), default=0)
        words = len(text[:end].rstrip(_SENTENCE_ENDS))
        begin = max(text.rfind(mark, 0, words) for mark in _SENTENCE_ENDS) + 1
        if text[begin:words].strip():
            return _clipped(text[begin:end])
    return ""


def _clipped(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TOPIC else line[:_TOPIC] + "…"
