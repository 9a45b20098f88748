"""Models and embedders from settings: which provider serves which model, with which key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from contract.errors import CutoverError
from effects.memory.embeddings import Embedder, EndpointEmbedder
from effects.model import (
    BreakerPolicy,
    LimitedModel,
    Limits,
    ModelEntry,
    ModelRegistry,
    Prices,
    Provider,
    RescuePolicy,
    RescuingModel,
    Secret,
)
from router.config.schema import (
    EmbeddingSettings,
    ModelSettings,
    ProviderSettings,
    RescueSettings,
    Settings,
)

DEFAULT_MODEL = "gpt-4.1"
KEY = "OPENAI_API_KEY"
BASE_URL = "OPENAI_BASE_URL"
_OPENAI = "https://api.openai.com/v1"
_EMBEDDINGS = "embeddings"


class KeyMissing(CutoverError):
    """A provider's key is to come from a variable that is not set."""

    def __init__(self, provider: str, variable: str) -> None:
        super().__init__(f"provider {provider!r} needs its key in the variable {variable!r}")


def model_entries(settings: Settings, environ: Mapping[str, str]) -> tuple[ModelEntry, ...]:
    """Return the registry's entries; with nothing configured, OpenAI's from the environment.

    Raises:
        KeyMissing: a configured key is not in the environment.
    """
    providers, models = settings.providers, settings.models
    if not models and environ.get(KEY):
        base_url = environ.get(BASE_URL) or _OPENAI
        providers = {"openai": ProviderSettings(base_url=base_url, key_env=KEY)}
        models = {DEFAULT_MODEL: ModelSettings(provider="openai", model=DEFAULT_MODEL)}
    built = {name: _provider(name, section, environ) for name, section in providers.items()}
    return tuple(_entry(name, section, built) for name, section in models.items())


def rescue_policy(section: RescueSettings) -> RescuePolicy:
    """Return the policy of the model port."""
    return RescuePolicy(
        attempts=section.attempts,
        first_wait=section.first_wait_seconds,
        longest_wait=section.longest_wait_seconds,
        hedge=section.hedge_seconds or None,
        breaker=BreakerPolicy(
            window=section.breaker_window_seconds,
            calls=section.breaker_calls,
            ratio=section.breaker_ratio,
            rest=section.breaker_rest_seconds,
        ),
    )


def _provider(name: str, section: ProviderSettings, environ: Mapping[str, str]) -> Provider:
    key = environ.get(section.key_env, "") if section.key_env else ""
    if section.key_env and not key:
        raise KeyMissing(name, section.key_env)
    limits = Limits(
        connect=section.connect_seconds,
        first_byte=section.first_byte_seconds,
        first_token=section.first_token_seconds,
        idle=section.idle_seconds,
        total=section.total_seconds,
    )
    return Provider(name, section.base_url, Secret(key), limits)


def _entry(model_id: str, section: ModelSettings, providers: Mapping[str, Provider]) -> ModelEntry:
    prices = Prices(section.input_price or 0.0, section.output_price or 0.0)
    return ModelEntry(
        model_id=model_id,
        provider=providers[section.provider],
        model=section.model or model_id,
        context_tokens=section.context_tokens,
        max_output_tokens=section.max_output_tokens,
        prices=prices if section.priced else None,
        fallbacks=section.fallbacks,
        first_token=section.first_token_seconds,
    )


@dataclass(frozen=True, slots=True)
class ShadowModel:
    """The model that shadows call: the same models, with connections and breakers of its own."""

    registry: ModelRegistry
    model: RescuingModel
    port: LimitedModel

    @classmethod
    def of(cls, entries: Sequence[ModelEntry], policy: RescuePolicy, most: int) -> ShadowModel:
        """Make one for `most` calls at once; connections are opened at the first call."""
        registry = ModelRegistry(entries)
        model = RescuingModel(registry, policy)
        return cls(registry, model, LimitedModel(model, most))


async def open_embedder(
    section: EmbeddingSettings, environ: Mapping[str, str], stack: AsyncExitStack
) -> Embedder | None:
    """Open the embedder, closed with `stack`; None where none is configured.

    Raises `MissingExtra` and `KeyMissing`.
    """
    if section.local:
        local: Embedder = await stack.enter_async_context(local_embedder().open())
        return local
    if not section.base_url:
        return None
    embedder = EndpointEmbedder(
        embedding_entry(section, environ), section.dimensions, shortened=section.shortened
    )
    stack.push_async_callback(embedder.aclose)
    return embedder


def embedding_entry(section: EmbeddingSettings, environ: Mapping[str, str]) -> ModelEntry:
    """Return the entry of an endpoint; raises `KeyMissing`."""
    key = environ.get(section.key_env, "") if section.key_env else ""
    if section.key_env and not key:
        raise KeyMissing(_EMBEDDINGS, section.key_env)
    limits = Limits(connect=section.total_seconds, total=section.total_seconds)
    provider = Provider(_EMBEDDINGS, section.base_url, Secret(key), limits)
    return ModelEntry(_EMBEDDINGS, provider, section.model)


def local_embedder() -> Any:
    """Import the embedder of this process, whose libraries are an extra."""
    return import_module("effects.memory.local_embeddings").LocalEmbedder
