"""What a router is made of."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from effects.stores import MemoryPins
from effects.stores.shadow_replies import ShadowReplies
from router.routing.pins import Pins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from _typeshed import DataclassInstance

    from contract.flow import Body, FlowSpec, SessionStore
    from contract.ports import Effects, Model
    from contract.records import FeedbackRecord, RunRecord
    from router.capture.records import Price
    from router.config import Settings
    from router.context import Observer
    from router.resume.pauses import Pausing
    from router.routing.flags import Flagged
    from router.stack import Stack, StackName


class Captures(Protocol):
    """Where finished exchanges go; taking one never waits."""

    @property
    def counts(self) -> DataclassInstance:
        """Count what was written and what was not."""
        ...

    def put(self, records: Sequence[RunRecord]) -> object:
        """Take the lines of one exchange."""
        ...

    def feedback(self, record: FeedbackRecord) -> object:
        """Take what a user thought."""
        ...


def exchange_id() -> str:
    """Make an id for an exchange."""
    return secrets.token_hex(16)


def _own_pins() -> Pins:
    return Pins(MemoryPins(), time.monotonic, time.time)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a router is made of; the composition root builds them.

    `live` makes the live ports for one request's body; `settings` gives those in force now;
    `shadow_model` is asked by shadows that may ask, and by nobody else; `own_replies` are what they
    answered, for those that hold conversations of their own.
    """

    specs: Mapping[str, FlowSpec]
    stacks: Mapping[StackName, Stack]
    live: Callable[[Body], Effects]
    captures: Captures
    settings: Callable[[], Settings]
    shadow_model: Model | None = None
    qa_key: bytes = b""
    observers: Sequence[Observer] = ()
    exchange_id: Callable[[], str] = exchange_id
    price: Price = lambda _answered, _usage: None
    monotonic: Callable[[], float] = time.perf_counter
    wall: Callable[[], float] = time.time
    pins: Pins = field(default_factory=_own_pins)
    flags: Flagged | None = None
    pausing: Pausing | None = None
    sessions: SessionStore | None = None
    own_replies: ShadowReplies = field(default_factory=ShadowReplies)
