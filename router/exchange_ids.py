"""Ids of exchanges: each ends with a receipt, a keyed tag over its flow and its assigned stack.

Any process with the key verifies one without looking anything up.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import blake2b
from hmac import compare_digest
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

from contract.errors import CutoverError
from effects.files import write_whole
from effects.places import Place
from router.stack import STACKS, StackName

log = logging.getLogger(__name__)

KEY_FILE: Final = "exchange.key"
"""Its name in the folder of the captures; quota and age do not delete it."""
SHORTEST_KEY: Final = 16
"""Characters of a configured key, at least."""
_KEY_BYTES: Final = 32
_DIGITS: Final = 22
_TAG_BYTES: Final = 9

new_exchange_id: Callable[[], str] = partial(secrets.token_hex, 16)
"""Returns 32 random hexadecimal digits."""


class ReceiptKeysUnusable(CutoverError):
    """The variable with the keys of receipts cannot be used; no key is named."""

    def __init__(self, variable: str, why: str) -> None:
        super().__init__(f"the keys of receipts in {variable!r} cannot be used: {why}")


class Receipt(NamedTuple):
    """What the id of a served exchange proves."""

    flow: str
    assigned: StackName


class ExchangeIds:
    """Makes and verifies ids of 40 hexadecimal digits, the last 18 their receipt.

    `draw` returns 22 digits or more, of which the first 22 are used. The first key signs, all
    verify; without one, receipts are verified by this object alone.
    """

    def __init__(
        self, keys: Sequence[bytes] = (), draw: Callable[[], str] = new_exchange_id
    ) -> None:
        self._keys = tuple(keys) or (secrets.token_bytes(_KEY_BYTES),)
        self._draw = draw

    def draw(self) -> str:
        """Return digits that no other exchange has, not signed yet."""
        return self._draw()[:_DIGITS]

    def signed(self, digits: str, flow: str, assigned: StackName) -> str:
        """Return the id that begins with drawn digits."""
        return digits + _tag(self._keys[0], digits, flow, assigned)

    def new(self, flow: str, assigned: StackName) -> str:
        """Return a new id."""
        return self.signed(self.draw(), flow, assigned)

    def receipt(self, exchange: str, flows: Iterable[str]) -> Receipt | None:
        """Return the receipt of an exchange of one of the flows; None where no key here made it.

        The tag holds flow and stack in no readable form: each possible one is compared with it.
        """
        digits, tag = exchange[:_DIGITS], exchange[_DIGITS:].encode()
        found = None
        for key, flow, assigned in product(self._keys, flows, STACKS.values()):
            if compare_digest(tag, _tag(key, digits, flow, assigned).encode()):
                found = Receipt(flow, assigned)
        return found


def _tag(key: bytes, digits: str, flow: str, assigned: StackName) -> str:
    message = f"{digits}\0{flow}\0{assigned}"
    return blake2b(message.encode(), key=key, digest_size=_TAG_BYTES).hexdigest()


def read_receipt_keys(text: str, variable: str) -> tuple[bytes, ...]:
    """Read keys separated by commas: the first signs, all verify; raises `ReceiptKeysUnusable`."""
    keys = [one.strip() for one in text.split(",") if one.strip()]
    if not keys:
        raise ReceiptKeysUnusable(variable, "it is not set, or empty")
    for number, key in enumerate(keys, 1):
        if len(key) < SHORTEST_KEY:
            why = f"number {number} has {len(key)} characters, {SHORTEST_KEY} are due"
            raise ReceiptKeysUnusable(variable, why)
    return tuple(_derived(key.encode()) for key in keys)


def default_receipt_key(place: str, pseudonyms: bytes) -> bytes:
    """Return the key of receipts where none is configured: derived, else stored with the captures.

    It is derived from the key of the pseudonyms, where there is one. `place` is the captures' path
    or fsspec URL. Where the key cannot be stored, receipts are verified by this process alone, and
    a warning says so.
    """
    if pseudonyms:
        return _derived(pseudonyms)
    drawn = secrets.token_bytes(_KEY_BYTES)
    try:
        return _stored(Place(place), drawn)
    except (OSError, ValueError, ImportError) as error:
        why = type(error).__name__
        log.warning("feedback is taken for exchanges of this process only: no key stored (%s)", why)
        return drawn


def _derived(configured: bytes) -> bytes:
    return blake2b(configured, digest_size=_KEY_BYTES, person=b"exchange ids").digest()


def _stored(place: Place, drawn: bytes) -> bytes:
    """Return the stored key; `drawn` becomes that where there is none, by one process alone."""
    path = f"{place.root}/{KEY_FILE}"
    try:
        if place.local:
            Path(place.root).mkdir(parents=True, exist_ok=True)
            write_whole(Path(path), drawn, 0o600, exclusive=True)
        else:
            place.put(path, drawn, new=True)
    except FileExistsError:
        drawn = place.read(path, ends=_KEY_BYTES)
    if len(drawn) < _KEY_BYTES:
        raise ValueError(path)
    return drawn
