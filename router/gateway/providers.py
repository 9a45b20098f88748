"""The providers that the gateway asks: where they are, with which headers, over one pool."""

import io
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final, NamedTuple
from urllib.parse import unquote

import aiohttp
import httpx
from multidict import CIMultiDict
from yarl import URL

from cutover.tape.transport import BodySplitter, head_item

CONNECT_SECONDS = 10.0
CREDENTIALS: Final = ("authorization", "x-api-key", "api-key")
NOT_FORWARDED: Final = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"}
    | {"te", "trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect"}
    | {"accept-encoding"}
)
"""Headers of one connection or of one body, whoever sends them."""
_DECODED: Final = frozenset({"", "identity", "gzip", "deflate", "br", "zstd"})
"""What aiohttp decodes, or says that it cannot."""
FRAMED: Final = frozenset({"", "chunked"})
STATUSES: Final = range(200, 600)
_LARGE = 1 << 20
"""Bytes from which aiohttp wants a body as a file, so that it is sent in pieces."""
_BLANK = ("User-Agent", "Accept", "Content-Type")
"""Headers that aiohttp would add."""


@dataclass(frozen=True, slots=True)
class Provider:
    """An API: `/NAME/chat/completions` asks `{base_url}/chat/completions`.

    `key` replaces the gateway's own key in what a caller sends; `silence_seconds` may pass without
    a byte.
    """

    name: str
    base_url: str
    key: str = ""
    silence_seconds: float = 300.0


Target = tuple[Provider, URL]
"""Where a call goes."""


class Outgoing(NamedTuple):
    """A request as the provider gets it."""

    method: str
    target: Target
    headers: Sequence[tuple[str, str]]
    body: bytes


def target_of(
    providers: Sequence[Provider], path: str, query: str, origin: str = ""
) -> Target | None:
    """Return where a path of the gateway leads, None where it leads nowhere.

    `/NAME/…` is the provider of that name, `/v1/…` the first; a `/v1` that is in the base URL as
    well is there once. With `origin`, the path is the one of a declared provider at that origin.
    """
    if not {".", ".."}.isdisjoint(unquote(path).replace("\\", "/").split("/")):
        return None
    suffix = f"?{query}" if query else ""
    if origin:
        for one in providers:
            base = URL(one.base_url)
            if _origin(origin) == _origin(one.base_url) and f"{path}/".startswith(
                f"{base.raw_path.rstrip('/')}/"
            ):
                return one, URL(f"{base.origin()}{path}{suffix}", encoded=True)
        return None
    first, _, rest = path.removeprefix("/").partition("/")
    named = {one.name: one for one in providers}.get(first)
    if named is None and first == "v1" and providers:
        named, rest = providers[0], f"v1/{rest}"
    if named is None:
        return None
    base_url = named.base_url.rstrip("/")
    if base_url.endswith("/v1"):
        rest = rest.removeprefix("v1/")
    return named, URL(f"{base_url}/{rest}{suffix}", encoded=True)


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    try:
        parsed = URL(url)
    except ValueError:
        return None
    return parsed.scheme, parsed.host, parsed.port


def credential(name: str, value: str) -> str:
    """Return the secret in a header that holds credentials."""
    scheme, _, token = value.partition(" ")
    return token.strip() if (name == "authorization" and scheme.lower() == "bearer") else value


def equal(given: str, secret: str) -> bool:
    """Whether a secret was given, in constant time."""
    return compare_digest(given.encode(), secret.encode())


def forwarded(name: str, kept: Collection[str] = NOT_FORWARDED) -> bool:
    """Whether a header goes on; CGI and WSGI take `_` for `-`."""
    spelt = name.replace("_", "-")
    return spelt not in kept and not spelt.startswith("x-cutover-")


def outgoing_headers(
    headers: Iterable[tuple[str, str]], gateway_key: str, provider: Provider
) -> list[tuple[str, str]]:
    """Return the headers that a provider gets: its key where the caller sent the gateway's."""
    sent = [("accept-encoding", "identity")]
    for name, value in headers:
        if not forwarded(name):
            continue
        if gateway_key and name in CREDENTIALS and equal(credential(name, value), gateway_key):
            if provider.key:
                bearer = "Bearer " if name == "authorization" else ""
                sent.append((name, f"{bearer}{provider.key}"))
            continue
        sent.append((name, value))
    return sent


def open_connections() -> AbstractAsyncContextManager[aiohttp.ClientSession]:
    """Return the pool over which providers are asked."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
    return aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), skip_auto_headers=_BLANK
    )


async def fetch(
    session: aiohttp.ClientSession, request: Outgoing, *, pieces: bool = False
) -> AsyncGenerator[bytes, None]:
    """Yield the answer of a provider as items of the tape; redirects are not followed.

    With `pieces`, what follows the head is as it arrives: no tape needs items. Raises errors of
    httpx: readers of the tape, in this process too, know transports by these.
    """
    provider, url = request.target
    timeout = aiohttp.ClientTimeout(
        sock_connect=CONNECT_SECONDS, sock_read=provider.silence_seconds
    )
    body = io.BytesIO(request.body) if len(request.body) > _LARGE else request.body or None
    try:
        async with session.request(
            request.method,
            url,
            data=body,
            headers=CIMultiDict(request.headers),
            allow_redirects=False,
            timeout=timeout,
        ) as response:
            coding = response.headers.get("content-encoding", "").lower()
            framing = response.headers.get("transfer-encoding", "").lower()
            if coding not in _DECODED or framing not in FRAMED or response.status not in STATUSES:
                message = f"provider {provider.name!r}: {response.status} {coding} {framing}"
                raise httpx.RemoteProtocolError(message)
            yield head_item(response.status, response.raw_headers)
            splitter = BodySplitter("" if pieces else response.headers.get("content-type", ""))
            async for piece in response.content.iter_any():
                for item in splitter.feed(piece):
                    yield item
            for item in splitter.flush():
                yield item
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise _translated(error, provider) from error


_ERRORS: Final[Mapping[type[Exception], type[httpx.TransportError]]] = {
    aiohttp.ConnectionTimeoutError: httpx.ConnectTimeout,
    TimeoutError: httpx.ReadTimeout,
    aiohttp.ClientConnectorError: httpx.ConnectError,
    aiohttp.ClientPayloadError: httpx.RemoteProtocolError,
    aiohttp.ServerDisconnectedError: httpx.RemoteProtocolError,
    Exception: httpx.ReadError,
}
"""What httpx calls an error of aiohttp; the first that fits."""


def _translated(error: Exception, provider: Provider) -> httpx.TransportError:
    kind = next(there for here, there in _ERRORS.items() if isinstance(error, here))
    return kind(f"provider {provider.name!r}: {type(error).__name__}")
