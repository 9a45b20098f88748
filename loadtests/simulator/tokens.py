"""Tokens, estimated.

A token is a word of Latin letters with the space before it, up to three digits, one or two Chinese
characters, a run of white space, or any other single character. A message costs four tokens more
and the prompt three (the overhead OpenAI documents for chat models), a picture 85, an offered tool
what its JSON holds. An estimate, but one rule for prompt, stream and plain body.
"""

import re

import msgspec

from loadtests.simulator.request import ChatCompletionRequest, Message

PIECE = re.compile(r" ?[A-Za-z\u00c0-\u024f']+| ?\d{1,3}|[\u3400-\u9fff]{1,2}|\s+|\S")
PER_MESSAGE = 4
PER_PROMPT = 3
PER_PICTURE = 85


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one call; reasoning is part of the completion."""

    prompt: int
    completion: int
    reasoning: int

    def encode(self) -> bytes:
        """The usage object as JSON."""
        return msgspec.json.encode(
            {
                "prompt_tokens": self.prompt,
                "completion_tokens": self.completion,
                "total_tokens": self.prompt + self.completion,
                "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
                "completion_tokens_details": {
                    "reasoning_tokens": self.reasoning,
                    "audio_tokens": 0,
                },
            }
        )


def pieces(text: str) -> list[str]:
    """Cut a text into tokens; joined again they are the text."""
    return PIECE.findall(text)


def count(text: str) -> int:
    """Tokens of a text."""
    return len(PIECE.findall(text))


def prompt_tokens(request: ChatCompletionRequest) -> int:
    """Tokens of everything a request sends to the model."""
    tools = sum(count(msgspec.json.encode(tool).decode()) for tool in request.tools or ())
    return PER_PROMPT + tools + sum(map(_message_tokens, request.messages))


def _message_tokens(message: Message) -> int:
    calls = sum(
        count(call.function.name) + count(call.function.arguments)
        for call in message.tool_calls or ()
    )
    return PER_MESSAGE + count(message.text) + calls + PER_PICTURE * len(message.pictures)
