"""The registry: which models there are, the providers that serve them, and their clients.

Changeable while the process runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, Protocol

from contract.errors import CutoverError, EffectFailed, Fault
from contract.model import ModelInfo, Usage

if TYPE_CHECKING:  # the SDK's own, imported when the first client is made
    import httpx2

_MILLION: Final = 1_000_000
_COMMON_CONTEXT: Final = 128_000
"""The context, in tokens, that stacks get for a model whose own is unknown."""
_MAX_ID: Final = 100
"""Characters of an unknown id that are reported, and compared with known ones."""


class KeyUnusable(CutoverError):
    """A provider's key cannot be sent in a header; the error does not name the key."""

    def __init__(self, length: int) -> None:
        super().__init__(
            f"the key of {length!r} characters holds some that no HTTP header may carry "
            "(allowed are visible ASCII characters)"
        )


class DuplicateModel(CutoverError):
    """Two entries claim one model id."""

    def __init__(self, model_id: str) -> None:
        super().__init__(f"model id {model_id!r} is registered twice")


class Secret:
    """Text that only `reveal` shows; equal when the text is equal."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        if not (text.isascii() and text.isprintable()) or " " in text:
            raise KeyUnusable(len(text))
        self._text = text

    def reveal(self) -> str:
        """Return the text, for the one place that sends it."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "Secret('…')" if self._text else "Secret()"

    def __reduce__(self) -> str:
        msg = "a secret is never serialised"
        raise TypeError(msg)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a provider may be silent, in seconds.

    `first_byte` ends with the response's headers, `first_token` with the first speech, both count
    from the start of the call, as does `total`. Without a `first_byte` headers may come as late as
    the first token: many local models send both at once. Without a `first_token` it depends on
    whether a fallback stands ready (`ModelEntry.limits`). `idle` is the longest silence of the
    model after its first token: bytes and comments that keep the connection alive end no silence.
    `tail` is how long to wait for usage after the finish reason; running out of it is no fault.
    """

    connect: float = 5.0
    first_byte: float | None = None
    first_token: float | None = None
    idle: float = 30.0
    total: float = 600.0
    tail: float = 1.0


FIRST_TOKEN_BEFORE_FALLBACK: Final = 20.0
"""Seconds after which another model answers sooner than this one is likely to."""
FIRST_TOKEN_ALONE: Final = 120.0
"""Seconds a large prompt, or a model that is loaded first, may take where nothing else helps."""


@dataclass(frozen=True, slots=True)
class Provider:
    """An OpenAI-compatible endpoint; `base_url` ends before `/chat/completions`.

    `trust_env` lets the process's proxy variables apply. Equal providers share one client.
    """

    name: str
    base_url: str
    key: Secret = field(default_factory=Secret)
    limits: Limits = Limits()
    trust_env: bool = False


@dataclass(frozen=True, slots=True)
class Prices:
    """What a model costs, per million tokens, in one currency."""

    prompt: float
    completion: float


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model under our name: which provider serves it, and what it is called there.

    `fallbacks` are model ids to try when this one cannot answer, best first. `context_tokens` is
    None where it is unknown. `first_token` is a limit of this model, instead of its provider's:
    on the first byte, too.
    """

    model_id: str
    provider: Provider
    model: str
    context_tokens: int | None = None
    max_output_tokens: int = 16_384
    prices: Prices | None = None
    fallbacks: tuple[str, ...] = ()
    first_token: float | None = None

    def limits(self, *, fallback_ready: bool) -> Limits:
        """Return the limits of a call, the one on the first token filled in."""
        limits = self.provider.limits
        if self.first_token is not None:
            return replace(limits, first_byte=None, first_token=self.first_token)
        default = FIRST_TOKEN_BEFORE_FALLBACK if fallback_ready else FIRST_TOKEN_ALONE
        return replace(limits, first_token=limits.first_token or default)

    @property
    def info(self) -> ModelInfo:
        """What a stack may know of it."""
        return ModelInfo(
            model_id=self.model_id,
            model=self.model,
            context_tokens=self.context_tokens or _COMMON_CONTEXT,
            max_output_tokens=self.max_output_tokens,
        )


class ModelRegistry:
    """Entries by model id, replaced as a whole; and the clients of their providers.

    A stream keeps the entry it began with; the next call sees the new one. `entries` are those in
    force now, a snapshot that never changes; `clients` lends the client of a provider.
    """

    def __init__(self, entries: Iterable[ModelEntry] = ()) -> None:
        self.entries = _by_id(entries)
        self.clients = ClientPool(self._providers())

    def entry(self, model_id: str) -> ModelEntry:
        """Return what is registered; raises `EffectFailed` (`unknown_model`)."""
        entry = self.entries.get(model_id)
        if entry is None:
            # Of an id of megabytes the search alone would hold the loop for seconds.
            unknown = model_id[:_MAX_ID]
            nearest = get_close_matches(unknown, self.entries, n=1)
            hint = {"nearest": nearest[0]} if nearest else {}
            raise EffectFailed(Fault("unknown_model", data={"model_id": unknown, **hint}))
        return entry

    def price(self, model_id: str, usage: Usage) -> float | None:
        """Return the cost of an answer of a model; None where it is unknown."""
        entry = self.entries.get(model_id)
        known = entry.prices if entry else None
        if known is None:
            return None
        spent = usage.prompt_tokens * known.prompt + usage.completion_tokens * known.completion
        return spent / _MILLION

    def put(self, entries: Iterable[ModelEntry]) -> None:
        """Put other entries in force, at once; raises `DuplicateModel` and then changes nothing.

        Clients of providers that are removed or changed are closed by `close_unwanted`.
        """
        self.entries = _by_id(entries)

    async def close_unwanted(self) -> None:
        """Close the clients of providers without an entry, each after its last stream."""
        await self.clients.want(self._providers())

    async def aclose(self) -> None:
        """Close all clients, those in use after their last stream."""
        await self.clients.want(())

    def _providers(self) -> set[Provider]:
        return {entry.provider for entry in self.entries.values()}


def _by_id(entries: Iterable[ModelEntry]) -> Mapping[str, ModelEntry]:
    by_id: dict[str, ModelEntry] = {}
    for entry in entries:
        if entry.model_id in by_id:
            raise DuplicateModel(entry.model_id)
        by_id[entry.model_id] = entry
    return MappingProxyType(by_id)


class ModelClient(Protocol):
    """A client of one provider, as `effects.model.client` makes them."""

    async def ask(
        self, body: bytes, operation: Literal["chat/completions", "embeddings"] = ...
    ) -> httpx2.Response:
        """Send a request; return its response, whose body is not read."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


@dataclass(slots=True)
class _Leased:
    client: ModelClient
    streams: int = 0


class ClientPool:
    """One client per provider value, closed when it is neither wanted nor in use."""

    def __init__(self, wanted: Iterable[Provider] = ()) -> None:
        self._wanted = frozenset(wanted)
        self._leased: dict[Provider, _Leased] = {}

    def __len__(self) -> int:
        return len(self._leased)

    def warm(self) -> None:
        """Make the clients that are wanted: certificates and imports cost the first user 40 ms."""
        _client_class()  # also where none is wanted yet: one may be, while requests are served
        for provider in self._wanted:
            self._client_of(provider)

    @asynccontextmanager
    async def lease(self, provider: Provider) -> AsyncIterator[ModelClient]:
        """Lend the provider's client for one stream."""
        leased = self._client_of(provider)
        leased.streams += 1
        try:
            yield leased.client
        finally:
            leased.streams -= 1
            if not leased.streams and provider not in self._wanted:
                await self._close_unwanted()

    async def want(self, providers: Iterable[Provider]) -> None:
        """Close clients of all other providers, each after its last stream."""
        self._wanted = frozenset(providers)
        await self._close_unwanted()

    def _client_of(self, provider: Provider) -> _Leased:
        leased = self._leased.get(provider)
        if leased is None:
            leased = self._leased[provider] = _Leased(_client_class()(provider))
        return leased

    async def _close_unwanted(self) -> None:
        idle = [
            provider
            for provider, leased in self._leased.items()
            if provider not in self._wanted and not leased.streams
        ]
        clients = [self._leased.pop(provider).client for provider in idle]
        if clients:
            # Out of the pool by now: a cancelled caller must not leave them open.
            await asyncio.shield(_close(clients))


def _client_class() -> Callable[[Provider], ModelClient]:
    module = import_module("effects.model.client")
    made: Callable[[Provider], ModelClient] = module.ProviderClient
    return made


async def _close(clients: list[ModelClient]) -> None:
    for client in clients:
        await client.close()
