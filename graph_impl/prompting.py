"""The prompts of the new stack: f-string PromptTemplates, read once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from langchain_core.prompts import PromptTemplate

from contract.chat import PromptValue
from rules.texts import DEFAULT_SYSTEM_PROMPT

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent / "prompts"

Render = Callable[[Mapping[str, PromptValue]], str]


def system_prompt(name: str, folder: Path = FOLDER, default: str = DEFAULT_SYSTEM_PROMPT) -> Render:
    """Read a template; a missing file is said in the log and stood in for by the default."""
    try:
        source = (folder / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        log.warning("prompt %r is missing in %s: the built-in default is used", name, folder)
        source = default
    template = PromptTemplate.from_template(source)

    def render(parameters: Mapping[str, PromptValue]) -> str:
        # Only what the template names: a parameter called "self" must not reach format().
        return template.format(**{name: parameters[name] for name in template.input_variables})

    return render
