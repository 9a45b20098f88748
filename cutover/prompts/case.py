"""A prompt as it is proved: what it was made of, and what it became."""

from __future__ import annotations

import msgspec

DRAWN = 40
"""How many values are drawn for a prompt, beside those at the edges."""


class Case(msgspec.Struct, frozen=True):
    """A prompt to be proved: its templates in order, and what it became, as it is read again."""

    name: str
    templates: tuple[str, ...]
    variables: tuple[str, ...]
    text: str
    chat: bool = False
    placeholders: tuple[str, ...] = ()
