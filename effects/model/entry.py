"""What is registered: models, the providers that serve them, their limits and prices."""

from __future__ import annotations

from dataclasses import dataclass, field

from contract.errors import CutoverError
from contract.model import ModelInfo


class KeyUnusable(CutoverError):
    """A provider's key cannot be sent in a header; the key itself is not named."""

    def __init__(self, length: int) -> None:
        super().__init__(
            f"the key of {length!r} characters holds some that no HTTP header may carry "
            "(allowed are visible ASCII characters)"
        )


class Secret:
    """Text that shows itself only to who asks for it; equal when the text is equal."""

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
        msg = "a secret is never written down"
        raise TypeError(msg)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a provider may be silent, in seconds.

    `first_byte` ends with the response's headers, `first_token` with the first text, reasoning or
    tool call, both count from the start of the call, as does `total`. `idle` is the longest
    silence after the first token; a comment sent to keep the connection alive is no silence.
    `tail` is how long to wait for usage after the finish reason; running out of it is no fault.
    """

    connect: float = 5.0
    first_byte: float = 30.0
    first_token: float = 60.0
    idle: float = 30.0
    total: float = 600.0
    tail: float = 1.0


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
    """A model under our name: who serves it, and what it is called there.

    `fallbacks` are model ids to ask when this one cannot answer, best first.
    """

    model_id: str
    provider: Provider
    model: str
    context_tokens: int = 128_000
    max_output_tokens: int = 16_384
    prices: Prices | None = None
    fallbacks: tuple[str, ...] = ()

    @property
    def info(self) -> ModelInfo:
        """What a stack may know of it."""
        return ModelInfo(
            model_id=self.model_id,
            model=self.model,
            context_tokens=self.context_tokens,
            max_output_tokens=self.max_output_tokens,
        )
