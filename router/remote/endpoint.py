"""Where a stack is asked: its address for one flow, its connections and its time limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from router.remote.headers import forwarded

if TYPE_CHECKING:
    from contract.flow import FlowSpec
    from contract.records import Role
    from router.driving import Incoming
    from router.remote.draining import Draining
    from router.sections import Address

KEPT_ALIVE = 3.0
"""Seconds an idle connection is kept: below the five after which common servers hang up. A
connection they close at the moment it is used again would fail a request nobody is to blame for."""

_NOTHING_OF_OURS = frozenset({"User-Agent", "Accept", "Accept-Encoding", "Content-Type"})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One flow of a stack behind an address."""

    session: aiohttp.ClientSession
    draining: Draining
    url: URL
    limits: Address

    async def ask(self, incoming: Incoming, exchange: str, role: Role) -> aiohttp.ClientResponse:
        """Send a request on; returns when the response's head has come, its body unread.

        Raises what aiohttp does; whoever reads the body closes the response.
        """
        return await self.session.post(
            self._url_with(incoming.query),
            data=incoming.body,
            headers=CIMultiDict(forwarded(incoming, exchange, role)),
            allow_redirects=False,
        )

    def _url_with(self, query: bytes) -> URL:
        if not query:
            return self.url
        joint = "&" if self.url.raw_query_string else "?"
        return URL(f"{self.url}{joint}{query.decode('latin-1')}", encoded=True)


def endpoint_url(address: Address, spec: FlowSpec) -> URL:
    """Give where a flow is asked.

    An address without a path, or one that ends with a slash, is that of a host: the flow's own path
    follows, or what `paths` says. Any other address is the flow's.
    """
    own = address.paths.get(spec.name)
    parts = urlsplit(address.url)
    if own is None and parts.path.strip("/") and not parts.path.endswith("/"):
        return URL(address.url, encoded=True)
    path = parts.path.rstrip("/") + (own or spec.path)
    return URL(urlunsplit(parts._replace(path=path)), encoded=True)


def connections(limits: Address) -> aiohttp.ClientSession:
    """Open the connections to a stack; cookies pass through, none is kept."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_ALIVE),
        cookie_jar=aiohttp.DummyCookieJar(),
        # What else may take how long is watched by the drive.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_seconds),
        auto_decompress=False,
        skip_auto_headers=_NOTHING_OF_OURS,
    )
