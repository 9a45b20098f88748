"""From settings to the model registry: who serves which model, with which key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.errors import CutoverError
from effects.model import (
    BreakerPolicy,
    Limits,
    ModelEntry,
    ModelRegistry,
    Prices,
    Provider,
    RescuePolicy,
    Secret,
)
from router.config import ModelSettings as ModelSection
from router.config import ProviderSettings as ProviderSection
from router.config import RescueSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.model import Usage
    from router.capture.records import (
        Price,
    )
    from router.config import Settings

DEFAULT_MODEL = "gpt-4.1"
KEY = "OPENAI_API_KEY"
BASE_URL = "OPENAI_BASE_URL"
_OPENAI = "https://api.openai.com/v1"
_MILLION = 1_000_000


class KeyMissing(CutoverError):
    """A provider's key is to come from a variable that is not set."""

    def __init__(self, provider: str, variable: str) -> None:
        super().__init__(f"provider {provider!r} needs its key in the variable {variable!r}")


def model_entries(settings: Settings, environ: Mapping[str, str]) -> tuple[ModelEntry, ...]:
    """Build the registry's entries; with nothing configured, OpenAI's from the environment.

    Raises:
        KeyMissing: a configured key is not in the environment.
    """
    providers, models = settings.providers, settings.models
    if not models and environ.get(KEY):
        base_url = environ.get(BASE_URL) or _OPENAI
        providers = {"openai": ProviderSection(base_url=base_url, key_env=KEY)}
        models = {DEFAULT_MODEL: ModelSection(provider="openai", model=DEFAULT_MODEL)}
    built = {name: _provider(name, section, environ) for name, section in providers.items()}
    return tuple(_entry(name, section, built) for name, section in models.items())


def rescue_policy(section: RescueSettings) -> RescuePolicy:
    """Build the policy of the model port from its section."""
    return RescuePolicy(
        attempts=section.attempts,
        first_wait=section.first_wait_seconds,
        longest_wait=section.longest_wait_seconds,
        breaker=BreakerPolicy(
            window=section.breaker_window_seconds,
            calls=section.breaker_calls,
            ratio=section.breaker_ratio,
            rest=section.breaker_rest_seconds,
        ),
    )


def prices(registry: ModelRegistry) -> Price:
    """Build the function that prices a call by the model that answered, as registered now."""

    def price(answered: str, usage: Usage | None) -> float | None:
        entry = registry.entries.get(answered)
        known = entry.prices if entry else None
        if known is None or usage is None:
            return None
        spent = usage.prompt_tokens * known.prompt + usage.completion_tokens * known.completion
        return spent / _MILLION

    return price


def _provider(name: str, section: ProviderSection, environ: Mapping[str, str]) -> Provider:
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


def _entry(model_id: str, section: ModelSection, providers: Mapping[str, Provider]) -> ModelEntry:
    prices = Prices(section.input_price or 0.0, section.output_price or 0.0)
    return ModelEntry(
        model_id=model_id,
        provider=providers[section.provider],
        model=section.model or model_id,
        context_tokens=section.context_tokens,
        max_output_tokens=section.max_output_tokens,
        prices=prices if section.priced else None,
        fallbacks=section.fallbacks,
    )
