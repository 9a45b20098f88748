"""Locust users that measure streams: one request is one whole stream.

    locust -f loadtests/users.py --host http://127.0.0.1:8000 --messages messages.jsonl

with Locust's web UI, master and workers, or `--headless`. Locust's own table counts a stream that
was cut, or reported a failure, as a failure, and its response time ends at the terminal frame;
its percentiles are bucketed, so ours come from the raw rows each worker writes below `--rows`.
Headers for every request (one `name: value` a line) are read from `CUTOVER_LOAD_HEADERS`, the key
that signs the QA header for `--stack` from `CUTOVER_LOAD_QA_KEY`, and the wire of a `--flow` that
is not built in, as JSON, from `CUTOVER_LOAD_DECLARED`. `CUTOVER_LOAD_MESSAGES` and
`CUTOVER_LOAD_ROWS` are the paths of a worker whose machine is not the master's.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import gevent
import msgspec
from locust import User, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.event import EventHook
from locust.runners import MasterRunner, WorkerRunner
from locust.stats import StatsEntry

from contract.errors import CutoverError
from contract.flows.declared import DeclaredFlow
from loadtests.arrivals import Cancellations
from loadtests.meter import (
    Planned,
    ResponseReader,
    StreamMeter,
    accepted,
    fetch,
)
from loadtests.requests import (
    DECLARED_VARIABLE,
    HEADERS_VARIABLE,
    MESSAGES_VARIABLE,
    QA_KEY_VARIABLE,
    ROWS_VARIABLE,
    LoadMessage,
    Target,
    flow_named,
    parse_header,
    read_messages,
)
from loadtests.rows import SECOND, STALL_SECONDS, GeneratorMeter, LoadRow, RowWriter, write_load

MILLISECOND = 1_000_000


class StreamFailed(CutoverError):
    """A stream was not served to its end; Locust groups failures by this sentence."""

    def __init__(self, row: LoadRow) -> None:
        super().__init__(
            f"stream {row.ending} ({row.code})" if row.code else f"stream {row.ending}"
        )


class RowRecorder:
    """One test of one worker: its target, its messages, its rows."""

    def __init__(self, environment: Environment) -> None:
        options: Any = environment.parsed_options
        declared = os.environ.get(DECLARED_VARIABLE)
        self.spec = flow_named(
            options.flow, msgspec.json.decode(declared, type=DeclaredFlow) if declared else None
        ).sent_by(options.stack)
        self.options = options
        lines = os.environ.get(HEADERS_VARIABLE, "").splitlines()
        self.target = Target(
            stack=options.stack,
            url=environment.host or "",
            headers=tuple(parse_header(line) for line in lines),
            qa_key=os.environ.get(QA_KEY_VARIABLE, ""),
        )
        messages = os.environ.get(MESSAGES_VARIABLE) or options.messages
        self._messages = read_messages(self.spec, Path(messages), options.route_key)
        self._tag = uuid4().hex[:12]
        self._sent = 0
        self._folder = Path(os.environ.get(ROWS_VARIABLE) or options.rows)
        self._name = f"{options.stack}-{self._tag}"
        self._writer = RowWriter(self._folder / f"rows-{self._name}.jsonl")
        self._generator = GeneratorMeter()
        # Users of two workers that thought alike would send alike.
        worker = getattr(environment.runner, "worker_index", 0)
        self._chance = random.Random(f"{options.think_seed} {worker}")
        self._cancellations = Cancellations(options.cancel, options.cancel_within)
        self._seed = self._chance.getrandbits(32)

    def pause(self) -> float:
        """Draw a pause between two messages, seconds."""
        return self._chance.uniform(0, 2 * float(self.options.think))

    def next_message(self) -> tuple[LoadMessage, float | None]:
        """Return a message that was never sent before, and when its client leaves, if it does."""
        self._sent += 1
        message = self._messages.fresh(self._sent - 1, f"{self._tag}-{self._sent}")
        return message, self._cancellations.after(self._seed, self._sent)

    def record(self, row: LoadRow, **_: object) -> None:
        """Write a row; listens to the `row` event."""
        self._writer.write(row)

    def close(self) -> None:
        """Write what is left; a second time is fine."""
        self._writer.close()
        write_load(self._generator.load(), self._folder, self._name)

    def keep_counts(self, own: StatsEntry) -> None:
        """Write Locust's own counts beside the rows, so that the two can be compared."""
        counts = {"requests": own.num_requests, "failures": own.num_failures}
        (self._folder / f"locust-{self._name}.json").write_bytes(msgspec.json.encode(counts))


class StreamUser(User):
    """A user: sends, reads to the end, pauses, and sends again.

    `scheduled` is the end of the thinking: a generator too busy to wake its user in time shows as
    schedule lag. A closed loop all the same: when the service is slow, it gets fewer requests.
    """

    abstract = False
    recording: ClassVar[RowRecorder]
    _due: int | None = None

    @property
    def _hooks(self) -> Any:
        return self.environment.events

    def on_start(self) -> None:
        """Think first: users that start together would otherwise keep sending together."""
        gevent.sleep(self.wait_time())

    def wait_time(self) -> float:
        """Think: uniformly between nothing and twice the mean; seconds."""
        seconds = self.recording.pause()
        self._due = time.monotonic_ns() + int(seconds * SECOND)
        return seconds

    @task
    def ask(self) -> None:
        """Stream one reply; a row and one of Locust's request events come of it."""
        recording = self.recording
        message, leaves = recording.next_message()
        payload = recording.target.request(message, accepted(recording.spec.dialect))
        sent = time.monotonic_ns()
        options = recording.options
        due = self._due or sent
        planned = Planned(options.run_number, options.stack, message.message_id, due, leaves)
        meter = StreamMeter(recording.spec, planned, sent, stall=options.stall)
        self._report(self._stream(meter, payload))

    def _stream(self, meter: StreamMeter, payload: bytes) -> LoadRow:
        seconds, closed = meter.planned.patience(self.recording.options.patience)
        patience = gevent.Timeout(seconds)
        reader = ResponseReader(meter)
        try:
            with patience:
                how, code = fetch(self.recording.target, payload, reader)
        except gevent.Timeout as expired:
            if expired is not patience:
                raise
            return meter.row(closed, time.monotonic_ns())
        except gevent.GreenletExit:
            # Locust ends the run: no failure of the request, which still belongs to the rows.
            row = meter.row("cancelled", time.monotonic_ns())
            self._hooks.row.fire(row=row)
            raise
        return meter.row(how, time.monotonic_ns(), code=code)

    def _report(self, row: LoadRow) -> None:
        self._hooks.row.fire(row=row)
        over = row.ended if row.terminal is None else row.terminal
        self._hooks.request.fire(
            request_type="STREAM",
            name=f"{row.flow} {row.stack}",
            response_time=over / MILLISECOND,
            response_length=0,
            response=None,
            context=self.context(),
            exception=None if row.ending in ("complete", "left") else StreamFailed(row),
        )


def _add_arguments(parser: LocustArgumentParser, **_: object) -> None:
    """Add our settings to Locust's; workers get them from the master, the web UI shows them."""
    ours = parser.add_argument_group("cutover", "Streams of a chat service")
    ours.add_argument("--flow", default="chat", help="flow to ask")
    ours.add_argument("--route-key", default="", help="what the router routes by")
    ours.add_argument("--stack", default="any", help="name of what is behind --host")
    ours.add_argument("--messages", default="messages.jsonl", help="request bodies, JSONL")
    ours.add_argument("--rows", default="build/load", help="folder for the raw rows")
    ours.add_argument("--think", type=float, default=1.0, help="mean pause of a user, seconds")
    ours.add_argument("--think-seed", type=int, default=0, help="seed of the pauses")
    ours.add_argument("--patience", type=float, default=120.0, help="longest stream, seconds")
    ours.add_argument("--stall", type=float, default=STALL_SECONDS, help="silence that counts")
    ours.add_argument("--cancel", type=float, default=0.0, help="share of clients that leave")
    ours.add_argument(
        "--cancel-within", type=float, default=5.0, help="they leave by then, seconds"
    )
    ours.add_argument("--run-number", type=int, default=0, help="number of the run, for the rows")


def _prepare(environment: Environment, **_: object) -> None:
    """Add the `row` event to the environment: TTFT and its kin are never fake requests."""
    own: Any = environment.events
    make_hook: Any = EventHook
    own.row = make_hook()


def _open(environment: Environment, **_: object) -> None:
    if isinstance(environment.runner, MasterRunner):
        return
    StreamUser.recording = RowRecorder(environment)
    listeners: Any = environment.events
    listeners.row.add_listener(StreamUser.recording.record)


def _close(environment: Environment, **_: object) -> None:
    if isinstance(environment.runner, MasterRunner):
        return
    listeners: Any = environment.events
    listeners.row.remove_listener(StreamUser.recording.record)
    StreamUser.recording.close()
    # A worker's counts are only those since its last report to the master.
    if not isinstance(environment.runner, WorkerRunner):
        StreamUser.recording.keep_counts(environment.stats.total)


def _break_off(environment: Environment, **_: object) -> None:
    """Wait for no stream: ending Locust itself, not its run, means at once."""
    environment.stop_timeout = 0.0


hooks: Any = events
hooks.init_command_line_parser.add_listener(_add_arguments)
hooks.init.add_listener(_prepare)
hooks.test_start.add_listener(_open)
hooks.test_stop.add_listener(_close)
hooks.quitting.add_listener(_break_off)
