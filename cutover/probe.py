"""Asking a service once, as the router would ask it in the shadow, to see what it answers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import gaierror
from urllib.parse import urlsplit

import msgspec
from yarl import URL

from contract.declarations import decode_text
from contract.errors import CutoverError
from contract.wire import NO_JSON
from cutover.recognition import Answer, End
from router.config.schema import RemoteStackSettings
from router.exchange_ids import new_exchange_id
from router.remote import (
    Client,
    ConnectTimedOut,
    Endpoint,
    Response,
    ResponseLost,
    Unreachable,
)
from router.stack import Headers, IncomingRequest

MOST_BYTES = 4 * 1_048_576
"""Of an answer more is not read."""
SECONDS = 30.0
"""How long an answer may take, unless the user says otherwise."""

_ADDRESS = "is the address right, and can this machine reach it?"
_UNKNOWN_AUTHORITY = {18, 19, 20, 21}
"""OpenSSL's codes of certificates that are signed by themselves, or by an unknown authority."""
_USUAL: Headers = ((b"content-type", b"application/json"), (b"accept", b"*/*"))
_OWN = ("x-cutover-", "content-length", "host", "transfer-encoding")


class BodyRefused(CutoverError):
    """The body that is to be sent is no request of a flow."""


class HeaderRefused(CutoverError):
    """A header that is to be sent cannot be; its value is not named."""


CONNECT_SECONDS = 2.0
"""What an address has to accept a connection."""
PORTS = {"http": 80, "https": 443, "redis": 6379, "rediss": 6379, "postgresql": 5432}
"""By scheme, where an address names none."""


class NotReached(CutoverError):
    """No server accepts connections at an address: there is no answer, or no server listens."""

    def __init__(self, host: str, port: int, error: Exception) -> None:
        why = "no answer" if isinstance(error, TimeoutError) else "no server listens"
        super().__init__(f"{why} at {host}:{port}")


class NoSuchPlace(NotReached):
    """No host and port can be read from an address, whose text may hold a piece of a password."""

    def __init__(self) -> None:
        CutoverError.__init__(self, "no host and port can be read from it")


async def reach(url: str) -> None:
    """Connect to an address and send nothing; raises `NotReached`."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "localhost", parts.port or PORTS[parts.scheme]
    except ValueError:
        raise NoSuchPlace from None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        raise NotReached(host, port, error) from error
    writer.close()


class NoAnswer(CutoverError):
    """A service did not answer: where, why, and what to do."""

    def __init__(self, place: str, why: str, advice: str) -> None:
        super().__init__(f"{place}: {why}; {advice}")
        self.why = why
        self.advice = advice


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """The request that is sent: its body, its headers, and how long the answer may take."""

    body: bytes
    headers: Headers = ()
    seconds: float = SECONDS

    @property
    def value(self) -> dict[str, object]:
        """The body, decoded."""
        decoded: dict[str, object] = msgspec.json.decode(self.body)
        return decoded


def text_in(given: str) -> str:
    """Return the text of a request, which is given itself or by its file; raises `CutoverError`."""
    if given.lstrip().startswith(("{", "[")):
        return given
    try:
        return decode_text(Path(given).read_bytes(), given)
    except OSError as error:
        why = (error.strerror or type(error).__name__).lower()
        message = f"the body {given!r}: {why}; a file is due, or JSON that clients send: '{{…}}'"
        raise BodyRefused(message) from error


def body_of(text: str) -> bytes:
    """Check the text of a body; raises `BodyRefused`."""
    try:
        value = msgspec.json.decode(text)
    except NO_JSON as error:
        message = f"the body is no JSON: {error}"
        raise BodyRefused(message) from error
    if not isinstance(value, dict):
        message = "the body must be a JSON object: the router serves no other requests"
        raise BodyRefused(message)
    return text.encode()


def headers_of(lines: Sequence[str]) -> Headers:
    """Read header lines such as `authorization: Bearer …`; raises `HeaderRefused`."""
    found: list[tuple[bytes, bytes]] = []
    for line in lines:
        name, colon, value = (part.strip() for part in line.partition(":"))
        name = name.lower()
        sound = colon and name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        if not sound or not value.isprintable() or not value.isascii():
            shown = f" {name!r}" if colon else ""  # without one it may be the value
            message = f"--header{shown}: must be 'name: value', in ASCII"
            raise HeaderRefused(message)
        if name.startswith(_OWN):
            message = f"--header {name!r}: that is set for each request"
            raise HeaderRefused(message)
        found.append((name.encode(), value.encode()))
    return tuple(found)


async def ask(address: RemoteStackSettings, url: URL, request: ProbeRequest) -> Answer:
    """Send a request to a service with `x-cutover-role: shadow`; raises `NoAnswer`.

    The connection is closed when the answer has ended, or at a limit.
    """
    place = str(url.with_query(None).with_user(None))
    deadline = asyncio.get_running_loop().time() + request.seconds
    async with aclosing(Client(url, address.connect_seconds)) as client:
        endpoint, body = Endpoint(client, url, address), _Body()
        try:
            async with asyncio.timeout_at(deadline):
                incoming = incoming_of(request.body, request.headers)
                response = await endpoint.request(incoming, new_exchange_id(), "shadow")
        except TimeoutError as error:
            why = f"no response within {request.seconds:g} s"
            raise NoAnswer(place, why, "is the model slow? --seconds allows more") from error
        except ConnectTimedOut as error:
            why = f"no connection within {address.connect_seconds:g} s"
            tls = f"{_ADDRESS} Is it https://?" if url.scheme == "https" else _ADDRESS
            raise NoAnswer(place, why, tls) from error
        except Unreachable as error:
            raise NoAnswer(place, *_why_unreachable(url, error.__cause__)) from error
        except ResponseLost as error:
            why = "it closed the connection, or what it sent is no HTTP/1.1"
            advice = "is it https://? Otherwise see the log of the service"
            raise NoAnswer(place, why, advice) from error
        return await body.read(response, deadline)


class _Body:
    """The body of an answer, with the time of each piece since the request."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._pieces: list[tuple[int, bytes]] = []
        self._size = 0

    async def read(self, response: Response, deadline: float) -> Answer:
        """Read until the body ends or a limit is reached."""

        def take(piece: bytes) -> None:
            self._pieces.append((self._now(), piece))
            self._size += len(piece)
            if self._size > MOST_BYTES:
                response.changed.wake()

        response.listen(take)
        end: End = "unended"
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while not response.ended and self._size <= MOST_BYTES:
                    await response.changed.wait()
        if response.ended:
            try:
                response.check()
                end = "complete"
            except ResponseLost:
                end = "lost"
        headers = tuple(response.headers)
        return Answer(response.status, headers, tuple(self._pieces), end, self._now())

    def _now(self) -> int:
        return round((self._loop.time() - self._began) * 1e6)


def incoming_of(body: bytes, headers: Headers) -> IncomingRequest:
    """Return a request as a router would receive it, in JSON unless its headers say otherwise."""
    given = {name for name, _ in headers}
    usual = [one for one in _USUAL if one[0] not in given]
    return IncomingRequest(body, (*usual, *headers))


def _why_unreachable(url: URL, error: BaseException | None) -> tuple[str, str]:
    """Return why there is no connection, and what to do."""
    place = f"{url.host}:{url.port}"
    match error:
        case ssl.SSLCertVerificationError():
            why = f"its certificate is not trusted: {error.verify_message}"
            if error.verify_code not in _UNKNOWN_AUTHORITY:
                return why, "it needs a certificate that is valid for this host, and now"
            return why, (
                "SSL_CERT_FILE=FILE, set for this command and for cutover serve, names the "
                "certificate of an authority of your own"
            )
        case ssl.SSLError():
            return f"{place} does not speak TLS", "is it http://, and not https://?"
        case gaierror():
            return f"there is no host {url.host}", _ADDRESS
        case ConnectionRefusedError():
            return f"no server listens at {place}", "is the service started, and at this port?"
        case _:
            return f"no connection to {place}: {type(error).__name__}", _ADDRESS
