"""The prompts of the new stack: f-string PromptTemplates and chat templates, read once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate

from contract.flows.chat import PromptValue
from rules.prompts import (
    CHAT,
    ChatPrompt,
    PromptRefused,
    Render,
    chat_prompt,
    check_roles,
)

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent / "prompts"

RenderText = Callable[[Mapping[str, Any]], str]
RenderChat = Callable[[Mapping[str, object]], list[str]]


def read_prompts(flow: str, folder: Path, defaults: Mapping[str, str]) -> Mapping[str, Render]:
    """Read the prompts of a flow by name, as `read_prompt` reads each `FLOW_NAME.md`."""
    return {
        name: read_prompt(f"{flow}_{name}.md", folder, default)
        for name, default in defaults.items()
    }


def read_prompt(name: str, folder: Path, default: str) -> Render:
    """Read a template `NAME.md`, or the chat template `NAME.chat.json`.

    Where both are missing, the default is used and the log reports it. Raises `PromptRefused`.
    """
    path, chat = folder / name, folder / f"{Path(name).stem}{CHAT}.json"
    if chat.exists():
        if path.exists():
            raise PromptRefused(chat, f"there is {name!r}, too: leave one of them")
        return _chat(chat)
    try:
        source = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        log.warning("prompt %r is missing in %s: the built-in default is used", name, folder)
        source = default
    except (OSError, UnicodeError) as error:
        raise PromptRefused(path, str(error)) from error
    try:
        return prompt_of(source, missing="")
    except ValueError as error:
        raise PromptRefused(path, str(error)) from error


def _chat(path: Path) -> Render:
    try:
        messages = msgspec.json.decode(path.read_bytes(), type=list[dict[str, str]])
        roles = [message["role"] for message in messages]
        check_roles(path, roles)
        contents = chat_of(messages, missing="")
    except (OSError, ValueError, KeyError) as error:
        raise PromptRefused(path, f"no chat template: {error}") from error

    def render(parameters: Mapping[str, PromptValue]) -> ChatPrompt:
        return chat_prompt(roles, contents(parameters))

    return render


def prompt_of(source: str, *, missing: str | None = None) -> RenderText:
    """Take a text as an f-string template; raises `ValueError` where it is none.

    A parameter that is not passed is written as `missing`, as Jinja2 writes nothing; None raises
    `KeyError`.
    """
    template = PromptTemplate.from_template(source)

    def render(parameters: Mapping[str, PromptValue]) -> str:
        # Only what the template names: a parameter called "self" must not reach format().
        return template.format(**_named(template.input_variables, parameters, missing))

    return render


def chat_of(messages: Sequence[Mapping[str, str]], *, missing: str | None = None) -> RenderChat:
    """Take roles and contents as a chat template; raises `ValueError` where they are none.

    What is rendered are the contents of all but placeholders; `missing` as in `prompt_of`.
    """
    template = ChatPromptTemplate([dict(message) for message in messages])

    def render(parameters: Mapping[str, object]) -> list[str]:
        # Placeholders are no input variables: they stay empty.
        values = _named(template.input_variables, parameters, missing)
        return [str(message.content) for message in template.format_messages(**values)]

    return render


def _named(
    names: Sequence[str], parameters: Mapping[str, Any], missing: str | None
) -> dict[str, Any]:
    if missing is None:
        return {name: parameters[name] for name in names}
    return {name: parameters.get(name, missing) for name in names}


def jinja2_prompt_of(source: str) -> Callable[[Mapping[str, object]], str]:
    """Read a text as a Jinja2 PromptTemplate; raises `ValueError` if it is none."""
    template = PromptTemplate.from_template(source, template_format="jinja2")
    return lambda parameters: template.format(**parameters)
