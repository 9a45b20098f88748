"""Fields of a model's answer that stacks send back as they came, within the round of tools."""

from __future__ import annotations

from typing import Final

MESSAGE_FIELDS: Final = (
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "thinking_blocks",
    "provider_specific_fields",
)
"""Of the message: some providers answer 400 where their reasoning does not come back."""
CALL_FIELDS: Final = ("extra_content", "thought_signature")
"""Of a tool call, such as Gemini's signatures."""
REASONING: Final = ("reasoning_content", "reasoning")
"""Names under which a delta carries text of the model's reasoning, the first that is there."""
