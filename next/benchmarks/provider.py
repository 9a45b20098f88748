"""The simulated provider in a process of its own, as every bench uses it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def provider(chunk_ms: float) -> AsyncIterator[str]:
    """Start it, point `OPENAI_BASE_URL` at it, and yield its base URL."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loadtests.simulator", "--port", "0"),
        *("--chunk-ms", str(chunk_ms)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None  # noqa: S101 - it is piped
    try:
        base_url = (await process.stdout.readline()).decode().split()[-1]
        os.environ |= {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "none"}
        yield base_url
    finally:
        process.terminate()
        await process.wait()
