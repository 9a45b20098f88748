"""A process that writes captures until it is killed: `python writer_process.py FOLDER SECONDS`.

It prints the number of each line that it has offered.
"""

import asyncio
import sys
import time

from router.captures import Captures, Redactor, Store
from tests.router.captures.records import line


async def main() -> None:
    """Offer a line every millisecond."""
    store, seconds = Store(sys.argv[1]), float(sys.argv[2])
    async with Captures(store, Redactor(b"key"), batch_seconds=seconds, batch_bytes=4096) as writer:
        for number in range(100_000):
            writer.line(line(exchange=f"e{number}", request='{"m":"write to john@example.com"}'))
            print(number, time.monotonic(), flush=True)  # noqa: T201 - it is read by the test
            await asyncio.sleep(0.001)


asyncio.run(main())
