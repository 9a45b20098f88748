"""Who answers for models, and how far a failing one is rescued."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from router.sections.section import Count, Price, Seconds, Section


class Provider(Section, frozen=True):
    """`[providers.<name>]`: an OpenAI-compatible endpoint and its time limits."""

    base_url: str
    key_env: str = ""
    connect_seconds: Seconds = 5.0
    first_byte_seconds: Seconds = 30.0
    first_token_seconds: Seconds = 60.0
    idle_seconds: Seconds = 30.0
    total_seconds: Seconds = 600.0


class ModelEntry(Section, frozen=True):
    """`[models.<id>]`: who serves a model id; prices per million tokens."""

    provider: str
    model: str = ""
    context_tokens: Count = 128_000
    max_output_tokens: Count = 16_384
    input_price: Price | None = None
    output_price: Price | None = None
    fallbacks: tuple[str, ...] = ()

    @property
    def priced(self) -> bool:
        """Whether what it costs is known: it takes both prices."""
        return self.input_price is not None and self.output_price is not None


class Rescue(Section, frozen=True):
    """`[rescue]`: how far the model port goes when a provider fails (docs/rescue.md).

    Each model is asked `attempts` times at most for one answer; waits grow from
    `first_wait_seconds`, and a provider that asks for more than `longest_wait_seconds` is not
    waited for. A breaker opens when `breaker_ratio` of at least `breaker_calls` calls of the last
    `breaker_window_seconds` have failed, and lets a probe through `breaker_rest_seconds` later.
    """

    attempts: Annotated[int, Meta(ge=1, le=10)] = 3
    first_wait_seconds: Seconds = 0.5
    longest_wait_seconds: Seconds = 10.0
    breaker_window_seconds: Seconds = 30.0
    breaker_calls: Count = 10
    breaker_ratio: Annotated[float, Meta(gt=0, le=1)] = 0.5
    breaker_rest_seconds: Seconds = 10.0


class Embeddings(Section, frozen=True):
    """`[embeddings]`: what makes the vectors of the memory; without it full text is searched.

    `local` is the model of the extra `local-embeddings`; else `base_url`, `model`, `key_env` and
    `dimensions` name an OpenAI-compatible endpoint. `shortened` asks it for that many dimensions.
    Entries less like a query than `least_similarity` are not told.
    """

    local: bool = False
    base_url: str = ""
    model: str = ""
    key_env: str = ""
    dimensions: Annotated[int, Meta(ge=0, le=16_000)] = 0
    shortened: bool = False
    total_seconds: Seconds = 5.0
    least_similarity: Annotated[float, Meta(ge=0, lt=1)] = 0.0
