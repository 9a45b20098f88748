"""Targets: where a load run sends its requests, and what asks for a stack."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

import msgspec

from contract.errors import CutoverError
from loadtests.forcing import qa_header
from loadtests.messages import Message


class TargetRefused(CutoverError):
    """An address or a header of a target cannot be used."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"cannot use {what!r} as a load target: {reason}")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One stack's address; `headers` (name, value) go with every request.

    With a `qa_key` every request carries a signed wish for this stack. Headers and key may be
    secrets: they are handed on by pipe or environment, never in an argument list, a row or a
    report.
    """

    stack: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    qa_key: str = ""

    def __post_init__(self) -> None:
        shown = self.url.rpartition("@")[2]
        try:
            parts = urlsplit(self.url)
            # Reading the port checks it.
            _ = parts.port
        except ValueError:  # its text may hold a piece of a password
            raise TargetRefused(shown, "its host or its port is none") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise TargetRefused(shown, "it is not an http or https address")
        if parts.username or parts.password:
            raise TargetRefused(parts.hostname, "put credentials into a header, not the address")

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return urlsplit(self.url).scheme == "https"

    @property
    def host(self) -> str:
        """Host name or address, without brackets."""
        return str(urlsplit(self.url).hostname)

    @property
    def port(self) -> int:
        """TCP port."""
        return urlsplit(self.url).port or (443 if self.tls else 80)

    def request(self, message: Message, accepted: str = "text/event-stream") -> bytes:
        """Write a whole POST request; what is `accepted` goes into its head.

        One connection per request: each one pays for what a new client pays for, and no request
        dies of a connection the server closed while it was idle.
        """
        parts = urlsplit(self.url)
        forced = (
            [qa_header(self.stack, message.route_key, self.qa_key, time.time())]
            if self.qa_key and message.route_key is not None
            else []
        )
        lines = [
            f"POST {parts.path.rstrip('/')}{message.path} HTTP/1.1",
            f"Host: {parts.netloc}",
            "Connection: close",
            f"Accept: {accepted}",
            "Content-Type: application/json",
            f"Content-Length: {len(message.body)}",
            *(f"{name}: {value}" for name, value in (*self.headers, *forced)),
        ]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + message.body


def parse_header(text: str) -> tuple[str, str]:
    """Read `name: value`; raises `TargetRefused` without showing the value."""
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
        raise TargetRefused(name[:32], "a header is written as 'name: value'")
    if not value.isprintable() or not value.isascii():
        raise TargetRefused(name, "its value holds a character no header may hold")
    return name, value
