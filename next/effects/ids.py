"""New ids, as an effect: every run of an exchange gets the same."""

from __future__ import annotations

from typing import Literal
from uuid import uuid4

from cutover import effect

Kind = Literal["message", "session", "hitl", "approval", "memory"]
"""What an id is for: two stacks that draw ids in another order get the same for each purpose."""


@effect("ids.new")
async def new(kind: Kind) -> str:
    """Return a new id: 32 hexadecimal digits."""
    del kind  # stands in the call's key alone
    return uuid4().hex
