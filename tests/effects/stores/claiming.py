"""A process of its own that claims pauses, as a second router would: DSN OWNER ID…."""

from __future__ import annotations

import asyncio
import sys

from effects.clock import ManualClock
from effects.stores import SqlPauses


async def claim(dsn: str, owner: str, ids: list[str]) -> None:
    """Open the store, say so, wait for the word, claim, and tell what came of it."""
    async with SqlPauses.open_store(dsn, ManualClock().time) as pauses:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        replies = [await pauses.claim(hitl_id, owner, 60.0) for hitl_id in ids]
    sys.stdout.write(f"{' '.join(replies)}\n")


if __name__ == "__main__":
    asyncio.run(claim(sys.argv[1], sys.argv[2], sys.argv[3:]))
