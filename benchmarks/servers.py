"""Servers under measurement: each a process of its own, whose processor time can be read."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from contract.errors import CutoverError
from loadtests.rows import cpu_times
from loadtests.runner import child_environment, module_command

ANNOUNCED = "listening on "
PATIENCE_S = 10.0
# The kernel's number for "all processor time of that process", as clock_getcpuclockid(3) makes it.
_SCHEDULED = 2
_PID_SHIFT = 3


class ServerDidNotStart(CutoverError):
    """A server ended before it printed the address it listens on."""

    def __init__(self, command: Sequence[str], output: str, complaint: str) -> None:
        super().__init__(
            f"{' '.join(command[1:])!r} did not start; it wrote {output!r}; log: {complaint!r}"
        )


@dataclass(frozen=True, slots=True)
class BenchServer:
    """A running server."""

    name: str
    url: str
    pid: int

    def cpu(self) -> float:
        """Processor seconds used since its start: user and system, all its threads."""
        return process_cpu(self.pid)


def process_cpu(pid: int) -> float:
    """Return the processor seconds of another process, exact to the nanosecond."""
    return time.clock_gettime((~pid << _PID_SHIFT) | _SCHEDULED)


@contextmanager
def serving(name: str, module: str, *arguments: str, log: Path) -> Iterator[BenchServer]:
    """Start `python -m module …`, which prints `listening on URL`; end it on exit.

    Raises:
        ServerDidNotStart: it did not print its address.
    """
    command = module_command(module, *arguments)
    with (
        log.open("ab") as errors,
        subprocess.Popen(  # noqa: S603 - our own module, in this interpreter
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=child_environment()
        ) as process,
    ):
        try:
            yield BenchServer(name, _address(process, command, log), process.pid)
        finally:
            _end(process)


def _address(process: subprocess.Popen[str], command: Sequence[str], log: Path) -> str:
    output = process.stdout.readline() if process.stdout is not None else ""
    _, announced, url = output.partition(ANNOUNCED)
    if not announced:
        raise ServerDidNotStart(command, output, log.read_text("utf-8", "replace")[-500:])
    return url.strip()


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()


MODEL = "gpt-4.1"


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of requests that graph serves and that are shadowed, in per cent."""

    graph: float = 0.0
    shadow: float = 0.0


def configuration(folder: Path, provider: str, rollout: Shares) -> str:
    """Write a `cutover.toml` that keeps everything it makes in `folder`."""
    return f"""
[flows.chat]
enable_langgraph = true
langgraph_percent = {rollout.graph}
shadow_percent = {rollout.shadow}

[flows.companion]
enable_langgraph = true
langgraph_percent = {rollout.graph}
shadow_percent = {rollout.shadow}

[flows.session]
enable_langgraph = true
langgraph_percent = {rollout.graph}
shadow_percent = {rollout.shadow}

[flows.session.options]
unknown_session = "create"

[captures]
path = "{folder}/captures"

[stores]
conversations = "sqlite:///{folder}/cutover.sqlite"
memory = "sqlite:///{folder}/cutover.sqlite"
history = ""
checkpoints = "sqlite:///{folder}/threads.sqlite"
pauses = "sqlite:///{folder}/cutover.sqlite"

[providers.simulated]
base_url = "{provider}/v1"

[models."{MODEL}"]
provider = "simulated"
"""


@contextmanager
def router_server(name: str, folder: Path, provider: str, rollout: Shares) -> Iterator[BenchServer]:
    """Serve a router with the simulated provider at `provider`."""
    own = folder / name
    own.mkdir()
    path = own / "cutover.toml"
    path.write_text(configuration(own, provider, rollout), encoding="utf-8")
    options = ("serve", "--config", str(path), "--port", "0")
    with serving(name, "cutover", *options, log=own / "log") as server:
        yield server


@contextmanager
def plain_server(folder: Path, provider: str) -> Iterator[BenchServer]:
    """Serve the baseline with the simulated provider at `provider`."""
    own = folder / "plain"
    own.mkdir()
    options = ("--provider", f"{provider}/v1", "--model", MODEL, "--store", f"{own}/turns.sqlite")
    with serving("plain", "benchmarks.plain", *options, log=own / "log") as server:
        yield server


TICKS_A_SECOND = 100
"""Of /proc/stat: USER_HZ, which Linux has kept at 100 for programs."""


class OtherLoad:
    """Filled in when the measuring block has ended: `share` of all CPUs, 0 to 1."""

    def __init__(self) -> None:
        self.share = 0.0


@contextmanager
def other_load() -> Iterator[OtherLoad]:
    """Watch the machine's account beside our own and our children's for as long as the block."""
    found, machine, own = OtherLoad(), cpu_times(), family_cpu()
    yield found
    later = cpu_times()
    total = later.total - machine.total
    if total > 0:
        ours = (family_cpu() - own) * TICKS_A_SECOND
        found.share = max(0.0, (later.busy - machine.busy - ours) / total)


def family_cpu() -> float:
    """Return the processor seconds of this process and of its living children."""
    return time.process_time() + sum(map(process_cpu, children()))


def children() -> list[int]:
    """Find the processes this one has started, by /proc; none where there is no such thing."""
    lists = Path("/proc/self/task").glob("*/children")
    return [int(pid) for listed in lists for pid in listed.read_text("ascii").split()]
