"""The prompts of the new stack: f-string PromptTemplates, read once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from langchain_core.prompts import ChatPromptTemplate, PromptTemplate

from contract.flows.chat import PromptValue
from rules.chat import DEFAULT_SYSTEM_PROMPT
from rules.conversation import Render

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent / "prompts"

RenderChat = Callable[[Mapping[str, object]], list[str]]


def system_prompt(name: str, folder: Path = FOLDER, default: str = DEFAULT_SYSTEM_PROMPT) -> Render:
    """Read a template; where the file is missing, the default is used and the log reports it."""
    try:
        source = (folder / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        log.warning("prompt %r is missing in %s: the built-in default is used", name, folder)
        source = default
    return prompt_of(source)


def prompt_of(source: str) -> Render:
    """Take a text as an f-string template; raises `ValueError` where it is none."""
    template = PromptTemplate.from_template(source)

    def render(parameters: Mapping[str, PromptValue]) -> str:
        # Only what the template names: a parameter called "self" must not reach format().
        return template.format(**{name: parameters[name] for name in template.input_variables})

    return render


def chat_of(messages: Sequence[Mapping[str, str]]) -> RenderChat:
    """Take roles and contents as a chat template; raises `ValueError` where they are none."""
    template = ChatPromptTemplate([dict(message) for message in messages])

    def render(parameters: Mapping[str, object]) -> list[str]:
        return [str(message.content) for message in template.format_messages(**parameters)]

    return render


def jinja2_prompt_of(source: str) -> Callable[[Mapping[str, object]], str]:
    """Read a text as a Jinja2 PromptTemplate; raises `ValueError` if it is none."""
    template = PromptTemplate.from_template(source, template_format="jinja2")
    return lambda parameters: template.format(**parameters)
