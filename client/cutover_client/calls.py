"""What the effect API is asked and answers, and the errors a service may see."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class GatewayError(Exception):
    """The gateway refused, or could not be reached, by a stable `code`: nothing was performed."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(f"{code}: {why}")
        self.code = code


class EffectInDoubt(GatewayError):
    """The effect was begun before, and nobody said what came of it: it may have happened."""


class ExchangeOver(GatewayError):
    """Another run has taken over, or the exchange has ended: stop."""


class NotOnTape(GatewayError):
    """This run is a shadow, and does what the serving run did not do."""


class EffectFailed(Exception):
    """The effect failed where it was performed, with an error that is not named in `errors`."""

    def __init__(self, effect: str, kind: str) -> None:
        super().__init__(f"{effect!r} has failed with {kind}")
        self.kind = kind


class NotJson(TypeError):
    """An argument of an effect, or what it returns, cannot be written as JSON."""

    def __init__(self, what: str, effect: str, kind: str) -> None:
        super().__init__(
            f"{what} of the effect {effect!r} is a {kind}, which is no JSON: leave an argument out "
            "with ignore=, or write values with encode= and read them with decode="
        )


ERRORS: dict[str, type[GatewayError]] = {
    "effect_in_doubt": EffectInDoubt,
    "exchange_over": ExchangeOver,
    "unknown_exchange": ExchangeOver,
    "tape_miss": NotOnTape,
}


@dataclass(frozen=True, slots=True)
class Call:
    """One effect before it is performed; `arguments` are JSON."""

    effect: str
    arguments: Any
    read_only: bool = False
    key: str = ""
    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Perform:
    """The caller is to perform it, and to report by the lease within so many seconds."""

    lease: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Played:
    """It was performed before: what it streamed, and its result or the error it ended with."""

    items: list[Any]
    result: Any
    error: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it; neither a result nor an error: it goes on."""

    items: list[Any] = field(default_factory=list)
    error: tuple[str, str] | None = None
    result: Any = None
    over: bool = True

    def body(self) -> dict[str, Any]:
        """Return it as the effect API reads it."""
        body: dict[str, Any] = {"items": self.items} if self.items else {}
        if self.error is not None:
            body["error"] = {"type": self.error[0], "message": self.error[1]}
        elif self.over:
            body["result"] = self.result
        return body
