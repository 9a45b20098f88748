"""Converted prompts as files: written whole or not at all, and over nothing unasked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from compare.layers.prompt_sources import MappedPrompt, PromptMap
from contract.errors import CutoverError
from cutover.prompts.examination import ExaminationOrder, ExaminedPrompt
from cutover.prompts.folder import FolderRefused, is_template
from effects.files import write_whole

MAP = "prompts.map.json"


class WouldOverwrite(CutoverError):
    """Files with other content exist."""

    def __init__(self, paths: Sequence[Path]) -> None:
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        super().__init__(
            f"{str(paths[0])!r}{more} would be overwritten; nothing is written (--force overwrites)"
        )


class PathBlocked(CutoverError):
    """A folder is where a file has to be, or a file where a folder has to be."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{str(path)!r} is {what}; nothing is written")


class PlannedFile(msgspec.Struct, frozen=True):
    """A file to write: its bytes, and the file whose mode it takes, if any."""

    path: Path
    content: bytes
    like: Path | None = None

    @property
    def exists(self) -> bool:
        """Whether it is there with this content."""
        return self.path.is_file() and self.path.read_bytes() == self.content

    def write(self) -> None:
        """Write it whole."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        mode = None if self.like is None else self.like.stat().st_mode & 0o777
        write_whole(self.path, self.content, mode)


def write_converted(
    prompts: Iterable[ExaminedPrompt], order: ExaminationOrder, out: Path, *, force: bool
) -> dict[str, bool]:
    """Write each prompt that is fit, and the map of all; True for those that were written.

    Those that were there with the same content get False, those that stay are missing. Raises
    `FolderRefused`, `PathBlocked`, `WouldOverwrite` before anything is written.
    """
    prompts = tuple(prompts)
    for prompt in prompts:
        target = out / prompt.source.target
        if is_template(target, order.folder, order.settings):
            why = "it would be a template itself: choose another suffix or folder"
            raise FolderRefused(target, why)
    planned = {prompt.source.name: _planned(prompt, order, out) for prompt in prompts if prompt.fit}
    fresh = {name: file for name, file in planned.items() if not file.exists}
    for file in fresh.values():
        _refuse_blocked(file.path)
    # A dangling link exists, too.
    existing = [file.path for file in fresh.values() if os.path.lexists(file.path)]
    if existing and not force:
        raise WouldOverwrite(existing)
    for file in fresh.values():
        file.write()
    PlannedFile(out / MAP, map_document(prompts, {p.source.name for p in prompts if p.fit})).write()
    return {name: name in fresh for name in planned}


def map_document(prompts: Iterable[ExaminedPrompt], written: Iterable[str] = ()) -> bytes:
    """Encode the map of all templates, those that stay included, as a file's content."""
    names = frozenset(written)
    made = PromptMap(
        tuple(
            MappedPrompt(
                part.name, part.pieces, prompt.source.target if prompt.source.name in names else ""
            )
            for prompt in prompts
            for part in prompt.templates
        )
    )
    return msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n"


def _planned(prompt: ExaminedPrompt, order: ExaminationOrder, out: Path) -> PlannedFile:
    source = prompt.source
    like = order.folder / (source.templates or (source.name,))[0]
    encoding = "utf-8" if source.parts else order.settings.encoding
    content = prompt.content.encode(encoding)
    return PlannedFile(out / source.target, content, like if like.is_file() else None)


def _refuse_blocked(path: Path) -> None:
    if path.is_dir():
        raise PathBlocked(path, "a folder, where a prompt has to be written")
    above = next((folder for folder in path.parents if os.path.lexists(folder)), None)
    if above is not None and not above.is_dir():
        raise PathBlocked(above, "not a folder, where prompts have to be written")
