"""Load for `locust -f loadtests/locustfile.py`: each user opens a conversation every `--pace` s.

A user does not wait for an answer before it opens the next one, and all times count from the moment
when a request was due: a server that stands still delays every request of that time, and all show.
Within a conversation, the next turn is due some time to think after the answer has ended.
"""

import json
import logging
import os
import random
import socket
import time
from itertools import count
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import gevent
import msgspec
from gevent.event import Event
from gevent.pool import Group
from locust import User, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.exception import CatchResponseError
from locust.runners import MasterRunner

from cutover.errors import CutoverError
from loadtests.meter import Asked, Meter, send
from loadtests.plan import load_flows
from loadtests.rows import Generator, Row, summary

HEADERS: Final = "CUTOVER_LOAD_HEADERS"
"""Variable with headers of each request, as a JSON object: they may hold secrets."""
PATIENCE_SECONDS: Final = 120.0
"""How long a stream may take."""

log = logging.getLogger("loadtests")


@events.init_command_line_parser.add_listener
def _options(parser: LocustArgumentParser) -> None:
    own = parser.add_argument_group("cutover", "what is asked, and where rows are written")
    # A master sends these to its workers: they are text and numbers alone.
    own.add_argument("--cutover-config", default="", env_var="CUTOVER_CONFIG", help="cutover.toml")
    own.add_argument("--flow", default="", help="a flow; without it, all of them in turn")
    own.add_argument("--messages", default="", help="texts, bodies or lists of them, as JSON lines")
    own.add_argument("--pace", type=float, default=2.0, help="seconds between a user's requests")
    own.add_argument("--think", type=float, default=0.0, help="mean seconds before a next turn")
    own.add_argument("--rows", default="", help="the folder for raw rows")
    own.add_argument("--stack", default="", help="the stack that rows are of")
    own.add_argument("--run-number", type=int, default=0, help="what rows are marked with")
    own.add_argument("--seed", type=int, default=0, help="draws when each user begins")


class Load:
    """What the users of this process share, from the start of a test to its end."""

    def __init__(self, environment: Environment, options: Any) -> None:
        files = (options.cutover_config, options.messages, options.rows)
        config, messages, rows = (Path(one) if one else None for one in files)
        self.think = max(options.think, 0.0)
        self.flows = list(load_flows(config, options.flow, messages, self.think).values())
        self.marks = {"stack": options.stack, "run": options.run_number}
        self.pace = max(options.pace, 1e-3)
        self.host = environment.host or StreamUser.host
        self.headers: dict[str, str] = json.loads(os.environ.get(HEADERS, "{}"))
        index = getattr(environment.runner, "worker_index", 0)
        self.seed = f"{options.seed}/{index}"
        self.chance = random.Random(self.seed)
        self.users, self.conversations = count(index), count()
        self.sent: list[Row] = []
        name = f"{options.run_number:03}-{socket.gethostname()}-{os.getpid()}.jsonl"
        self.file = rows / name if rows else None
        self.cpu, self.began = time.process_time(), time.monotonic()

    def write(self, row: Row | Generator) -> None:
        """Append a line to this process's file of rows, if there is one."""
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("ab") as file:
                file.write(msgspec.json.encode(row) + b"\n")

    def close(self) -> None:
        """Write what this process used, and log how it went."""
        seconds = time.monotonic() - self.began
        cpu = (time.process_time() - self.cpu) / seconds
        self.write(Generator(run=self.marks["run"], cpu=cpu, seconds=seconds))
        for flow in self.flows:
            own = [row for row in self.sent if row.flow == flow.name]
            log.info("%s: %s", flow.name, summary(own))


@events.test_start.add_listener
def _start(environment: Environment, **_: Any) -> None:
    if isinstance(environment.runner, MasterRunner):
        return  # its workers send
    try:
        StreamUser.load = Load(environment, environment.parsed_options)
    except CutoverError as error:
        log.error("%s", error)
        raise SystemExit(64) from error


@events.test_stop.add_listener
def _stop(environment: Environment, **_: Any) -> None:
    if not isinstance(environment.runner, MasterRunner):
        StreamUser.load.close()


class StreamUser(User):
    """Opens conversations with one flow, from a moment on that is drawn."""

    host = "http://127.0.0.1:8080"
    load: Load

    def on_start(self) -> None:
        """Draw when the first request is due."""
        load = self.load
        self.flow = load.flows[next(load.users) % len(load.flows)]
        self.streams, self.leaving = Group(), Event()
        self.due: float = time.monotonic() + load.chance.random() * load.pace

    def wait_time(self) -> float:
        """Return the seconds until the next conversation is due."""
        return max(0.0, self.due - time.monotonic())

    @task
    def ask(self) -> None:
        """Open what is due."""
        while self.due <= time.monotonic():
            self.streams.spawn(self.converse, self.due)
            self.due += self.load.pace

    def on_stop(self) -> None:
        """Wait for the streams that are open, and break off those that outlast the patience."""
        self.leaving.set()
        self.streams.join(PATIENCE_SECONDS)
        self.streams.kill()

    def converse(self, due: float) -> None:
        """Ask one turn behind the other; both runs of a pair think for as long."""
        load, flow, number = self.load, self.flow, next(self.load.conversations)
        talk, ids = flow.conversations[number % len(flow.conversations)], {"id": str(uuid4())}
        chance = random.Random(f"{load.seed}/{number}")
        for turn, message in enumerate(talk, 1):
            asked = flow.request(load.host, message, load.headers, ids)
            row = Row(flow=flow.name, turn=turn, due=round(due - load.began, 6), **load.marks)
            row.conversation = ids["id"] if len(talk) > 1 else ""
            meter, ended = Meter(flow.dialect, row, due), Event()
            meter.ended = ended.set  # the body of an answer may stay open behind its last event
            self.streams.spawn(self.stream, asked, meter)
            ended.wait()
            ids |= meter.ids
            think = load.think and chance.expovariate(1 / load.think)
            due += (row.ended_ms or 0.0) / 1000 + think
            if turn < len(talk) and self.leaving.wait(max(0.0, due - time.monotonic())):
                return

    def stream(self, asked: Asked, meter: Meter) -> None:
        """Send a request and report how its stream went."""
        load, flow, row = self.load, self.flow, meter.row
        try:
            send(asked, meter, PATIENCE_SECONDS)
        except gevent.GreenletExit:
            meter.end("stopped")
        load.sent.append(row)
        load.write(row)
        if row.ending != "stopped":
            failed = CatchResponseError(f"{row.ending} {row.code}".strip())
            self.environment.events.request.fire(
                request_type=asked.method,
                name=f"{flow.name} {flow.target}",
                response_time=row.ended_ms,
                response_length=row.received,
                exception=None if row.ending == "complete" else failed,
                context={},
            )
