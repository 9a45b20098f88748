"""A supervisor whose workers send their pid to every client: a process of its own in tests.

Arguments: what the workers do (`serve`; `refuse` to start; only `one` of them starts; be `deaf` to
the end of their channel), and a folder.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from cutover.server.sockets import shared_listeners
from cutover.server.workers import Supervisor, WorkerChannel
from tests.support.patience import PATIENCE_S

STOP_SECONDS = {"deaf": 0.5}
"""How long the supervisor waits; for workers that do stop, for as long as that takes."""
COUNT = 2


def work(sockets: Sequence[socket.socket], channel: WorkerChannel) -> int:
    """Send this process's id to every client, until the channel closes."""
    if sys.argv[1] == "refuse" or (sys.argv[1] == "one" and not _first()):
        return 2
    [listening] = sockets
    listening.listen()
    channel.report_ready()
    while True:
        readable, _, _ = select.select([listening.fileno(), channel.fileno()], [], [])
        if listening.fileno() in readable:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(str(os.getpid()).encode())
        elif sys.argv[1] != "deaf":
            return 0


def _first() -> bool:
    try:
        (Path(sys.argv[2]) / "first").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def main() -> int:
    """Supervise; the first line that is printed is the port."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    listeners = shared_listeners([("127.0.0.1", 0)], COUNT)
    port = listeners[0].open()[0].getsockname()[1]
    supervisor = Supervisor(
        listeners,
        work,
        stop_seconds=STOP_SECONDS.get(sys.argv[1], PATIENCE_S),
        announce=lambda: print(f"all {port}", flush=True),  # noqa: T201 (the test reads it)
        tick=lambda: None,
    )
    print(port, flush=True)  # noqa: T201 (as above)
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main())
