"""A folder of prompts: which files are templates, which form a chat, and what they become."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import msgspec

from contract.errors import CutoverError
from router.config.schema import PromptSettings
from rules.prompts import CHAT, PLACEHOLDER, ROLES, chat_file


class FolderRefused(CutoverError):
    """A folder of prompts is missing, or its layout is ambiguous."""

    def __init__(self, folder: Path, why: str) -> None:
        super().__init__(f"{str(folder)!r}: {why}")


class ChatPart(msgspec.Struct, frozen=True):
    """One part of a chat: the template of a role, or a placeholder for messages."""

    role: str
    template: str = ""
    placeholder: str = ""


class PromptFile(msgspec.Struct, frozen=True):
    """What becomes one file: a template, or all parts of a chat, in order."""

    name: str
    target: str
    parts: tuple[ChatPart, ...] = ()

    @property
    def templates(self) -> tuple[str, ...]:
        """Names of its templates."""
        if not self.parts:
            return (self.name,)
        return tuple(part.template for part in self.parts if part.template)

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Names under which messages are passed."""
        return tuple(part.placeholder for part in self.parts if part.placeholder)


def prompts_in(folder: Path, settings: PromptSettings) -> tuple[PromptFile, ...]:
    """List the prompts of a folder by name; raises `FolderRefused`."""
    if not folder.is_dir():
        raise FolderRefused(folder, "not a folder")
    names = _names(folder, settings)
    chats = {name.rpartition("/")[0] for name in names if _in_chat(name)}
    found = [PromptFile(name, _target(name, settings)) for name in names if not _in_chat(name)]
    found += [_chat(folder, chat, settings) for chat in chats]
    targets: dict[str, str] = {}
    for prompt in found:
        other = targets.setdefault(prompt.target, prompt.name)
        if other != prompt.name:
            why = f"{other!r} and {prompt.name!r} would both become {prompt.target!r}"
            raise FolderRefused(folder, why)
    return tuple(sorted(found, key=lambda prompt: prompt.name))


def is_template(path: Path, folder: Path, settings: PromptSettings) -> bool:
    """Whether a path, existing or not, would be a template of the folder."""
    whole, within = path.resolve(), folder.resolve()
    if not whole.is_relative_to(within):
        return False
    name = f"/{whole.relative_to(within).as_posix()}"
    return any(fnmatch(name, f"/{pattern}".replace("/**/", "*/")) for pattern in settings.files)


def _names(folder: Path, settings: PromptSettings) -> list[str]:
    files = {
        path.relative_to(folder).as_posix()
        for pattern in settings.files
        for path in folder.glob(pattern)
        if path.is_file()
    }
    for name in files:
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            raise FolderRefused(folder / name, "its name is not UTF-8: rename it")
    return sorted(name for name in files if not _partial(name, settings.partials))


def _partial(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(f"/{name}", pattern.replace("**/", "*/")) for pattern in patterns)


def _in_chat(name: str) -> bool:
    return name.rpartition("/")[0].endswith(CHAT)


def _target(name: str, settings: PromptSettings) -> str:
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.rpartition('.')[0] or last}{settings.suffix}"


def _chat(folder: Path, chat: str, settings: PromptSettings) -> PromptFile:
    numbered: dict[int, ChatPart] = {}
    for path in sorted((folder / chat).iterdir()):
        name = f"{chat}/{path.name}"
        if _partial(name, settings.partials) or not path.is_file():
            continue
        number, part = _chat_part(path, name)
        if number in numbered:
            raise FolderRefused(path, f"another message has the number {number}, too")
        numbered[number] = part
    return PromptFile(chat, f"{chat}.json", tuple(numbered[k] for k in sorted(numbered)))


def _chat_part(path: Path, name: str) -> tuple[int, ChatPart]:
    found = chat_file(path.name)
    if found is None:
        why = "expected NUMBER.ROLE.j2 or NUMBER.NAME.placeholder; roles are " + ", ".join(ROLES)
        raise FolderRefused(path, why)
    if found.role == PLACEHOLDER:
        return found.number, ChatPart(PLACEHOLDER, placeholder=found.name)
    return found.number, ChatPart(found.role, template=name)
