"""The chat flow, written by hand: one generator, a loop of rounds, a throttle."""

from collections.abc import AsyncIterator, Iterator
from datetime import datetime

from msgspec import UNSET
from msgspec.structs import replace

from cutover import Refused, Request, StackFailed
from cutover.tape import moment, timed
from effects import conversations, locks
from effects.conversations import Turn, TurnDiffers
from effects.models import ModelEntry
from effects.world import current, new_id, read_clock
from legacy.model import Answer, Message, offered, render, run_tools, stream
from rules.flows import chat as wire
from rules.models import CHAT_HISTORY, window
from rules.prompts import finish_notice, moment_parameters


class Output:
    """The reply so far, and what of it the client has; `yield_interval` apart, in tape time."""

    def __init__(self, options: wire.ChatOptions) -> None:
        self.content = ""
        self.reasoning = ""
        self._extended = options.wire == "extended"
        self._interval = options.yield_interval
        self._sent = ("", "")
        self._sent_at: float | None = None

    def take(self, text: str, reasoning: str) -> Iterator[wire.ChatSend]:
        """Add what a chunk brought; the first text goes out at once, more after the interval."""
        self.content += text
        self.reasoning += reasoning if self._extended else ""
        first = bool(self.content and not self._sent[0])
        waited = self._sent_at is None or moment() - self._sent_at >= self._interval
        if first or waited:
            yield from self.flush()

    def flush(self) -> Iterator[wire.ChatSend]:
        """Send what the client lacks."""
        if (self.content, self.reasoning) != self._sent:
            yield self._send()

    def feedback(self, tool: str, status: str) -> Iterator[wire.ChatSend]:
        """Send a tool's status at once, unsent text before it."""
        yield from self.flush()
        yield self._send(wire.ToolFeedback(tool, status))  # type: ignore[arg-type]

    def _send(self, status: wire.ToolFeedback | None = None) -> wire.ChatSend:
        self._sent, self._sent_at = (self.content, self.reasoning), moment()
        reasoning = self.reasoning if self._extended else UNSET
        return wire.ChatSend(self.content, reasoning, status or UNSET)


async def chat(
    request: Request[wire.ChatRequest, wire.ChatOptions],
) -> AsyncIterator[wire.ChatEvent]:
    """Answer one message."""
    body, options = request.body, wire.chosen(request.body, request.options)
    lock = f"msg_lock:{body.message_id}"
    with timed("initialize"):
        entry = _model(body, options)
        token = await locks.acquire(lock, wire.LOCK_SECONDS)
        if token is None:
            raise Refused(409, "message_locked", "this message is being answered already")
        now = await read_clock()
        turn = await _message(body, now)
    yield wire.ChatAccept()
    yield wire.ChatStartReply()
    with timed("prompt_generation"):
        messages = await _messages(turn, body, options, now)
    output, answer = Output(options), Answer()
    tools = offered(entry, enabled=options.enable_tools)
    limits = {"temperature": options.temperature, "max_tokens": options.max_tokens}
    for left in range(options.max_tool_iterations, -1, -1):
        answer = Answer()
        with timed("model_call"):
            async for piece in stream(entry, messages, answer, tools, last=not left, **limits):
                for event in output.take(*piece):
                    yield event
        if not left or not answer.runs:
            break
        messages.append(answer.message())
        with timed("tool_execution"):
            for call in answer.calls:
                for event in output.feedback(call.name, "running"):
                    yield event
            async for result in run_tools(answer.calls, tools, user_id=turn.user_id or ""):
                messages.append(result.message())
                for event in output.feedback(result.call.name, "done" if result.ok else "error"):
                    yield event
    with timed("output_processing"):
        output.content += finish_notice(answer.finish, options.texts)
        for event in output.flush():
            yield event
        reply = {"id": await new_id("message"), "role": "assistant", "content": output.content}
        await conversations.add(replace(turn, **reply, name=None, at=now))
        yield wire.ChatSuccess(output.content)
    with timed("cleanup"):
        await locks.release(lock, token)
    yield wire.ChatEnd()


def _model(body: wire.ChatRequest, options: wire.ChatOptions) -> ModelEntry:
    try:
        return current().models.find(options.model_id)
    except StackFailed as error:
        if body.model_config is not None and body.model_config.model_id is not None:
            raise Refused(422, "unknown_model", "no such model is configured") from error
        raise


async def _message(body: wire.ChatRequest, now: str) -> Turn:
    """Store the message, or look it up where the request has only its id."""
    if body.content is None:
        found = await conversations.find("chat", body.message_id)
        if found is None:
            raise Refused(404, "unknown_message", "no message with this message_id is stored")
        if found.role != "user":
            raise Refused(409, "message_conflict", "this message_id belongs to a reply")
        return found
    user = body.user_name, body.user_id
    turn = Turn(body.message_id, "chat", body.chat_id or "", "user", body.content, *user, now)
    try:
        await conversations.add(turn)
    except TurnDiffers as error:
        detail = "this message_id belongs to a different message"
        raise Refused(409, "message_conflict", detail) from error
    return turn


async def _messages(
    turn: Turn, body: wire.ChatRequest, options: wire.ChatOptions, now: str
) -> list[Message]:
    """Return the system prompt, what was said before in the chat, and the message."""
    parameters = moment_parameters(datetime.fromisoformat(now), options.timezone)
    system = render("chat_system", {**parameters, **(body.prompt_params or {})})
    history = await conversations.history("chat", turn.chat_id, CHAT_HISTORY + 1)
    known = [*(one.id for one in history), turn.id]
    history = history[: known.index(turn.id)]  # asked again: what was said after it is not shown
    earlier = window(history, options.history_tokens, CHAT_HISTORY)
    return [
        {"role": "system", "content": system},
        *({"role": one.role, "content": _content(one)} for one in earlier),
        {"role": "user", "content": _content(turn)},
    ]


def _content(turn: Turn) -> str:
    named = turn.role == "user" and turn.name
    return f"[{turn.name}]: {turn.content}" if named else turn.content
