"""The legacy stack: Jinja2 prompts, the OpenAI SDK, loops written by hand."""

from collections.abc import Mapping

from cutover import Stack
from legacy.chat import chat
from legacy.companion import companion
from legacy.ops import ops
from legacy.pipeline import pipeline
from legacy.session import session

STACKS: Mapping[str, Stack] = {
    "chat": chat,
    "companion": companion,
    "ops": ops,
    "pipeline": pipeline,
    "session": session,
}
"""The flows by name."""

__all__ = ["STACKS"]
