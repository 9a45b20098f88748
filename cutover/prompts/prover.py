"""A prover: a process that renders prompts both ways, within limits, until there are no more.

    python -m cutover.prompts.prover FD

A template that takes too long, or too much memory, takes this process with it and nothing else.
"""

from __future__ import annotations

import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from cutover.prompts.case import Case
from cutover.prompts.environment import prompting
from cutover.prompts.proof import proved, search

try:
    import resource
except ImportError:  # pragma: no cover (Windows has none)
    resource = None  # type: ignore[assignment]

MEMORY_AT_MOST = 2 << 30


def main() -> None:
    """Work until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this ends it
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_AT_MOST, MEMORY_AT_MOST))
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    try:
        work(connection)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def work(connection: Any) -> None:
    """Take settings and folder, say that all is ready, then answer each case with its proof."""
    settings, folder, count = connection.recv()
    made = prompting(settings, folder)
    # The first proof of all loads much, and is not to be counted against a prompt.
    search(Case("", (), ("a",), "{a}"), lambda _: [""], lambda _: [""], 1)
    connection.send(None)
    while True:
        connection.send(proved(made, connection.recv(), count))


if __name__ == "__main__":
    main()
