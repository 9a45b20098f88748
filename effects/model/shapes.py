"""What providers' answers mean, as one table: complete, speech, errors and what follows them.

Each row names the providers whose answers it was learnt from; docs/rescue.md shows the table. An
answer that a row does not know yet is a row to add here, and a fixture in the tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from contract.errors import FaultCode

Remedy = Literal["again", "move", "restart", "larger", "stop"]
"""What a fault calls for.

`again`: the same model after a wait, then the next one. `move`: the next model. `restart`: the
next model or, where there is none, the same one once more. `larger`: a model with a larger
context. `stop`: nothing could help.
"""

REMEDIES: Final[Mapping[FaultCode, Remedy]] = {
    "model_rate_limited": "again",
    "model_unavailable": "again",
    "model_truncated": "again",
    "model_error": "again",
    "model_timeout_idle": "again",
    # The limit is what the operator lets a user wait for a sign; no user waits for it twice.
    "model_timeout_first_byte": "move",
    "model_timeout_first_token": "move",
    "model_auth": "move",
    "unknown_model": "move",
    "model_context_length": "larger",
}
"""By fault; one that calling again could not help moves on instead. Others stop."""


@dataclass(frozen=True, slots=True)
class ErrorShape:
    """One shape of error, and its fault.

    It matches where the status is one of `statuses` (none named: any) and, if either is given, one
    of `words` (codes and types, in lower case) or `sentence` is found. `meaning` is for people.
    """

    meaning: str
    fault: FaultCode
    learnt_from: tuple[str, ...]
    statuses: frozenset[int] = frozenset()
    words: frozenset[str] = frozenset()
    sentence: re.Pattern[str] | None = None
    retryable: bool = False

    def matches(self, status: int, words: Iterable[str], message: str) -> bool:
        """Whether an error has this shape; `status` 0: inside a stream, and none is named."""
        if self.statuses and status not in self.statuses and (status or self.is_about_status):
            return False
        if self.is_about_status:
            return True
        return not self.words.isdisjoint(words) or (
            self.sentence is not None and self.sentence.search(message) is not None
        )

    @property
    def is_about_status(self) -> bool:
        """Whether the status alone says it."""
        return not self.words and self.sentence is None


def _set(*words: str) -> frozenset[str]:
    return frozenset(words)


def _sentence(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_REQUEST: Final = frozenset({400, 413, 422})

ERRORS: Final = (
    ErrorShape(
        "the content policy",
        "model_content_policy",
        ("openai", "azure", "openrouter"),
        frozenset(range(200, 500)),
        _set(
            "content_filter",
            "content_policy",
            "content_policy_violation",
            "moderation_blocked",
            "responsibleaipolicyviolation",
            "flagged_input",
        ),
    ),
    ErrorShape(
        "nothing left to pay with",
        "model_rate_limited",
        ("openai",),
        frozenset({402, 403, 429}),
        _set("insufficient_quota", "billing_hard_limit_reached"),
    ),
    ErrorShape(
        "one request above the limit of a minute",
        "model_rate_limited",
        ("groq",),
        frozenset({413}),
        _set("rate_limit_exceeded"),
    ),
    ErrorShape(
        "the context length, by a code",
        "model_context_length",
        ("openai", "azure", "groq", "llama.cpp"),
        words=_set("context_length_exceeded", "exceed_context_size_error"),
    ),
    ErrorShape(
        "the context length, in a sentence",
        "model_context_length",
        (
            *("openai", "vllm", "tgi", "gemini", "xai", "mistral", "together", "openrouter"),
            *("anthropic", "lm studio", "llama.cpp"),
        ),
        _REQUEST,
        sentence=_sentence(
            r"context.?(length|window|size)|maximum (context|prompt length)"
            r"|(prompt|input) is too long|too many tokens|token count.{1,40}exceeds"
            r"|tokens \+ `max_new_tokens` must be|`inputs` must have less than"
        ),
    ),
    ErrorShape(
        "a request too large", "model_context_length", ("mistral", "ingress"), frozenset({413})
    ),
    ErrorShape(
        "a model not served here, by a code",
        "unknown_model",
        ("openai", "azure", "groq", "mistral", "together"),
        frozenset({400, 403, 404, 410, 422}),
        _set(
            "model_not_found",
            "deploymentnotfound",
            "model_decommissioned",
            "invalid_model",
            "model_not_available",
            "operationnotsupported",
        ),
    ),
    ErrorShape(
        "a model not served here, by the type of its 404",
        "unknown_model",
        ("vllm", "ollama", "gemini", "anthropic"),
        frozenset({404}),
        _set("notfounderror", "not_found_error", "not_found"),
    ),
    ErrorShape(
        "a model not served here, in a sentence",
        "unknown_model",
        ("vllm", "ollama", "xai", "openrouter"),
        frozenset({400, 404, 410}),
        sentence=_sentence(
            r"\bmodel\b.{1,120}(does not exist|not found|has been (decommissioned|retired))"
            r"|not a valid model|invalid model\b|model not found|no endpoints found"
        ),
    ),
    ErrorShape(
        "nothing served at this address",
        "model_unavailable",
        ("ingress", "vllm"),
        frozenset({404, 405, 410, 501, 505}),
    ),
    ErrorShape(
        "a redirect, which is not followed",
        "model_unavailable",
        ("ingress",),
        frozenset(range(300, 400)),
    ),
    ErrorShape(
        "a wrong key, in a sentence",
        "model_auth",
        ("gemini", "xai"),
        frozenset({400}),
        sentence=_sentence(r"api key not valid|(incorrect|invalid) api key"),
    ),
    ErrorShape("a wrong key", "model_auth", ("openai", "azure"), frozenset({401, 403})),
    ErrorShape("an empty account", "model_rate_limited", ("openrouter",), frozenset({402})),
    ErrorShape(
        "too many requests",
        "model_rate_limited",
        ("openai", "gemini", "tgi"),
        frozenset({429}),
        retryable=True,
    ),
    ErrorShape(
        "overloaded or broken",
        "model_unavailable",
        ("openai", "anthropic", "gemini", "openrouter"),
        frozenset({408, 409, 425, *range(500, 600)}),
        retryable=True,
    ),
)
"""Errors by their shape; the first that matches counts, and any other is `model_bad_request`.

Inside a stream those of a request count likewise; any other is `model_error`, and calling again
may help where its status says so, or one of `BUSY` does.
"""

OF_THE_REQUEST: Final[frozenset[FaultCode]] = frozenset(
    {"model_content_policy", "model_context_length", "unknown_model"}
)
"""Faults that mean the same inside a stream as by a status."""

BUSY: Final[Mapping[str, tuple[str, ...]]] = {
    "overloaded": ("tgi", "openai"),
    "overloaded_error": ("anthropic",),
    "rate_limit_error": ("anthropic",),
    "rate_limit_exceeded": ("openai", "groq"),
    "resource_exhausted": ("gemini",),
    "server_error": ("openai", "llama.cpp"),
    "timeout": ("openrouter",),
    "unavailable": ("gemini",),
}
"""Codes and types of an error inside a stream after which calling again may help."""

INTERRUPTED: Final[Mapping[str, tuple[str, ...]]] = {
    "abort": ("vllm", "sglang"),
    "error": ("openrouter",),
    "insufficient_system_resource": ("deepseek",),
    "network_error": ("zhipu",),
}
"""Finish reasons of answers that were broken off; with any other one an answer is complete.

`[DONE]` and the end of the connection complete nothing: without a finish reason an answer is cut.
"""

UNFINISHED: Final = frozenset({"", "null"})
"""Texts that stand for no finish reason."""

Track = Literal["text", "reasoning", "calls", "unread"]

SPEECH: Final[Mapping[str, tuple[Track, tuple[str, ...]]]] = {
    "content": ("text", ("openai", "mistral")),
    "refusal": ("text", ("openai",)),
    "reasoning_content": ("reasoning", ("deepseek", "vllm", "xai", "llama.cpp")),
    "reasoning": ("reasoning", ("openrouter", "groq", "ollama", "vllm")),
    "reasoning_details": ("reasoning", ("openrouter",)),
    "reasoning_text": ("reasoning", ("openrouter",)),
    "thinking": ("reasoning", ("ollama", "sglang")),
    "tool_calls": ("calls", ("openai",)),
    "function_call": ("unread", ("openai",)),
    "audio": ("unread", ("openai",)),
}
"""Fields of a delta that are speech.

What is `unread` ends the wait for the first token and is passed on at once, but no chat shows it.
So is every other field with a text in it, but for those of `NO_SPEECH`.
"""

NO_SPEECH: Final = frozenset(
    {"role", "name", "id", "type", "index", "tool_call_id", "metadata", "provider_specific_fields"}
)
"""Fields of a delta that say nothing, whatever they hold."""
