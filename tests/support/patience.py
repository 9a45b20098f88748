"""How long tests wait for what must come: long, for machines that are busy or stand still."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import reduce
from importlib import import_module

PATIENCE_S = 60.0
"""Seconds. Nothing that works ever waits so long; what does not work fails after them."""

_LIMITS = (
    ("cutover.doctor", "CONNECT_SECONDS"),
    ("cutover.probe", "CONNECT_SECONDS"),
    ("effects.memory.postgres", "CHECK_SECONDS"),
    ("effects.stores.database", "SqlStore.busy_ms"),
    ("effects.stores.http", "CALL_SECONDS"),
    ("effects.stores.http", "CONNECT_SECONDS"),
    ("effects.stores.locks", "SqlLeases.busy_ms"),
    ("effects.stores.postgres", "CALL_SECONDS"),
    ("effects.stores.postgres", "CHECK_SECONDS"),
    ("effects.stores.redis", "CHECK_SECONDS"),
    ("effects.stores.redis", "LIMIT"),
    ("effects.stores.shared_state", "SqlPins.busy_ms"),
    ("effects.stores.shared_state", "SqlSharedState.busy_ms"),
    ("effects.stores.sqlite", "CHECK_SECONDS"),
    ("graph_impl.postgres_threads", "WAIT_SECONDS"),
    ("graph_impl.threads", "WAIT_SECONDS"),
    ("router.admin.config_file", "LOCK_SECONDS"),
    ("router.capture.writer", "CLOSING_SECONDS"),
    ("router.routing.lookup", "WAIT_SECONDS"),
    ("router.shadow.sessions", "SLICE_SECONDS"),
    ("effects.stores.shadow_broker", "LIMIT"),
    ("effects.stores.shadow_stream", "_SEND_SECONDS"),
    ("router.state_sync", "TIMEOUT_SECONDS"),
)
"""Limits of the product of 0.02 to 5 s, on neighbours that answer and on what shadows compute.

A busy machine meets them.
"""


def be_patient(set_: Callable[[object, str, float], None], *, importing: bool) -> None:
    """Let this process wait for its neighbours, and its shadows compute, as long as tests wait.

    `importing` modules takes a second; without, those that are not imported yet have their limits.
    """
    for name, limit in _LIMITS:
        if importing or name in sys.modules:
            *classes, last = limit.split(".")
            owner = reduce(getattr, classes, import_module(name))
            set_(owner, last, round(PATIENCE_S * 1_000) if last.endswith("_ms") else PATIENCE_S)
