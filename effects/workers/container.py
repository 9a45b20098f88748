"""The worker `container`: containers of a Docker engine, listed, read and restarted.

The SDK is the extra `containers`. It is imported at the first instruction; where it is missing, or
no engine answers, actions result in `no_engine`.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from contract.workers import BadWorkerArguments, WorkerResult
from effects.workers.action import Action, ActionFailed, Arguments, ReportLine
from effects.workers.command import Tail, plain
from effects.workers.threads import Stopped, WorkerThreads

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

Value = TypeVar("Value")

# Names go into addresses of the engine's API: nothing else may.
_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}")
_EXTRA: Final = "containers"
_READ: Final = 65_536
_HEADER: Final = 8


class NoEngine(ActionFailed):
    """No engine can be asked."""

    def __init__(self, reason: str) -> None:
        super().__init__("no_engine", f"there is no container engine: {reason}")


class EngineFailed(ActionFailed):
    """The engine refuses."""

    def __init__(self, status: int | None) -> None:
        super().__init__("engine_failed", f"the engine refuses with status {status}")


class LogFrames:
    """Takes the frames off the log of a container that has no terminal, whatever their size.

    Each has a header: the stream in one byte, three of zero, and its length in four.
    """

    def __init__(self) -> None:
        self._header = b""
        self._left = 0

    def feed(self, piece: bytes) -> bytes:
        """Return what the container wrote of the next bytes."""
        piece, at, written = self._header + piece, 0, list[bytes]()
        while self._left or len(piece) - at >= _HEADER:
            if not self._left:
                self._left = int.from_bytes(piece[at + 4 : at + _HEADER])
                at += _HEADER
            part = piece[at : at + self._left]
            if self._left and not part:
                break
            written.append(part)
            at += len(part)
            self._left -= len(part)
        self._header = piece[at:]
        return b"".join(written)


class ContainerWorker:
    """Containers whose names match, of the engine at `address` (`unix://…`, `tcp://…`).

    Each instruction has a connection of its own, which gives up after `seconds`: calls of the SDK
    block, and run in `threads`. Of a log the last `most` bytes are shown.
    """

    def __init__(
        self,
        threads: WorkerThreads,
        address: str,
        names: Sequence[str],
        *,
        seconds: float = 30.0,
        most: int = 65_536,
    ) -> None:
        self._threads = threads
        self._address = address
        self._names = tuple(names)
        self._seconds = seconds
        self._most = most

    def actions(self) -> Mapping[tuple[str, str], Action]:
        """Return the actions."""
        offered = {"list": self.list, "logs": self.logs, "restart": self.restart}
        return {("container", name): action for name, action in offered.items()}

    async def list(self, arguments: Arguments, report: ReportLine) -> WorkerResult:
        """List the containers, numbered from 1 by name."""

        def work(engine: DockerClient, _: Stopped) -> list[dict[str, Any]]:
            found = engine.api.containers(all=bool(arguments["all"]))
            rows = [
                {
                    "name": name,
                    "image": str(one.get("Image", "")),
                    "state": str(one.get("State", "")),
                    "status": str(one.get("Status", "")),
                }
                for one in found
                if self._allowed(name := _name_of(one))
            ]
            rows.sort(key=lambda row: row["name"])
            return [{"number": number, **row} for number, row in enumerate(rows, start=1)]

        rows = await self._with_engine(work)
        lines = [
            f"{one['number']}. {one['name']} ({one['image']}): {one['status']}" for one in rows
        ]
        message = "\n".join(lines) or "there are no containers"
        return WorkerResult(ok=True, message=message, data={"containers": rows})

    async def logs(self, arguments: Arguments, report: ReportLine) -> WorkerResult:
        """Read the last lines of a container's log."""
        lines = int(arguments["lines"])

        def work(engine: DockerClient, stopped: Stopped) -> tuple[str, Tail]:
            container = self._container(engine, arguments)
            return str(container.name), self._log(engine, container, lines, stopped)

        name, tail = await self._with_engine(work)
        text = plain(tail.bytes)
        message = f"the last {lines} lines of {name}"
        if tail.left_out:
            message += f", of which {tail.left_out} bytes are left out"
        data = {"name": name, "lines": text.splitlines(), "left_out": tail.left_out}
        return WorkerResult(ok=True, message=message, data=data)

    async def restart(self, arguments: Arguments, report: ReportLine) -> WorkerResult:
        """Restart a container, and report the state it has then."""

        def work(engine: DockerClient, _: Stopped) -> tuple[str, str]:
            container = self._container(engine, arguments)
            report(f"restarting {container.name}")
            container.restart(timeout=int(arguments["grace"]))
            container.reload()
            return str(container.name), str(container.status)

        name, state = await self._with_engine(work)
        data = {"name": name, "state": state}
        if state != "running":
            message = f"{name} was restarted, and is {state} now"
            return WorkerResult(ok=False, message=message, code="not_running", data=data)
        return WorkerResult(ok=True, message=f"{name} was restarted and is running", data=data)

    def _container(self, engine: DockerClient, arguments: Arguments) -> Container:
        """Find a container by its name; raises `ActionFailed`."""
        name = str(arguments["name"])
        if not _NAME.fullmatch(name):
            raise BadWorkerArguments(argument="name", reason="must be the name of a container")
        container = engine.containers.get(name)
        # An id, or the beginning of one, finds a container, too: what counts is its name.
        if not self._allowed(str(container.name)):
            raise ActionFailed(
                code="not_allowed", message=f"{name!r} is no container that is configured"
            )
        return container

    def _log(
        self, engine: DockerClient, container: Container, lines: int, stopped: Stopped
    ) -> Tail:
        """Read the end of a log.

        The SDK reads a terminal's log byte by byte, any other by frames of the engine's size, and
        waits for either without a limit.
        """
        api, tail = engine.api, Tail(self._most)
        frames = None if container.attrs["Config"]["Tty"] else LogFrames()
        url = f"{api.base_url}/v{api.api_version}/containers/{container.id}/logs"
        asked = {"stdout": 1, "stderr": 1, "tail": lines}
        with api.get(url, params=asked, stream=True, timeout=self._seconds) as response:
            if not response.ok:
                raise EngineFailed(response.status_code)
            for piece in response.iter_content(_READ):
                if stopped():
                    break
                tail.feed(piece if frames is None else frames.feed(piece))
        return tail

    def _allowed(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._names)

    async def _with_engine(self, work: Callable[[DockerClient, Stopped], Value]) -> Value:
        return await self._threads.stoppable(partial(self._call, work))

    def _call(self, work: Callable[[DockerClient, Stopped], Value], stopped: Stopped) -> Value:
        try:
            sdk = import_module("docker")
        except ImportError as missing:
            raise NoEngine(reason=f"the extra {_EXTRA!r} is not installed") from missing
        self._probe()
        errors, transport = sdk.errors, import_module("requests").exceptions
        try:
            with closing(sdk.DockerClient(self._address, timeout=self._seconds)) as engine:
                return work(engine, stopped)
        except errors.NotFound as failure:
            raise ActionFailed(code="not_found", message="there is no such container") from failure
        except errors.APIError as failure:
            raise EngineFailed(failure.status_code) from failure
        except (errors.DockerException, transport.RequestException, OSError) as failure:
            raise NoEngine(reason="it does not answer") from failure

    def _probe(self) -> None:
        """Connect once: the SDK leaves sockets open that do not connect."""
        scheme, _, path = self._address.partition("://")
        if scheme != "unix":
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(self._seconds)
            try:
                probe.connect(path)
            except OSError as failure:
                raise NoEngine(reason="its socket takes no connections") from failure


def _name_of(found: Mapping[str, Any]) -> str:
    """Return the name of a listed container: the one that is no link's, without its slash."""
    names = [str(name).lstrip("/") for name in found.get("Names") or ()]
    return next((name for name in names if "/" not in name), "")
