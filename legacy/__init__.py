"""The legacy stack: hand-written pipelines with Jinja2 prompts, explicit loops, no framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from contract.flow import Flow
from legacy import chat, companion, pipeline, session

FLOWS: Mapping[str, Flow] = {
    "chat": chat.chat(),
    "companion": companion.companion(),
    "pipeline": pipeline.pipeline(),
    "session": session.session(),
}

_DIAGRAMS: Mapping[str, Mapping[str, str]] = {
    "chat": {"chat": chat.DIAGRAM},
    "companion": {
        "companion messages": companion.MESSAGES,
        "companion pictures": companion.PICTURES,
    },
    "pipeline": {"pipeline": pipeline.DIAGRAM},
    "session": {"session": session.DIAGRAM},
}


_WITH_PROMPTS: Mapping[str, Callable[[Path], Flow]] = {
    "chat": chat.chat,
    "companion": companion.companion,
    "pipeline": pipeline.pipeline,
    "session": session.session,
}


def with_prompts(folders: Mapping[str, Path]) -> Mapping[str, Flow]:
    """Build the flows that read their prompts from folders of their own.

    Raises `PromptRefused`.
    """
    return {name: build(folders[name]) for name, build in _WITH_PROMPTS.items() if name in folders}


def describe(flow: str) -> Mapping[str, str]:
    """Return the steps of a flow as Mermaid text, by title."""
    return _DIAGRAMS.get(flow, {})


__all__ = ["FLOWS", "describe", "with_prompts"]
