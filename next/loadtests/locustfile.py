"""Load for `locust -f loadtests/locustfile.py`: each user asks its flow every `--pace` seconds.

A user does not wait for an answer before it asks again, and all times count from the moment when a
request was due: a server that stands still delays every request of that time, and all of them show.
"""

from __future__ import annotations

import json
import logging
import os
import random
import time
from itertools import count
from pathlib import Path
from typing import Any, Final

import gevent
from gevent.pool import Group
from locust import User, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.runners import MasterRunner

from cutover.errors import CutoverError
from loadtests.meter import Meter, send
from loadtests.plan import LoadFlow, PlanRefused, load_flows
from loadtests.rows import Row, RowWriter, summary

HEADERS: Final = "CUTOVER_LOAD_HEADERS"
"""Variable with headers of each request, as a JSON object: they may hold secrets."""

log = logging.getLogger("loadtests")


@events.init_command_line_parser.add_listener
def _options(parser: LocustArgumentParser) -> None:
    own = parser.add_argument_group("cutover", "what is asked, and where rows are written")
    own.add_argument("--cutover-config", default="", env_var="CUTOVER_CONFIG", help="cutover.toml")
    own.add_argument("--flow", default="", help="a flow; without it, all of them in turn")
    own.add_argument("--messages", default="", help="texts or bodies, as JSON lines")
    own.add_argument("--pace", type=float, default=2.0, help="seconds between a user's requests")
    own.add_argument("--patience", type=float, default=60.0, help="seconds a stream may take")
    own.add_argument("--rows", default="", help="the folder for raw rows")
    own.add_argument("--stack", default="", help="the stack that rows are of")
    own.add_argument("--run-number", type=int, default=0, help="what rows are marked with")
    own.add_argument("--seed", type=int, default=0, help="draws when each user begins")


class Generator:
    """What the users of this process share, from the start of a test to its end."""

    def __init__(self, environment: Environment) -> None:
        options: Any = environment.parsed_options
        self.flows = chosen_flows(options)
        self.pace, self.patience = max(options.pace, 1e-3), options.patience
        self.stack, self.number = options.stack, options.run_number
        self.host = environment.host or StreamUser.host
        self.headers: dict[str, str] = json.loads(os.environ.get(HEADERS, "{}"))
        index = getattr(environment.runner, "worker_index", 0)
        self.chance = random.Random(f"{options.seed}/{index}")
        self.users, self.requests = count(index), count()
        self.rows: list[Row] = []
        folder = options.rows
        self.writer = RowWriter(Path(folder), self.number) if folder else None
        self.began = time.monotonic()

    def keep(self, row: Row) -> None:
        """Keep a request's row."""
        self.rows.append(row)
        if self.writer is not None:
            self.writer.write(row)

    def close(self) -> None:
        """Write what is left, and say how it went."""
        if self.writer is not None:
            self.writer.close()
        for line in summary(self.rows):
            log.info(line)


def chosen_flows(options: Any) -> list[LoadFlow]:
    """Return the flows that the options ask for; raises `PlanRefused`, naming all there are."""
    flows = load_flows(Path(options.cutover_config) if options.cutover_config else None)
    if options.flow and options.flow not in flows:
        message = f"no flow {options.flow!r}: there are {', '.join(flows)}"
        raise PlanRefused(message)
    found = [flows[options.flow]] if options.flow else list(flows.values())
    if options.messages:
        return [one.with_messages(Path(options.messages)) for one in found]
    return found


@events.test_start.add_listener
def _start(environment: Environment, **_: Any) -> None:
    if isinstance(environment.runner, MasterRunner):
        return  # its workers send
    try:
        StreamUser.generator = Generator(environment)
    except CutoverError as error:
        log.error("%s", error)
        raise SystemExit(64) from error


@events.test_stop.add_listener
def _stop(environment: Environment, **_: Any) -> None:
    if not isinstance(environment.runner, MasterRunner):
        StreamUser.generator.close()


class StreamFailed(Exception):
    """A stream that is not whole, as Locust's table shows it."""


class StreamUser(User):
    """Asks one flow every `--pace` seconds, from a moment on that is drawn."""

    host = "http://127.0.0.1:8080"
    generator: Generator

    def on_start(self) -> None:
        """Draw when the first request is due."""
        shared = self.generator
        self.flow = shared.flows[next(shared.users) % len(shared.flows)]
        self.streams = Group()
        self.due: float = time.monotonic() + shared.chance.random() * shared.pace

    def wait_time(self) -> float:
        """Return the seconds until the next request is due."""
        return max(0.0, self.due - time.monotonic())

    @task
    def ask(self) -> None:
        """Send what is due."""
        while self.due <= time.monotonic():
            self.streams.spawn(self.stream, self.due)
            self.due += self.generator.pace

    def on_stop(self) -> None:
        """Wait for the streams that are open, and break off those that outlast the patience."""
        self.streams.join(self.generator.patience)
        self.streams.kill()

    def stream(self, due: float) -> None:
        """Send a request and report how its stream went."""
        shared = self.generator
        asked = self.flow.request(shared.host, next(shared.requests), shared.headers)
        meter = Meter(self.flow.dialect, due)
        try:
            send(asked, meter, shared.patience)
        except gevent.GreenletExit:
            meter.end("stopped")
        row = meter.row(self.flow.name, shared.stack, shared.number, shared.began)
        shared.keep(row)
        if row.ending == "stopped":
            return
        whole = row.ending == "complete"
        self.environment.events.request.fire(
            request_type=asked.method,
            name=f"{self.flow.name} {self.flow.target}",
            response_time=row.ended_ms,
            response_length=row.received,
            exception=None if whole else StreamFailed(f"{row.ending} {row.code}".strip()),
            context={},
            url=asked.url,
        )
