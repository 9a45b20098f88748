"""Where state is kept, and for how long."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from router.sections.section import Section


class Stores(Section, frozen=True):
    """`[stores]`: addresses, or `env:NAME` for one with a password in it.

    `auto` is `process` for one worker, and the SQLite file of the other stores for several;
    `board`, for breakers and the shadow's budget, is where `locks` are.
    """

    conversations: str = "sqlite:///var/cutover.sqlite"
    memory: str = "sqlite:///var/cutover.sqlite"
    pauses: str = "sqlite:///var/cutover.sqlite"
    locks: str = "auto"
    pins: str = "auto"
    board: str = "auto"
    history: str = "sqlite:///var/cutover.sqlite"
    checkpoints: str = "auto"


class Pauses(Section, frozen=True):
    """`[pauses]`: how long a question waits, and the keys of what is stored meanwhile.

    `key_env` names the variable with keys (32 bytes each, base64, separated by commas): the first
    seals, all open. `strict` refuses what was stored without one.
    """

    key_env: str = ""
    strict: bool = False
    keep_seconds: Annotated[float, Meta(gt=0, le=31_536_000)] = 86_400.0
