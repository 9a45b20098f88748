"""A worker: a process that compares the parts it is handed, until there are no more.

    python -m compare.worker FD

Jobs and tallies go through the connection at the file descriptor. A process of its own, not one of
`multiprocessing`, which would import all of the program that starts it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from compare.input.segments import Segment
from compare.tally import Tally
from contract.errors import CutoverError

Compare = Callable[[Segment, Any], Tally]


def main() -> None:
    """Work until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this ends it
    connection: Connection[tuple[Compare, Any] | Segment, Tally | str] = Connection(
        int(sys.argv[1])
    )
    try:
        work(connection)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def work(connection: Any) -> None:
    """Take what to do and what is asked, then parts; answer each with its tally, or why not."""
    compare, question = connection.recv()
    while True:
        part = connection.recv()
        try:
            answer = compare(part, question)
        except CutoverError as trouble:
            answer = str(trouble)
        connection.send(answer)


if __name__ == "__main__":
    main()
