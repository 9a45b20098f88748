"""What the baseline is asked."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=65_536)]


class Settings(BaseModel):
    """What a request may set of the model."""

    model_config = ConfigDict(frozen=True)

    model_id: Identifier = "gpt-4.1"
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.7
    max_tokens: Annotated[int, Field(ge=1, le=65_536)] | None = None
    enable_tools: bool = True
    max_tool_iterations: Annotated[int, Field(ge=0, le=50)] = 10


class ChatBody(BaseModel):
    """Body of `POST /chat/sse`."""

    model_config = ConfigDict(frozen=True)

    message_id: Identifier
    content: Text | None = None
    user_name: Name | None = None
    chat_id: Identifier | None = None
    user_id: Identifier | None = None
    # pydantic keeps the field's own name for itself.
    settings: Settings = Field(default=Settings(), alias="model_config")
    prompt_params: dict[str, str | int | float | None] = {}
