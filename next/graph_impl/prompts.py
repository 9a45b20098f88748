"""The prompts of the graph stack, as LangChain's `PromptTemplate`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from langchain_core.prompts import PromptTemplate

from rules.prompts import as_texts, default_prompt

FOLDER = Path(__file__).parent / "prompts"

log = logging.getLogger(__name__)


@cache
def _template(path: Path) -> PromptTemplate:
    return PromptTemplate.from_template(path.read_text("utf-8").removesuffix("\n"))


def prompt(name: str, parameters: Mapping[str, Any], folder: Path = FOLDER) -> str:
    """Return a prompt, filled in; a missing file is replaced by the built-in one, and logged."""
    try:
        template = _template(folder / f"{name}.txt")
    except FileNotFoundError:
        log.warning("prompt=%s missing folder=%s: the built-in one stands in", name, folder)
        return default_prompt(name, parameters)
    texts = as_texts(parameters)
    return template.format(**{one: texts.get(one, "") for one in template.input_variables})
