"""Keeps threads in the run that starts them, and counts what a run sends past the tape."""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import Any

from cutover.tape import current_run, playing

_start, _submit = threading.Thread.start, ThreadPoolExecutor.submit


def _start_here(thread: threading.Thread) -> None:
    context, run = copy_context(), thread.run
    thread.run = lambda: context.run(run)  # type: ignore[method-assign]
    _start(thread)


def _submit_here(pool: ThreadPoolExecutor, /, *args: Any, **named: Any) -> Future[Any]:
    # In an empty context: a thread of the pool outlives the run that happens to need it first.
    return Context().run(_submit, pool, copy_context().run, *args, **named)


@contextmanager
def contexts_in_threads() -> Iterator[None]:
    """Run threads and work of pools in their starter's context, in the block.

    Without it, what a run's code starts in a thread belongs to no run: shadows perform its reads.
    """
    before: Any = threading.Thread.start, ThreadPoolExecutor.submit
    patched: Any = _start_here, _submit_here
    threading.Thread.start, ThreadPoolExecutor.submit = patched  # type: ignore[method-assign]
    try:
        yield
    finally:
        threading.Thread.start, ThreadPoolExecutor.submit = before  # type: ignore[method-assign]


_installed = False
_EVENTS = {"socket.connect": 1, "socket.sendto": 1, "http.client.send": 0}
_EVENTS |= {"subprocess.Popen": 0, "os.system": 0, "os.posix_spawn": 0}
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
    if run is not None and run.policy != "live":
        run.escaped[f"{event} {_place(args[_EVENTS[event]])}"] += 1


def _place(target: Any) -> str:
    """Return where something goes: the host of a connection, an address, a program."""
    if isinstance(target, tuple):
        return ":".join(map(str, target[:2]))
    host = getattr(target, "host", None)
    target = target.decode("utf-8", "replace") if isinstance(target, bytes) else target
    return str(target) if host is None else f"{host}:{getattr(target, 'port', '')}"
