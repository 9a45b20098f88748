"""What a model is held to before it is asked, and what it is asked, whatever the flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from contract.errors import Refused
from contract.model import ModelCall
from rules.messages import acceptable

if TYPE_CHECKING:
    from contract.model import Message, ModelInfo
    from contract.tools import ToolSpec


class Asking(Protocol):
    """How a flow asks its model; no `max_tokens`, or 0 of them, are the model's own limit."""

    @property
    def model_id(self) -> str:
        """The model."""
        ...

    @property
    def temperature(self) -> float:
        """From 0 to 2."""
        ...

    @property
    def max_tokens(self) -> int | None:
        """Of one answer."""
        ...


def unknown_model(model_id: str) -> Refused:
    """Refuse a model nobody registered."""
    return Refused(422, "unknown_model", f"no model {model_id!r} is registered")


def check_limits(max_tokens: int | None, info: ModelInfo) -> None:
    """Refuse what the model cannot do."""
    if max_tokens is not None and max_tokens > info.max_output_tokens:
        raise Refused(
            422, "max_tokens_too_large", f"at most {info.max_output_tokens} tokens with this model"
        )


def question(
    asking: Asking,
    messages: tuple[Message, ...],
    tools: tuple[ToolSpec, ...],
    *,
    last: bool,
) -> ModelCall:
    """Build a question to the model; the `last` one may not call tools."""
    return ModelCall(
        model_id=asking.model_id,
        messages=acceptable(messages, {tool.name for tool in tools}),
        temperature=asking.temperature,
        max_tokens=asking.max_tokens or None,
        tools=tools,
        tool_choice=("none" if last else "auto") if tools else None,
    )
