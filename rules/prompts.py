"""Prompts of a flow: what rendering one gives, and how the files of a prompt with roles are named.

A prompt is a text, which becomes the system message; or a chat, whose messages stand around the
history. A chat is a folder `NAME.chat/` of templates `NUMBER.ROLE.EXTENSION` in the order of their
numbers, with at most one empty file `NUMBER.NAME.placeholder` where the history stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from contract.errors import CutoverError
from contract.flows.chat import PromptValue
from contract.model import AssistantMessage, Message, SystemMessage, UserMessage

CHAT: Final = ".chat"
"""How the folder of a chat ends."""
PLACEHOLDER: Final = "placeholder"
"""The role of the history."""
ROLES: Final[Mapping[str, Callable[[str], Message]]] = {
    "system": SystemMessage,
    "user": UserMessage,
    "human": UserMessage,
    "assistant": AssistantMessage,
    "ai": AssistantMessage,
}

_MESSAGE: Final = re.compile(r"(?P<number>\d+)\.(?P<role>[a-z]+)\.[^.]+")
_HISTORY: Final = re.compile(r"(?P<number>\d+)\.(?P<name>\w+)\.placeholder")


class ChatPrompt(NamedTuple):
    """The messages of a rendered chat: those before the history, and those after it."""

    before: tuple[Message, ...]
    after: tuple[Message, ...] = ()


Prompt: TypeAlias = str | ChatPrompt
"""A rendered prompt: the text of a system message, or a chat."""

Render: TypeAlias = Callable[[Mapping[str, PromptValue]], Prompt]
"""Renders a prompt with its parameters."""


class PromptRefused(CutoverError):
    """A file or a folder cannot be read as a prompt."""

    def __init__(self, path: object, why: str) -> None:
        super().__init__(f"prompt {str(path)!r}: {why}")


class ChatFile(NamedTuple):
    """What the name of a chat's file says; `name` is that of a placeholder, "" otherwise."""

    number: int
    role: str
    name: str = ""


def chat_file(name: str) -> ChatFile | None:
    """Read the name of a file in a chat's folder; None where it is none of a chat."""
    if found := _HISTORY.fullmatch(name):
        return ChatFile(int(found["number"]), PLACEHOLDER, found["name"])
    found = _MESSAGE.fullmatch(name)
    if found is None or found["role"] not in ROLES:
        return None
    return ChatFile(int(found["number"]), found["role"])


def check_roles(path: object, roles: Sequence[str]) -> None:
    """Raise `PromptRefused` for a chat without messages, or with more than one history."""
    if not set(roles) & ROLES.keys():
        raise PromptRefused(path, "it has no message")
    if unknown := [role for role in roles if role != PLACEHOLDER and role not in ROLES]:
        raise PromptRefused(path, f"no role {unknown[0]!r}: there are {', '.join(ROLES)}")
    if roles.count(PLACEHOLDER) > 1:
        raise PromptRefused(path, "it has more than one placeholder: there is one history")


def chat_prompt(roles: Sequence[str], contents: Iterable[str]) -> ChatPrompt:
    """Build a rendered chat; `contents` are those of all roles but the placeholder."""
    speaking = [role for role in roles if role != PLACEHOLDER]
    messages = tuple(ROLES[role](text) for role, text in zip(speaking, contents, strict=True))
    history = roles.index(PLACEHOLDER) if PLACEHOLDER in roles else len(roles)
    return ChatPrompt(messages[:history], messages[history:])


def with_history(prompt: Prompt, history: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages of a prompt with the history in its place: at the end by default."""
    if isinstance(prompt, str):
        return (SystemMessage(prompt), *history)
    return (*prompt.before, *history, *prompt.after)
