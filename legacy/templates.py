"""The prompts of the old stack: Jinja2 templates, read once."""

from __future__ import annotations

import logging
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, TemplateNotFound, select_autoescape

from rules.chat import DEFAULT_SYSTEM_PROMPT
from rules.conversation import Render

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent / "prompts"


def system_prompt(name: str, folder: Path = FOLDER, default: str = DEFAULT_SYSTEM_PROMPT) -> Render:
    """Compile a template; where the file is missing, the default is used and the log reports it."""
    # Prompts are plain text for a model: escaping for HTML would change what it reads.
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=select_autoescape((), default=False),
        keep_trailing_newline=True,
    )
    try:
        return environment.get_template(name).render
    except TemplateNotFound:
        log.warning("prompt %r is missing in %s: the built-in default is used", name, folder)
        return lambda parameters: default.format(**parameters)
