"""The prompts of the old stack: Jinja2 templates, read once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from jinja2 import (
    Environment,
    FileSystemLoader,
    Template,
    TemplateError,
    TemplateNotFound,
    select_autoescape,
)

from contract.flows.chat import PromptValue
from rules.prompts import (
    CHAT,
    PLACEHOLDER,
    ChatFile,
    ChatPrompt,
    PromptRefused,
    Render,
    chat_file,
    chat_prompt,
    check_roles,
)

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent / "prompts"


def read_prompts(flow: str, folder: Path, defaults: Mapping[str, str]) -> Mapping[str, Render]:
    """Read the prompts of a flow by name, as `read_prompt` reads each `FLOW_NAME.j2`."""
    return {
        name: read_prompt(f"{flow}_{name}.j2", folder, default)
        for name, default in defaults.items()
    }


def read_prompt(name: str, folder: Path, default: str) -> Render:
    """Compile a template `NAME.j2`, or the chat in the folder `NAME.chat`.

    Where both are missing, the default is used and the log reports it. Raises `PromptRefused`.
    """
    # Prompts are plain text for a model: escaping for HTML would change what it reads.
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=select_autoescape((), default=False),
        keep_trailing_newline=True,
    )
    chat = folder / f"{Path(name).stem}{CHAT}"
    if chat.is_dir():
        if (folder / name).exists():
            raise PromptRefused(chat, f"there is {name!r}, too: leave one of them")
        return _chat(environment, chat)
    try:
        return environment.get_template(name).render
    except TemplateNotFound:
        log.warning("prompt %r is missing in %s: the built-in default is used", name, folder)
        return lambda parameters: default.format(**parameters)
    except (TemplateError, UnicodeError) as error:
        raise PromptRefused(folder / name, str(error)) from error


def _chat(environment: Environment, folder: Path) -> Render:
    parts: dict[ChatFile, Template | None] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith("_") or not path.is_file():
            continue  # a part of other templates
        part = chat_file(path.name)
        if part is None:
            raise PromptRefused(path, "expected NUMBER.ROLE.j2 or NUMBER.NAME.placeholder")
        if any(part.number == other.number for other in parts):
            raise PromptRefused(path, f"another message has the number {part.number}, too")
        name = f"{folder.name}/{path.name}"
        try:
            parts[part] = None if part.role == PLACEHOLDER else environment.get_template(name)
        except (TemplateError, UnicodeError) as error:
            raise PromptRefused(path, str(error)) from error
    ordered = sorted(parts)
    roles = [part.role for part in ordered]
    check_roles(folder, roles)
    templates = [found for part in ordered if (found := parts[part]) is not None]

    def render(parameters: Mapping[str, PromptValue]) -> ChatPrompt:
        return chat_prompt(roles, [template.render(parameters) for template in templates])

    return render
