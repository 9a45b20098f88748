"""Finds what reaches the network past the tape, whatever client it is."""

from __future__ import annotations

import sys
from typing import Any

from cutover.tape import current_run, playing

_installed = False
_EVENTS = {"socket.connect": 1, "http.client.send": 0, "subprocess.Popen": 0}
"""Audit events of Python, and the argument that says where to."""


def watch_escapes() -> None:
    """Count in `Run.escaped` what a run that plays sends past the tape, for this process's life.

    Python reports connections of sockets, requests of `http.client` (requests, urllib, boto3) and
    processes; libraries in C (gRPC, psycopg) and connections that were open before are not seen.
    Counting stops nothing: a shadow that escapes has acted on the world once it is known.
    """
    global _installed  # noqa: PLW0603 - Python removes no audit hook
    if not _installed:
        _installed = True
        sys.addaudithook(_audit)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not playing or event not in _EVENTS:
        return
    run = current_run()
    if run is not None and run.policy == "play":
        run.escaped[f"{event} {_place(args[_EVENTS[event]])}"] += 1


def _place(target: Any) -> str:
    """Return where something goes: the host of a connection, an address, a program."""
    if isinstance(target, tuple):
        return ":".join(map(str, target[:2]))
    host = getattr(target, "host", None)
    return str(target) if host is None else f"{host}:{getattr(target, 'port', '')}"
