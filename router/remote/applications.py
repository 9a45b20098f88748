"""Applications in this process: stacks as behind an address, without the socket, on the tape."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from contract.errors import CutoverError
from contract.records import Role
from contract.wire import FrameReader
from cutover_client.application import Application, Message, WrappedApplication
from effects.tape import Signal, TapeSession
from effects.tasks import contained, ended
from router.remote.body import StreamedResponse, ignore_body
from router.remote.endpoint import forwarded
from router.remote.stack import RemoteRun
from router.serving.run import Run, RunRequest
from router.serving.stack import Bind, LocalStack
from router.stack import IN_PROCESS, IncomingRequest, Powers, header_of

LEAVE_SECONDS: Final = 0.5
"""What an application has to end by itself once its client has left; then it is cancelled."""
_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}
_JSON: Final = (b"content-type", b"application/json")
_FAILURE: Final = 500
_POWERS: Final = replace(IN_PROCESS, exact=False)


class ApplicationNotStarted(CutoverError):
    """The lifespan of an application failed."""

    def __init__(self, why: str) -> None:
        super().__init__(f"a wrapped application does not start: {why}")


class ApplicationSilent(CutoverError):
    """An application has ended without an answer, or in the middle of one."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the application has ended at {path!r} before its answer had")


class Lifespan:
    """The lifespan of one application: begun once, and ended; `state` is what it hands to requests.

    An application that knows no lifespan is started as it is.
    """

    def __init__(self, app: Application) -> None:
        self.state: dict[str, Any] = {}
        self._app = app
        self._ending = asyncio.Event()
        self._told = Signal()
        self._last = ""
        self._why = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run it for as long as the block lasts; raises `ApplicationNotStarted`."""
        task = asyncio.get_running_loop().create_task(self._run(), name="lifespan")
        task.add_done_callback(lambda _: self._told.wake())
        try:
            while not (self._last or task.done()):
                await self._told.wait()
            if self._last == "lifespan.startup.failed":
                raise ApplicationNotStarted(self._why or "it says no more")
            yield
        finally:
            self._ending.set()
            await ended(asyncio.wait({task}))
            if not task.cancelled():
                task.exception()

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": _ASGI, "state": self.state}
        begun = False

        async def receive() -> Message:
            nonlocal begun
            if not begun:
                begun = True
                return {"type": "lifespan.startup"}
            await self._ending.wait()
            return {"type": "lifespan.shutdown"}

        async def send(message: Message) -> None:
            self._last, self._why = message["type"], message.get("message", "")
            self._told.wake()

        await self._app(scope, receive, send)


class ApplicationResponse(StreamedResponse):
    """What an application answers to one request."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._requests = [body]
        self._left = asyncio.Event()
        self._reading = asyncio.Event()
        self._reading.set()

    @property
    def status(self) -> int:
        """Status of the answer; 0 before its head is there."""
        return self._status

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of the answer, names in lower case."""
        return self._headers

    async def receive(self) -> Message:
        """Return the request and then, once the client has left or has the answer, that."""
        if self._requests:
            body = self._requests.pop()
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Take a piece of the answer; waits while no more is read."""
        if self._left.is_set():
            return  # as servers do
        if message["type"] == "http.response.start":
            self._status = message["status"]
            found = message.get("headers", ())
            self._headers = [(bytes(name).lower(), bytes(value)) for name, value in found]
            self.changed.wake()
        elif message["type"] == "http.response.body":
            body = bytes(message.get("body", b""))
            if self._listener is None:
                self._held += body
            elif body:
                self._pass_on(self._listener, body)
            if not message.get("more_body", False):
                self._end()
            await asyncio.sleep(0)  # a turn for who reads, and may want no more for now
            await self._reading.wait()

    async def headed(self) -> None:
        """Wait for the head; raises what the application raised, `ApplicationSilent` for none."""
        while not self.status:
            self.check()
            await self.changed.wait()

    def finish(self, task: asyncio.Task[None], path: str) -> None:
        """Note that the application has ended: before its answer had, that is an error."""
        error = None if task.cancelled() else task.exception()
        if not self.ended:
            self._error = error or ApplicationSilent(path)
        self._end()

    def pause(self) -> None:
        """Let the application wait before it goes on."""
        self._reading.clear()

    def resume(self) -> None:
        """Let it go on."""
        self._reading.set()

    def close(self) -> None:
        """Tell the application that nobody reads any more."""
        self._listener = ignore_body
        self._end()

    def drain(self) -> None:
        """Ignore what follows; the application may work on."""
        self._listener = ignore_body
        self._reading.set()

    def _end(self) -> None:
        self.ended = True
        self._left.set()
        self._reading.set()
        self.changed.wake()


class ApplicationEndpoint:
    """One flow of an application, for one request; `limits` are those of its stream."""

    def __init__(self, wrapped: WrappedApplication, path: str, state: Mapping[str, Any]) -> None:
        self.path = path
        self.limits = wrapped
        self._app = wrapped.app
        self._state = state
        self._task: asyncio.Task[None] | None = None

    async def request(
        self, incoming: IncomingRequest, exchange: str, role: Role
    ) -> ApplicationResponse:
        """Call the application; return when the head of its answer is there.

        Raises what it raises. It runs in a task of its own, in the caller's context.
        """
        response = ApplicationResponse(incoming.body)
        scope = self._scope(incoming, exchange, role)
        call = self._call(scope, response)
        self._task = task = asyncio.get_running_loop().create_task(call, name="application")
        task.add_done_callback(lambda done: response.finish(done, self.path))
        try:
            await response.headed()
            if response.status >= _FAILURE:  # an error that it answers, and then raises
                await self.finished()
        except BaseException:
            response.close()
            raise
        return response

    async def finished(self) -> None:
        """Wait until the application has ended; raises what it raised."""
        if self._task is not None:
            await asyncio.wait({self._task})
            self._task.result()

    async def leave(self) -> None:
        """Let an application that nobody waits for end by itself, then cancel it."""
        if self._task is not None and not self._task.done():
            await ended(_left(self._task))

    async def _call(self, scope: Message, response: ApplicationResponse) -> None:
        await self._app(scope, response.receive, response.send)

    def _scope(self, incoming: IncomingRequest, exchange: str, role: Role) -> dict[str, Any]:
        headers = forwarded(incoming, exchange, role)
        host = header_of(incoming.headers, b"host") or b"localhost"
        headers += [(b"host", host), (b"content-length", b"%d" % len(incoming.body))]
        if not header_of(headers, b"content-type"):
            headers.append(_JSON)
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": "1.1",
            "method": "POST",
            "scheme": incoming.scheme,
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": incoming.query,
            "root_path": "",
            "headers": headers,
            "client": (incoming.peer, 0) if incoming.peer else None,
            "server": None,
            "state": dict(self._state),
        }


async def _left(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task}, timeout=LEAVE_SECONDS)
    task.cancel()
    await asyncio.wait({task})


class ApplicationRun(RemoteRun):
    """One flow of an application, handling one request; its effects are on the run's tape.

    Where the application works on after its answer, so does the run.
    """

    def __init__(
        self,
        request: RunRequest,
        session: TapeSession,
        endpoint: ApplicationEndpoint,
        reader: FrameReader,
        bind: Bind,
    ) -> None:
        super().__init__(request, session, endpoint, reader)
        session.frames = 0  # its calls and its frames come in one order
        self._application = endpoint
        self._bind = bind

    async def _produce(self) -> None:
        with contained(self._exit_requested), self._bind(self.request, self.session):
            try:
                await super()._produce()
                await self._application.finished()
            finally:
                await self._application.leave()

    def _exit_requested(self, error: BaseException) -> None:
        """A task of the application raised SystemExit or KeyboardInterrupt: end this run."""
        self.finish(self._failed(error))


@dataclass(frozen=True, slots=True)
class ApplicationStack(LocalStack):
    """Flows of which some are applications, whose lifespans run within `opened`."""

    applications: Mapping[str, WrappedApplication] = field(default_factory=dict)
    powers: Powers = _POWERS
    _lifespans: dict[int, Lifespan] = field(default_factory=dict)
    _readers: dict[str, FrameReader] = field(default_factory=dict)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Run the lifespan of each application; raises `ApplicationNotStarted`."""
        async with AsyncExitStack() as running:
            for wrapped in self.applications.values():
                if id(wrapped.app) not in self._lifespans:
                    lifespan = Lifespan(wrapped.app)
                    await running.enter_async_context(lifespan.running())
                    running.callback(self._lifespans.pop, id(wrapped.app))
                    self._lifespans[id(wrapped.app)] = lifespan
            yield

    def new_run(self, request: RunRequest, session: TapeSession, *, strict: bool = True) -> Run:
        """Make a run of one flow for one request."""
        spec = request.spec
        wrapped = self.applications.get(spec.name)
        if wrapped is None:
            return LocalStack.new_run(self, request, session, strict=strict)
        wanted = request.request.path or spec.path
        path = wrapped.path + wanted.removeprefix(spec.path) if wrapped.path else wanted
        if spec.name not in self._readers:
            self._readers[spec.name] = FrameReader(spec.dialect)
        lifespan = self._lifespans.get(id(wrapped.app))
        endpoint = ApplicationEndpoint(wrapped, path, {} if lifespan is None else lifespan.state)
        return ApplicationRun(request, session, endpoint, self._readers[spec.name], self.bind)


def with_applications(stack: LocalStack) -> LocalStack:
    """Return a stack that runs the applications among its flows."""
    flows: Mapping[str, object] = stack.flows
    found = {name: flow for name, flow in flows.items() if isinstance(flow, WrappedApplication)}
    if not found:
        return stack
    return ApplicationStack(
        stack.name,
        stack.flows,
        stack.fingerprint,
        stack.forget,
        bind=stack.bind,
        applications=found,
    )
