"""Access to the operations API: names and their tokens, from one variable."""

from __future__ import annotations

import hmac
import re
from hashlib import sha256
from typing import TYPE_CHECKING

from contract.errors import CutoverError

if TYPE_CHECKING:
    from collections.abc import Iterable

ALONE = "admin"
"""The name of a single token's holder."""

SHORTEST = 16
"""Characters of a token, at least: shorter ones can be guessed over the wire."""

_NAME = re.compile(r"[\w.@-]{1,64}")
_TOKEN = re.compile(r"[!-+\--9;-~]*")


class TokensUnusable(CutoverError):
    """The variable with the tokens cannot be used; no token is named."""

    def __init__(self, variable: str, why: str) -> None:
        super().__init__(f"the tokens in {variable!r} cannot be used: {why}")


class AdminTokens:
    """Names by token; compared in constant time."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._known = [(name, _digest(token)) for name, token in pairs]

    def who(self, token: str) -> str | None:
        """Return the name of a token's holder; None for an unknown token."""
        given, found = _digest(token), None
        for name, known in self._known:
            if hmac.compare_digest(given, known):
                found = name
        return found


def read_tokens(text: str, variable: str) -> AdminTokens:
    """Read `name:token,name:token`, or a single token; raises `TokensUnusable`.

    One name may have several tokens: that is how one is changed without an interruption.
    """
    pairs = list(split_tokens(text))
    if not pairs:
        raise TokensUnusable(variable, "it is not set, or empty")
    for number, (name, token) in enumerate(pairs, 1):
        if not _NAME.fullmatch(name):
            raise TokensUnusable(variable, f"entry {number} is not name:token")
        if len(token) < SHORTEST:
            why = f"that of {name!r} has {len(token)} characters, it needs {SHORTEST}"
            raise TokensUnusable(variable, why)
        if not _TOKEN.fullmatch(token):
            raise TokensUnusable(
                variable, f"that of {name!r} has characters that no header can hold"
            )
    if len({token for _, token in pairs}) < len(pairs):
        raise TokensUnusable(variable, "a token has two names")
    return AdminTokens(pairs)


def split_tokens(text: str) -> Iterable[tuple[str, str]]:
    """Return (name, token) for each entry of a variable, usable or not."""
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if len(entries) == 1 and ":" not in entries[0]:
        return [(ALONE, entries[0])]
    parted = [entry.partition(":") for entry in entries]
    return [(name.strip(), token.strip()) for name, _, token in parted]


def _digest(token: str) -> bytes:
    # Of equal length for all tokens: comparing lengths would leak them.
    return sha256(token.encode()).digest()
