"""Titles: each kind of finding in a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compare.pairs import STACKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compare.pairs import Sides

TITLES: Mapping[str, str] = {
    "outcome_changed": "Another outcome",
    "code_changed": "Another error code",
    "grammar_broken": "Stream breaks its grammar",
    "frame_dropped": "Frame missing in {candidate}",
    "frame_added": "Frame only in {candidate}",
    "frame_replaced": "Frame replaced",
    "frame_moved": "Frame at another place",
    "frame_changed": "Frame changed",
    "chunks_moved": "Text cut elsewhere",
    "text_changed": "Final text differs",
    "reasoning_changed": "Reasoning differs",
    "text_late": "Text comes at another time",
    "text_shrank": "Text took back what was shown",
    "prompt_changed": "Prompt differs",
    "parameter_changed": "Model parameter differs",
    "tool_dropped": "Tool not called by {candidate}",
    "tool_added": "Tool called by {candidate} only",
    "tool_arguments": "Tool called with other arguments",
    "tool_order": "Tools called in another order",
    "write_changed": "Something else is written",
    "write_order": "Writes in another order",
    "call_changed": "Call with other arguments",
    "call_skipped": "Call not made by {candidate}",
    "call_extra": "Call made by {candidate} only",
    "site_changed": "Call made under another site",
    "call_unplayed": "Recorded call nobody asked for",
}


def title_of(kind: str, sides: Sides = STACKS) -> str:
    """Say what kind of finding it is, naming the candidate as its column does."""
    return TITLES[kind].format(candidate=sides[1])
