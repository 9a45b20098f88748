"""Folders of prompts: which files are templates, which belong to a chat, and what they become."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from typing import TYPE_CHECKING

import msgspec

from contract.errors import CutoverError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from router.config import PromptSettings

CHAT = ".chat"
_MESSAGE = re.compile(r"(?P<number>\d+)\.(?P<role>[a-z]+)\.[^.]+")
_PLACEHOLDER = re.compile(r"(?P<number>\d+)\.(?P<name>\w+)\.placeholder")
ROLES = ("system", "user", "human", "assistant", "ai")


class FolderRefused(CutoverError):
    """A folder of prompts is none, or is laid out in a way nobody can follow."""

    def __init__(self, folder: Path, why: str) -> None:
        super().__init__(f"{str(folder)!r}: {why}")


class Message(msgspec.Struct, frozen=True):
    """One message of a chat: the template of a role, or where messages of a name are put in."""

    role: str
    template: str = ""
    placeholder: str = ""


class Prompt(msgspec.Struct, frozen=True):
    """What becomes one file: a template, or all messages of a chat, in order."""

    name: str
    target: str
    messages: tuple[Message, ...] = ()

    @property
    def templates(self) -> tuple[str, ...]:
        """Name the templates it is made of."""
        if not self.messages:
            return (self.name,)
        return tuple(message.template for message in self.messages if message.template)


def prompts_in(folder: Path, settings: PromptSettings) -> tuple[Prompt, ...]:
    """List the prompts of a folder; raises `FolderRefused`."""
    if not folder.is_dir():
        raise FolderRefused(folder, "no folder of prompts")
    names = _names(folder, settings)
    chats = {name.rpartition("/")[0] for name in names if _chat_of(name)}
    found = [Prompt(name, _target(name, settings)) for name in names if not _chat_of(name)]
    found += [_chat(folder, chat, settings) for chat in sorted(chats)]
    _refuse_doubles(folder, found)
    return tuple(sorted(found, key=lambda prompt: prompt.name))


def _names(folder: Path, settings: PromptSettings) -> list[str]:
    files = {
        path.relative_to(folder).as_posix()
        for pattern in settings.files
        for path in folder.glob(pattern)
        if path.is_file()
    }
    for name in files:
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise FolderRefused(folder / name, "its name is no UTF-8: rename it")
    return sorted(name for name in files if not _partial(name, settings.partials))


def is_template(path: Path, folder: Path, settings: PromptSettings) -> bool:
    """Whether a file, there or not, would be taken for one of the templates of a folder."""
    whole, within = path.resolve(), folder.resolve()
    if not whole.is_relative_to(within):
        return False
    name = f"/{whole.relative_to(within).as_posix()}"
    return any(fnmatch(name, f"/{pattern}".replace("/**/", "*/")) for pattern in settings.files)


def _partial(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(f"/{name}", pattern.replace("**/", "*/")) for pattern in patterns)


def _chat_of(name: str) -> bool:
    return name.rpartition("/")[0].endswith(CHAT)


def _target(name: str, settings: PromptSettings) -> str:
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.rpartition('.')[0] or last}{settings.suffix}"


def _chat(folder: Path, chat: str, settings: PromptSettings) -> Prompt:
    numbered: dict[int, Message] = {}
    for path in sorted((folder / chat).iterdir()):
        name = f"{chat}/{path.name}"
        if _partial(name, settings.partials) or not path.is_file():
            continue
        number, message = _message(path, name)
        if number in numbered:
            raise FolderRefused(path, f"another message has the number {number}, too")
        numbered[number] = message
    return Prompt(chat, f"{chat}.json", tuple(numbered[k] for k in sorted(numbered)))


def _message(path: Path, name: str) -> tuple[int, Message]:
    if found := _PLACEHOLDER.fullmatch(path.name):
        return int(found["number"]), Message("placeholder", placeholder=found["name"])
    found = _MESSAGE.fullmatch(path.name)
    if found is None or found["role"] not in ROLES:
        roles = ", ".join(ROLES)
        why = f"NUMBER.ROLE.j2 is due, or NUMBER.NAME.placeholder; roles are {roles}"
        raise FolderRefused(path, why)
    return int(found["number"]), Message(found["role"], template=name)


def _refuse_doubles(folder: Path, found: Sequence[Prompt]) -> None:
    seen: dict[str, str] = {}
    for prompt in found:
        other = seen.setdefault(prompt.target, prompt.name)
        if other != prompt.name:
            why = f"{other!r} and {prompt.name!r} would both become {prompt.target!r}"
            raise FolderRefused(folder, why)
