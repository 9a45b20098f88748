"""Folders of prompts checked and converted: what there is, and what becomes of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from compare.layers.prompt_sources import MappedPrompt, PromptMap
from cutover.prompts.case import Case
from cutover.prompts.environment import prompting
from cutover.prompts.folder import FolderRefused, is_template, prompts_in
from cutover.prompts.judging import judge
from cutover.prompts.report import SILENT, PromptReport, entry_of
from cutover.prompts.writing import Outcome, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cutover.prompts.case import Proof
    from cutover.prompts.folder import Prompt
    from cutover.prompts.judging import Judged
    from cutover.prompts.report import Entry
    from router.config import PromptSettings

MAP = "prompts.map.json"
_ITSELF = "it would be a template itself: another suffix is due, or a folder elsewhere"


@dataclass(frozen=True, slots=True)
class Checked:
    """A folder that was read: its prompts, and what was found of each of their templates."""

    folder: Path
    settings: PromptSettings
    prompts: tuple[Prompt, ...]
    judged: Mapping[str, Judged]
    silent: bool

    def parts(self, prompt: Prompt) -> list[Judged]:
        """Give what was found of a prompt's templates."""
        return [self.judged[name] for name in prompt.templates]

    def report(self, proofs: Mapping[str, Proof] | None = None) -> PromptReport:
        """Sum up all prompts, with their proofs where there are any."""
        return PromptReport(
            folder=str(self.folder),
            prompts=tuple(self._entry(prompt, proofs or {}) for prompt in self.prompts),
            notes=(SILENT,) if self.silent else (),
        )

    def _entry(self, prompt: Prompt, proofs: Mapping[str, Proof]) -> Entry:
        entry = entry_of(prompt, self.parts(prompt))
        return msgspec.structs.replace(entry, proof=proofs.get(prompt.name))


def checked(folder: Path, settings: PromptSettings, on_prompt: Callable[[int], None]) -> Checked:
    """Judge all prompts of a folder; `on_prompt` hears how many there are to come, once each.

    Raises `FolderRefused`, `NotThere`.
    """
    prompts = prompts_in(folder, settings)
    made = prompting(settings, folder)
    judged: dict[str, Judged] = {}
    for prompt in prompts:
        for name in prompt.templates:
            judged[name] = judge(made, name)
        on_prompt(len(prompts))
    return Checked(folder, settings, prompts, judged, made.silent)


def refuse_templates(found: Checked, out: Path) -> None:
    """Raise `FolderRefused` where a converted prompt would lie among the templates as one."""
    for prompt in found.prompts:
        if is_template(out / prompt.target, found.folder, found.settings):
            raise FolderRefused(out / prompt.target, _ITSELF)


def outcomes(found: Checked, entries: Sequence[Entry], out: Path) -> dict[str, Outcome]:
    """Give the files converted prompts become, by name; raises `NotEncoded`."""
    wanted = {entry.name for entry in entries}
    return {
        prompt.name: _outcome(found, prompt, out)
        for prompt in found.prompts
        if prompt.name in wanted
    }


def _outcome(found: Checked, prompt: Prompt, out: Path) -> Outcome:
    path = out / prompt.target
    like = found.folder / (prompt.templates or (prompt.name,))[0]
    if prompt.messages:
        return Outcome(path, chat_document(found, prompt), like if like.is_file() else None)
    text = found.judged[prompt.name].text
    return Outcome(path, encoded(path, text, found.settings.encoding), like)


def chat_document(found: Checked, prompt: Prompt) -> bytes:
    """Write a chat as what ChatPromptTemplate takes: a list of roles and contents."""
    messages = [
        {"role": message.role, "content": f"{{{message.placeholder}}}"}
        if message.placeholder
        else {"role": message.role, "content": found.judged[message.template].text}
        for message in prompt.messages
    ]
    return msgspec.json.format(msgspec.json.encode(messages), indent=2) + b"\n"


def cases_of(found: Checked, files: Mapping[str, Outcome]) -> list[Case]:
    """Give what is to be proved: each prompt as its file will be read again."""
    encoding = found.settings.encoding
    return [
        Case(
            prompt.name,
            prompt.templates,
            entry_of(prompt, found.parts(prompt)).variables,
            files[prompt.name].content.decode("utf-8" if prompt.messages else encoding),
            bool(prompt.messages),
            tuple(m.placeholder for m in prompt.messages if m.placeholder),
        )
        for prompt in found.prompts
        if prompt.name in files
    ]


def map_of(found: Checked, written: Mapping[str, str]) -> PromptMap:
    """Map all templates, those that stay too; `written` are the files of those converted."""
    return PromptMap(
        tuple(
            MappedPrompt(name, found.judged[name].pieces, written.get(prompt.name, ""))
            for prompt in found.prompts
            for name in prompt.templates
        )
    )


def map_document(made: PromptMap) -> bytes:
    """Write a map as a file's content."""
    return msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n"
