"""The Jinja2 prompts of the legacy stack."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, TemplateNotFound

from rules.prompts import default_prompt

FOLDER = Path(__file__).parent / "prompts"

log = logging.getLogger(__name__)


@cache
def _environment(folder: Path) -> Environment:
    loader = FileSystemLoader(folder)
    # Prompts are no HTML, and escaping would change them.
    return Environment(loader=loader, autoescape=False)  # noqa: S701


def render(name: str, parameters: Mapping[str, Any], folder: Path = FOLDER) -> str:
    """Return a prompt, filled in; a missing file is replaced by the built-in one, and logged."""
    try:
        return _environment(folder).get_template(f"{name}.j2").render(parameters)
    except TemplateNotFound:
        log.warning("prompt=%s missing folder=%s: the built-in one stands in", name, folder)
        return default_prompt(name, parameters)
