"""A process that writes captures until it is killed: `python writer_process.py FOLDER SECONDS`.

It prints the number of each line that it has offered.
"""

from __future__ import annotations

import sys
import time

from router.captures import Captures, Redactor, Store
from tests.router.captures.records import line


def main() -> None:
    """Offer a line every millisecond."""
    captures = Captures(
        Store(sys.argv[1]), Redactor(b"key"), batch_seconds=float(sys.argv[2]), batch_bytes=4096
    )
    captures.start()
    for number in range(100_000):
        record = line(exchange=f"e{number}", request='{"message":"write to john@example.com"}')
        captures.line(record)
        print(number, time.monotonic(), flush=True)  # noqa: T201 - it is read by the test
        time.sleep(0.001)


main()
