"""The legacy stack: Jinja2 prompts, the OpenAI SDK, loops written by hand."""

from collections.abc import Mapping

from cutover import Stack
from legacy.chat import chat
from legacy.ops import ops

STACKS: Mapping[str, Stack] = {"chat": chat, "ops": ops}
"""The flows by name."""

__all__ = ["STACKS"]
