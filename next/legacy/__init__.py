"""The legacy stack: Jinja2 prompts, the OpenAI SDK, loops written by hand."""

from collections.abc import Mapping

from cutover import Stack
from legacy.chat import chat

STACKS: Mapping[str, Stack] = {"chat": chat}
"""The flows by name."""

__all__ = ["STACKS"]
