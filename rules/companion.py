"""The companion flow: texts, prompts, model calls, turns and questions of both stacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from contract.flow import Request
from contract.flows.chat import PromptValue
from contract.flows.companion import (
    COMPANION,
    CompanionOptions,
    Emotion,
    Hitl,
    ImageTurn,
    MessageTurn,
    ToolOutput,
)
from contract.human import Form, OpenQuestion
from contract.model import (
    ImagePart,
    ImageUrl,
    ModelCall,
    TextPart,
    ToolCall,
    ToolResult,
    UserMessage,
    reference,
)
from contract.ports import Effects
from contract.stores import MemoryEntry, Reading, Recall, Turn
from rules import questions
from rules.conversation import (
    Layout,
    check_model,
    fixed_text,
    full_summary,
    lock_session,
    parameters,
    prompt_messages,
    read_text,
    summary,
    tool_answer,
    user_turn,
    window,
)
from rules.emotion import snippet
from rules.extraction import lessons as extraction
from rules.memories import Fact, as_list, confident_facts, memory_form, remember
from rules.prompts import Prompt, Render, with_history

CompanionRequest: TypeAlias = Request[Any, CompanionOptions]

QUESTION: Final = "question"
"""Kind of the questions a model asks."""
NO_TEXT: Final = "NO_TEXT"
"""A model's answer for a picture without text; users read `TEXTS["no_text"]` instead."""
NO_MEMORIES: Final = "（无）"

PROMPTS: Mapping[str, str] = {
    "system": (
        "你是一个贴心的桌面伙伴。今天是 {current_date} {current_time}。\n"
        "用户的情绪：{emotion}（{intensity}）。{intent}\n{working_memory}\n你记得的事：\n{memories}"
    ),
    "vision": "读出图片中的全部文字。没有文字时，只回答 {no_text}。",
    "extraction": (
        "从下面的文字中找出关于用户、值得长期记住的事实，只输出 JSON："
        '{{"memories":[{{"text":"…","confidence":0.5}}]}}。'
    ),
}
"""Stand in for missing prompt files; in `str.format` syntax."""

TEXTS: Mapping[str, str] = {
    "picture": "[图片]",
    "no_text": "图片里没有找到文字。",
    "nothing_found": "\n\n没有找到值得记住的内容。",
    "confirm_title": "要记住这些内容吗？",
    "confirm_label": "记忆 {number}（置信度 {confidence}）",
    "remembered": "\n\n已记住 {count} 条。",
    "not_remembered": "\n\n好的，这些内容没有保存。",
}
"""Fixed texts; those that follow the text of a picture begin a paragraph of their own."""


def text(request: CompanionRequest, name: str, **values: object) -> str:
    """Return a fixed text with `{name}` of each value filled in."""
    return fixed_text(TEXTS, request.options.texts, name, **values)


def owner(body: MessageTurn | ImageTurn) -> str:
    """Return the owner of a turn's memories: the user, or where none is named the session.

    A session named like a user is not that user.
    """
    return body.user_id or f"session:{body.session_id}"


async def admit(request: CompanionRequest, effects: Effects) -> tuple[Turn, tuple[Turn, ...]]:
    """Check model and session, read the earlier turns, store this one; raises `Refused`.

    Returns the turn and those before it; a picture is read by itself, and of it the turn holds
    only that there was one.
    """
    body, options, session = request.body, request.options, request.body.session_id
    pictured = isinstance(body, ImageTurn)
    first_model = options.vision_model_id if pictured else options.model_id
    await check_model(effects, first_model, options.max_tokens)
    await lock_session(effects, session, options.lock_ttl)
    content = text(request, "picture") if pictured else body.message
    turn = await user_turn(effects, session, content, body.user_id)
    earlier: tuple[Turn, ...] = ()
    if not pictured and options.history_limit > 0:
        earlier = await effects.conversations.history(
            "history", session, before=turn.message_id, limit=options.history_limit
        )
    await effects.conversations.put("message", turn)
    return turn, earlier


def recall(request: CompanionRequest) -> Recall | None:
    """Build the query for memories; None where recall is off."""
    body, most = request.body, request.options.recall_limit
    return Recall(user_id=owner(body), query=body.message, limit=most) if most else None


def prompt(
    now: datetime,
    request: CompanionRequest,
    known: tuple[Emotion, str],
    earlier: Sequence[Turn],
    shown: Sequence[Turn],
) -> dict[str, PromptValue]:
    """Return the parameters of the system prompt; `known` as in `lay_out`.

    Of the earlier turns, those that are `shown` follow the prompt as messages.
    """
    mood, memories = known
    return {
        **parameters(now, request.options.timezone, None),
        "emotion": mood.primary,
        "intensity": f"{mood.intensity:.2f}",
        "intent": snippet(request.body.message),
        "working_memory": working_memory(request.options, earlier, shown),
        "memories": memories,
    }


def working_memory(
    options: CompanionOptions, earlier: Sequence[Turn], shown: Sequence[Turn]
) -> str:
    """Return what the prompt says of the earlier turns, of which some are `shown` as messages."""
    if options.summary == "brief":
        return summary(earlier, shown)
    return full_summary(earlier, shown, options.history_limit)


async def lay_out(
    request: CompanionRequest,
    effects: Effects,
    turns: Sequence[Turn],
    known: tuple[Emotion, str],
    render: Render,
) -> Layout:
    """Lay out the conversation, the newest of its turns last; list the tools to offer.

    `known` is the message's emotion, and the memories as they stand in the prompt.
    """
    options, (*earlier, turn) = request.options, turns
    shown = window(earlier, options.history_tokens)
    system = render(prompt(await effects.clock.now("prompt"), request, known, earlier, shown))
    messages = prompt_messages(system, shown, turn)
    offered = await effects.tools.list("offer") if options.enable_tools else ()
    return messages, questions.offer(offered, asking=options.ask_human)


def memories_text(memories: Iterable[MemoryEntry]) -> str:
    """Return memories as they stand in the prompt."""
    return as_list(memories) or NO_MEMORIES


def vision(request: CompanionRequest, instruction: Prompt, digest: str) -> ModelCall:
    """Build the call that reads a picture's text; it refers to the picture by digest."""
    image = ImagePart(ImageUrl(reference("image", digest)))
    picture = UserMessage((TextPart(text(request, "picture")), image))
    return ModelCall(
        model_id=request.options.vision_model_id,
        messages=(*with_history(instruction, ()), picture),
        temperature=0.0,
        max_tokens=request.options.max_tokens or None,
    )


async def find_facts(
    request: CompanionRequest, effects: Effects, instruction: Prompt, read: str
) -> tuple[Fact, ...]:
    """Find the facts worth remembering in a picture's text."""
    call = ModelCall(
        model_id=request.options.model_id,
        messages=(*with_history(instruction, ()), UserMessage(read)),
        temperature=0.0,
        json_object=True,
    )
    answer = await read_text(effects, "extraction", call)
    return confident_facts(answer, request.options.least_confidence)


async def remember_facts(
    request: CompanionRequest, effects: Effects, facts: tuple[Fact, ...]
) -> str:
    """Remember the facts the user approved; returns the text for the user."""
    if not facts:
        return text(request, "not_remembered")
    body = request.body
    written = await remember(effects, "remember", facts, owner(body), body.session_id)
    return text(request, "remembered", count=written)


async def learn(
    request: CompanionRequest, effects: Effects, turns: Sequence[Turn], reply: Turn
) -> None:
    """Learn from a conversation that ends in a reply; a picture teaches what the user confirms."""
    body, pictured = request.body, text(request, "picture")
    pictures = {turn.message_id for turn in turns if turn.content == pictured}
    spoken = tuple(turn for turn in turns if pictures.isdisjoint({turn.message_id, turn.reply_to}))
    reading = Reading(user_id=owner(body), flow=COMPANION.name, session_id=body.session_id)
    lesson = extraction.Lesson(reading, body.user_id, spoken, reply)
    await extraction.learn(effects, lesson, request.options)


def may_be_no_text(read: str) -> bool:
    """Whether an answer so far may still become `NO_TEXT`."""
    return NO_TEXT.startswith(read.strip().rstrip(".。"))


def no_text(read: str) -> bool:
    """Whether a whole answer is `NO_TEXT`, or empty."""
    return read.strip().rstrip(".。") in {"", NO_TEXT}


def confirmation_form(request: CompanionRequest, found: Sequence[Fact]) -> Form:
    """Build the form that asks which facts to remember."""
    return memory_form(found, text(request, "confirm_title"), text(request, "confirm_label"))


def tool_output(call: ToolCall, result: ToolResult) -> ToolOutput:
    """Build the event that shows a tool's output, as the model reads it."""
    return ToolOutput(call.name, result.ok, tool_answer(call, result).content)


def open_question(request: CompanionRequest, put: Form, kind: str) -> OpenQuestion:
    """Build the question that is stored."""
    return OpenQuestion(put, kind, request.body.session_id)


def hitl(request: CompanionRequest, hitl_id: str, put: Form, kind: str) -> Hitl:
    """Build the event that puts a question to the user."""
    return Hitl(hitl_id, request.body.session_id, kind, put)
