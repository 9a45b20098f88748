"""Resumption: whether another stack can go on in a text, by what is known of the exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.operations import MODEL_STREAM
from router.resuming.prefix import Prefix
from router.resuming.wording import Wording

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contract.wire.dialect import Dialect
    from effects.tape import Tape


def resumption(dialect: Dialect, had: Iterable[bytes], tape: Tape) -> Prefix | None:
    """Begin to follow what a client has had; None where nobody could say it again.

    Text that came from no answer on the tape would be another one: the model would be asked anew.
    """
    wording = Wording(dialect)
    if not wording.tells:
        return None
    prefix = Prefix(wording, had)
    answered = any(entry.operation is MODEL_STREAM for entry in tape.entries)
    return prefix if answered or not prefix.speaks else None
