"""Locust's users, who go home once they have asked enough, however long a busy machine takes."""

from __future__ import annotations

from typing import Any

import gevent
from locust import events
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from loadtests.users import StreamUser

__all__ = ["StreamUser"]

ENOUGH = 12


def _count(environment: Environment, **_: object) -> None:
    listeners: Any = environment.events
    if isinstance(environment.runner, MasterRunner):
        master = environment.runner

        def enough(**_: object) -> None:
            if master.stats.total.num_requests >= ENOUGH:
                gevent.spawn(master.quit)

        listeners.worker_report.add_listener(enough)
        return
    if isinstance(environment.runner, WorkerRunner):
        return
    asked = 0

    def one_more(**_: object) -> None:
        nonlocal asked
        asked += 1
        if asked == ENOUGH and environment.runner is not None:
            # In a greenlet of its own: it waits for the users, one of which reports this.
            gevent.spawn(environment.runner.quit)

    listeners.request.add_listener(one_more)


hooks: Any = events
hooks.init.add_listener(_count)
