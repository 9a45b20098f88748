"""The tape in a service of its own: its calls are asked for, and reported, over HTTP.

The router keeps the tape, and names the run in headers of its request. Within that request
`@effect` asks the router's gateway for each call: what is on the tape comes back, what is not the
service performs in its own process, and reports. A `TapeTransport` sends requests to models through
the gateway, which performs them. The protocol is described in docs/gateway.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from contextvars import copy_context
from functools import cache, partial
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, TypeVar

import httpx
import msgspec

from cutover.errors import Control, EffectFailed, Fenced
from cutover.tape.entry import Call, Entry, Fault, Item
from cutover.tape.exchange import Exchange, current
from cutover.tape.portal import inside
from cutover.tape.run import Run, current_run, outside

log = logging.getLogger(__name__)
T = TypeVar("T")

RUN_HEADER = "x-cutover-run"
"""Names the run that a request to a service, or a call that comes back from it, belongs to."""
GATEWAY_HEADER = "x-cutover-gateway"
"""Tells a service where its calls go: the address of the run in the gateway of the router."""
KEY_HEADER = "x-cutover-key"
"""The secret that router and services share, where one is configured."""
TARGET_HEADER = "x-cutover-target"
"""Names the origin that a request through the gateway is meant for."""

ANSWER_SECONDS = 600.0
"""How long an answer may take: another run performs the call, or a recording has not come to it."""
_TRIES = 2
"""How often a report is sent: one that is lost leaves the outcome of a write in doubt."""
_OK, _REFUSED = 200, 409


# What is said over HTTP.


class CallQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """Body of `POST {run}/effects`: a call that a service makes.

    `canonical` and `key` (hexadecimal) are the call's as `@effect` makes them; a service without
    the library sends its `arguments`, an object. Where `raw`, items are bytes, in base64. `wait` is
    false where an answer must not wait for a call that is under way.
    """

    name: str
    arguments: msgspec.Raw = msgspec.Raw()
    canonical: str = ""
    key: str = ""
    writes: bool = False
    raw: bool = False
    wait: bool = True
    seconds: float = 30.0

    def call(self) -> Call:
        """Return the call as the tape finds it; raises `ValueError` where it is not whole."""
        key, canonical = bytes.fromhex(self.key), self.canonical.encode()
        if not key:
            arguments = msgspec.json.decode(self.arguments, type=dict[str, Any])
            canonical = msgspec.json.encode(arguments, order="sorted")
            key = blake2b(canonical, digest_size=16).digest()
        if not (self.name and key and 0 < self.seconds <= ANSWER_SECONDS):
            message = f"name and arguments are due, and seconds of at most {ANSWER_SECONDS:g}"
            raise ValueError(message)
        return Call(self.name, key, canonical, self.writes, seconds=self.seconds)


class CallAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Answer to a `CallQuestion`; one of four.

    `items` and `fault`: it is on the tape. `perform`: the service performs the call, and reports
    under this number. `outside`: it performs the call, whose run is over, and reports nothing.
    `refused`: the run is stopped, for the reason of a `Control` about `subject`.
    """

    items: list[msgspec.Raw] | None = None
    fault: Fault | None = None
    perform: int | None = None
    outside: bool = False
    refused: str = ""
    subject: str = ""


class CallReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Body of `POST {run}/effects/{number}`: what came of a call; `incomplete` says what is not."""

    items: list[msgspec.Raw] = []
    fault: Fault | None = None
    incomplete: str = ""


def pack(items: Iterable[Item], *, raw: bool) -> list[msgspec.Raw]:
    """Return items as they are sent; those that are no bytes are left out."""
    sent = [item for item in items if isinstance(item, bytes)]
    return [msgspec.Raw(b'"%b"' % b64encode(item) if raw else item) for item in sent]


def unpack(items: Iterable[msgspec.Raw], *, raw: bool) -> list[bytes]:
    """Return items that were sent; raises `ValueError`."""
    if raw:
        return [b64decode(msgspec.json.decode(item, type=str), validate=True) for item in items]
    return [bytes(item) for item in items]


_CONTROLS = {kind.code: kind for kind in Control.__subclasses__()}


# A run of the router, in the service.


class RemoteRun(Run):
    """A run whose tape the router keeps; `address` is its own in the gateway.

    What it may perform the gateway says for each call, also after the request has ended.
    """

    def __init__(self, exchange: _RemoteExchange) -> None:
        super().__init__(exchange, "service")
        self._remote = exchange

    @property
    def over(self) -> bool:
        """The gateway knows."""
        return False

    async def find(self, call: Call) -> Entry | None:
        """Return the entry that answers a call, as the gateway has it; None: it is due."""
        self.check()
        return self._answered(call, await _elsewhere(self._remote.ask(call, wait=True)))

    def locate(self, call: Call) -> Entry | None:
        """Return what `find` does, for blocking code on the event loop's own thread."""
        self.check()
        return self._answered(call, _now(self._remote.ask(call, wait=False)))

    def missed(self, call: Call) -> Entry | None:  # noqa: ARG002 - as `Run` has it
        """Return None: the gateway has decided that the call is due."""
        return None

    def rerouted(self, request: Any) -> Any:
        """Return a request to a model as one through the gateway, of the same library."""
        self.check()
        kind, url = type(request), request.url
        origin = f"{url.scheme}://{url.netloc.decode('ascii')}"
        headers = [one for one in request.headers.raw if one[0].lower() != b"host"]
        headers += [(TARGET_HEADER.encode(), origin.encode())]
        headers += [(name.encode(), value.encode()) for name, value in self._remote.headers.items()]
        address = self._remote.address + url.raw_path.decode("ascii")
        options = {"content": request.content, "extensions": request.extensions}
        return kind(request.method, address, headers=headers, **options)

    def _answered(self, call: Call, answer: CallAnswer) -> Entry | None:
        if answer.refused:
            raise self.stopped(_CONTROLS.get(answer.refused, Fenced)(answer.subject))
        if answer.items is None:
            if answer.perform is not None:
                self._remote.numbers[id(call)] = answer.perform
            return None
        entry = Entry(call, self.exchange.stamp())
        entry.items = [(entry.at, item) for item in unpack(answer.items, raw=_raw(call))]
        entry.close("failed" if answer.fault else "done", answer.fault)
        self.note(call, "tape", self.exchange.add(entry))
        return entry


class _RemoteExchange(Exchange):
    """What a service does for one request: it asks for each call, and reports those it performs.

    A result is reported before its caller gets it: what a client reads of it is on the tape.
    """

    def __init__(self, address: str, headers: dict[str, str]) -> None:
        super().__init__()
        self.address, self.headers = address, headers
        self.numbers: dict[int, int] = {}
        """Under which number a call is reported, by its identity: equal ones are two."""

    async def ask(self, call: Call, *, wait: bool) -> CallAnswer:
        """Ask for a call; raises `EffectFailed` for a write where the gateway does not answer.

        A read is then performed off the tape, and counted in `outside`.
        """
        question = CallQuestion(
            call.name,
            canonical=call.canonical.decode(),
            key=call.key.hex(),
            writes=call.writes,
            raw=_raw(call),
            wait=wait,
            seconds=call.seconds,
        )
        try:
            response = await self._post("/effects", question)
            if response.status_code in {_OK, _REFUSED}:
                return msgspec.json.decode(response.content, type=CallAnswer)
            why = f"it answers {response.status_code}"
        except (httpx.TransportError, ValueError) as error:
            why = type(error).__name__
        if call.writes:
            raise EffectFailed(call.name, "GatewayUnreachable", why)
        outside[call.name] += 1
        log.warning("effect=%s off the tape: no answer of the gateway, %s", call.name, why)
        return CallAnswer(outside=True)

    async def settle(self, entry: Entry, fault: Fault | None, error: BaseException | None) -> None:
        """Report a call that was performed, and end its entry."""
        try:
            await _elsewhere(self._report(entry, fault))
        finally:
            await super().settle(entry, fault, error)

    def settle_now(self, entry: Entry, fault: Fault | None, error: BaseException | None) -> None:
        """Report a call that was performed on the event loop's own thread, and end its entry."""
        _now(self._report(entry, fault))
        super().settle_now(entry, fault, error)

    async def _report(self, entry: Entry, fault: Fault | None) -> None:
        name, number = entry.call.name, self.numbers.pop(id(entry.call), None)
        if number is None:  # it is off the tape
            return
        items, why = pack((item for _, item in entry.items), raw=_raw(entry.call)), ""
        report = CallReport(items, fault, "" if items or fault else self.incomplete.get(name, ""))
        for _ in range(_TRIES):
            try:
                response = await self._post(f"/effects/{number}", report)
            except httpx.TransportError as error:
                why = type(error).__name__
            else:
                if response.status_code == _OK:
                    return
                why = f"the gateway answers {response.status_code}"
                break
        log.error("effect=%s was performed, and its report is lost: %s", name, why)

    async def _post(self, path: str, body: CallQuestion | CallReport) -> httpx.Response:
        url, content = self.address + path, msgspec.json.encode(body)
        headers = {"content-type": "application/json", **self.headers}
        return await _connections().post(url, content=content, headers=headers)


def _raw(call: Call) -> bool:
    """Whether the items of a call are what a wire brought; those of effects are JSON."""
    return call.name.startswith(("http ", "model."))


# A thread with an event loop speaks to the gateway: blocking code can wait for it anywhere.


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="cutover-gateway", daemon=True).start()
    return loop


@cache
def _connections() -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=100)
    timeout = httpx.Timeout(ANSWER_SECONDS, connect=5.0)
    return httpx.AsyncClient(limits=limits, timeout=timeout, trust_env=False)


async def _elsewhere(work: Coroutine[Any, Any, T]) -> T:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _loop()))


def _now(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _loop()).result()


# What makes a request's run the current one.


_RUN = re.compile("(.*)/runs/[0-9a-f]{32}")
_LOOPBACK = re.compile(r"https?://(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?")


class _Middleware:
    """What serves an application, and knows which gateway the service speaks to.

    That is the one of `CUTOVER_GATEWAY`, or any on loopback. Where `CUTOVER_GATEWAY_KEY` is set,
    requests that name a run must carry it.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._gateway = os.environ.get("CUTOVER_GATEWAY", "").rstrip("/")
        self._key = os.environ.get("CUTOVER_GATEWAY_KEY", "")
        self._headers = {KEY_HEADER: self._key} if self._key else {}

    def _address(self, headers: Mapping[str, str]) -> str | None:
        """Return where the calls of a request go, "" for nowhere, None where it is not trusted."""
        address = headers.get(GATEWAY_HEADER, "")
        if not address:
            return ""
        given = headers.get(KEY_HEADER, "")
        if self._key and not compare_digest(given.encode(), self._key.encode()):
            log.warning("request refused: %s lacks the key of CUTOVER_GATEWAY_KEY", KEY_HEADER)
            return None
        if of_run := _RUN.fullmatch(address):
            gateway = of_run[1]
            if gateway == self._gateway if self._gateway else _LOOPBACK.fullmatch(gateway):
                return address
        log.warning("request refused: gateway %r is not that of CUTOVER_GATEWAY", address)
        return None


_UNTRUSTED = msgspec.json.encode(
    {"status": 403, "title": "Forbidden", "code": "gateway_not_trusted"}
)
_PROBLEM = "application/problem+json"

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class TapeMiddleware(_Middleware):
    """Middleware of ASGI: the calls of a request go on the tape of the run that its headers name.

        app = TapeMiddleware(app)               # or: app.add_middleware(TapeMiddleware)

    Without the headers it does nothing. Requests whose headers name a gateway that is not trusted
    are answered with 403: performed without a tape, a shadow would not be one.
    """

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve a request."""
        address: str | None = ""
        if scope["type"] == "http" and current_run() is None:
            latin = (
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in scope["headers"]
            )
            address = self._address(dict(latin))
        if address is None:
            headers = [(b"content-type", _PROBLEM.encode())]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": _UNTRUSTED})
        elif address:
            exchange = _RemoteExchange(address, self._headers)
            try:
                with RemoteRun(exchange).current():
                    await self._app(scope, receive, send)
            finally:
                await exchange.aclose()
        else:
            await self._app(scope, receive, send)


class TapeWsgiMiddleware(_Middleware):
    """Middleware of WSGI, as `TapeMiddleware` is of ASGI.

    app.wsgi_app = TapeWsgiMiddleware(app.wsgi_app)                                     # Flask
    """

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Serve a request."""
        names = (GATEWAY_HEADER, KEY_HEADER)
        given = {name: environ.get(f"HTTP_{name.upper().replace('-', '_')}", "") for name in names}
        address = self._address(given) if current_run() is None else ""
        if address is None:
            start_response("403 Forbidden", [("content-type", _PROBLEM)])
            return [_UNTRUSTED]
        if not address:
            body: Iterable[bytes] = self._app(environ, start_response)
            return body
        return self._taped(address, environ, start_response)

    def _taped(
        self, address: str, environ: dict[str, Any], start_response: Any
    ) -> Generator[bytes, None, None]:
        exchange = _now(_opened(address, self._headers))
        context = copy_context()
        context.run(current.set, RemoteRun(exchange))
        try:
            yield from inside(context, partial(self._app, environ, start_response))
        finally:
            _now(exchange.aclose())


async def _opened(address: str, headers: dict[str, str]) -> _RemoteExchange:
    return _RemoteExchange(address, headers)
