"""The legacy stack: hand-written pipelines with Jinja2 prompts, explicit loops, no framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from contract.flow import Flow
from legacy import chat, companion, ops, pipeline, session
from legacy.templates import FOLDER

_BUILDERS: Mapping[str, Callable[[Path], Flow]] = {
    "chat": chat.chat,
    "companion": companion.companion,
    "ops": ops.ops,
    "pipeline": pipeline.pipeline,
    "session": session.session,
}
"""Builders of the flows; each takes the folder of its prompts."""

FLOWS: Mapping[str, Flow] = {name: build(FOLDER) for name, build in _BUILDERS.items()}

_DIAGRAMS: Mapping[str, Mapping[str, str]] = {
    "chat": {"chat": chat.DIAGRAM},
    "companion": {
        "companion messages": companion.MESSAGES,
        "companion pictures": companion.PICTURES,
    },
    "ops": {"ops": ops.DIAGRAM, "ops deployment": ops.DEPLOYMENT},
    "pipeline": {"pipeline": pipeline.DIAGRAM},
    "session": {"session": session.DIAGRAM},
}


def with_prompts(folders: Mapping[str, Path]) -> Mapping[str, Flow]:
    """Build the flows that read their prompts from folders of their own.

    Raises `PromptRefused`.
    """
    return {name: build(folders[name]) for name, build in _BUILDERS.items() if name in folders}


def describe(flow: str) -> Mapping[str, str]:
    """Return the steps of a flow as Mermaid text, by title."""
    return _DIAGRAMS.get(flow, {})


__all__ = ["FLOWS", "describe", "with_prompts"]
