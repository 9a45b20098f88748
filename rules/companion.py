"""What both stacks hold a companion's turn to, and the shapes of what they ask, say and store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from contract.flow import Request
from contract.flows.chat import PromptValue
from contract.flows.companion import (
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
    SystemMessage,
    TextPart,
    ToolCall,
    ToolResult,
    UserMessage,
    reference,
)
from contract.stores import MemoryEntry, Recall, Turn
from rules.conversation import summary, window
from rules.images import Picture
from rules.intent import snippet
from rules.memories import Fact, as_list, form
from rules.model_calls import tool_answer
from rules.prompts import parameters

Asked: TypeAlias = Request[Any, CompanionOptions]

QUESTION: Final = "question"
"""How a question a model asks is told from the others."""
NO_TEXT: Final = "NO_TEXT"
"""What a model says of a picture without text; users are told in other words."""
NO_MEMORIES: Final = "（无）"

TEXTS: Mapping[str, str] = {
    "picture": "[图片]",
    "no_text": "图片里没有找到文字。",
    "nothing_found": "\n\n没有找到值得记住的内容。",
    "confirm_title": "要记住这些内容吗？",
    "confirm_label": "记忆 {number}（置信度 {confidence}）",
    "remembered": "\n\n已记住 {count} 条。",
    "not_remembered": "\n\n好的，这些内容没有保存。",
}
"""The fixed texts; those that follow what was read in a picture begin a paragraph of their own."""


def text(asked: Asked, name: str, **values: object) -> str:
    """Give a fixed text; `{name}` of each value is filled in."""
    said = asked.options.texts.get(name, TEXTS[name])
    for key, value in values.items():
        said = said.replace(f"{{{key}}}", str(value))
    return said


def owner(body: MessageTurn | ImageTurn) -> str:
    """Tell whose memories are meant: the user's, or where none is named the session's own.

    A session that is called like a user is not that user.
    """
    return body.user_id or f"session:{body.session_id}"


def model_id(asked: Asked) -> str:
    """Tell which model is asked first."""
    options = asked.options
    return options.vision_model_id if isinstance(asked.body, ImageTurn) else options.model_id


def sent(asked: Asked, message_id: str) -> Turn:
    """Build the turn a request brings; of a picture only that there was one."""
    body = asked.body
    return Turn(
        message_id=message_id,
        role="user",
        content=text(asked, "picture") if isinstance(body, ImageTurn) else body.message,
        chat_id=body.session_id,
        user_id=body.user_id,
    )


def looks_back(asked: Asked) -> bool:
    """Whether what was said before matters: a picture is looked at by itself."""
    return isinstance(asked.body, MessageTurn) and asked.options.history_limit > 0


def recall(asked: Asked) -> Recall | None:
    """Say what is looked for in memory; None where nothing is."""
    body, most = asked.body, asked.options.recall_limit
    return Recall(user_id=owner(body), query=body.message, limit=most) if most else None


def prompt(
    now: datetime,
    asked: Asked,
    mood: Emotion,
    memories: str,
    earlier: Sequence[Turn],
) -> dict[str, PromptValue]:
    """Give the parameters of the system prompt."""
    shown = window(earlier, asked.options.history_tokens)
    return {
        **parameters(now, asked.options.timezone, None),
        "emotion": mood.primary,
        "intensity": f"{mood.intensity:.2f}",
        "intent": snippet(asked.body.message),
        "working_memory": summary(earlier, shown),
        "memories": memories,
    }


def told(memories: Iterable[MemoryEntry]) -> str:
    """Tell memories as they stand in the prompt."""
    return as_list(memories) or NO_MEMORIES


def vision(asked: Asked, system: str, seen: Picture) -> ModelCall:
    """Build the question for the text in a picture, which the call names and does not hold."""
    image = ImagePart(ImageUrl(reference("image", seen.digest)))
    shows = UserMessage((TextPart(text(asked, "picture")), image))
    return ModelCall(
        model_id=asked.options.vision_model_id,
        messages=(SystemMessage(system), shows),
        temperature=0.0,
        max_tokens=asked.options.max_tokens or None,
    )


def extraction(asked: Asked, system: str, read: str) -> ModelCall:
    """Build the question for what may be remembered of what was read in a picture."""
    return ModelCall(
        model_id=asked.options.model_id,
        messages=(SystemMessage(system), UserMessage(read)),
        temperature=0.0,
        json_object=True,
    )


def may_be_no_text(read: str) -> bool:
    """Whether what a model has said so far may still become that there is no text."""
    return NO_TEXT.startswith(read.strip().rstrip(".。"))


def no_text(read: str) -> bool:
    """Whether a model has said, in the end, that there is no text."""
    return read.strip().rstrip(".。") in {"", NO_TEXT}


def confirming(asked: Asked, found: Sequence[Fact]) -> Form:
    """Build the form that asks what of it is to be remembered."""
    return form(found, text(asked, "confirm_title"), text(asked, "confirm_label"))


def shown(call: ToolCall, result: ToolResult) -> ToolOutput:
    """Show what a tool answered, as the model is told."""
    return ToolOutput(call.name, result.ok, tool_answer(call, result).content)


def opening(asked: Asked, put: Form, kind: str) -> OpenQuestion:
    """Build the question that is stored."""
    return OpenQuestion(put, kind, asked.body.session_id)


def hitl(asked: Asked, hitl_id: str, put: Form, kind: str) -> Hitl:
    """Build the event that puts a question to the user."""
    return Hitl(hitl_id, asked.body.session_id, kind, put)
