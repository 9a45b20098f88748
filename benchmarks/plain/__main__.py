"""`python -m benchmarks.plain`: serve the baseline until a signal; one line says where."""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path

import uvicorn

from benchmarks.plain.app import Setup, create_app

ANNOUNCED = "plain listening on "
BACKLOG = 2_048


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plain")
    parser.add_argument("--provider", required=True, help="base URL of the provider")
    parser.add_argument("--model", required=True, help="the provider's name of the model")
    parser.add_argument("--store", required=True, type=Path, help="SQLite file")
    given = parser.parse_args()
    app = create_app(Setup(given.provider, given.model, given.store))
    listening = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    sys.stdout.write(f"{ANNOUNCED}http://127.0.0.1:{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(
        app, loop="uvloop", http="httptools", ws="none", access_log=False, log_config=None
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
