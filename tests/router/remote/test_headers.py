"""Headers on their way through."""

from __future__ import annotations

import pytest

from router.remote.endpoint import forwarded, returned
from router.stack import Headers, IncomingRequest


def test_what_belongs_to_the_connection_stays_on_it() -> None:
    """RFC 9110, 7.6.1: also what `Connection` names, in any case."""
    incoming = IncomingRequest(
        b"",
        (
            (b"host", b"router"),
            (b"connection", b"keep-alive, X-Hop"),
            (b"connection", b"x-other"),
            (b"x-hop", b"1"),
            (b"x-other", b"1"),
            (b"keep-alive", b"timeout=5"),
            (b"te", b"trailers"),
            (b"trailer", b"x"),
            (b"transfer-encoding", b"chunked"),
            (b"upgrade", b"h2c"),
            (b"proxy-authorization", b"secret"),
            (b"content-length", b"12"),
            (b"expect", b"100-continue"),
            (b"accept-encoding", b"gzip"),
            (b"x-cutover-qa", b"signed"),
            (b"x-cutover-role", b"shadow"),
            (b"authorization", b"Bearer t"),
            (b"cookie", b"a=1"),
            (b"cookie", b"b=2"),
            (b"traceparent", b"00-1-2-01"),
            (b"x-name", "é".encode()),
        ),
    )
    assert forwarded(incoming, "e1", "fallback") == [
        (b"authorization", b"Bearer t"),
        (b"cookie", b"a=1"),
        (b"cookie", b"b=2"),
        (b"traceparent", b"00-1-2-01"),
        (b"x-name", "é".encode()),
        (b"accept-encoding", b"identity"),
        (b"x-cutover-exchange", b"e1"),
        (b"x-cutover-role", b"fallback"),
    ]


@pytest.mark.parametrize(
    "name",
    [b"x_cutover_role", b"x-cutover_exchange", b"x_forwarded_for", b"x_forwarded-proto", b"te_"],
)
def test_no_header_passes_for_another(name: bytes) -> None:
    """A stack behind CGI or WSGI sees no difference between a dash and an underscore."""
    passed = name == b"te_"
    told = forwarded(IncomingRequest(b"", ((name, b"shadow"),)), "e", "serving")
    assert ((name, b"shadow") in told) == passed


PROXIES = ("127.0.0.1", "10.0.0.0/8", "fd00::/8")
CLAIMED = (
    (b"host", b"router:8080"),
    (b"x-forwarded-for", b"203.0.113.7"),
    (b"x-forwarded-for", b" 198.51.100.2, 10.9.9.9 "),
    (b"x-forwarded-proto", b"https"),
    (b"x-forwarded-host", b"chat.example"),
)


def told(headers: Headers, peer: str) -> dict[str, str]:
    """Return the forwarding headers a stack is asked with; each is there once."""
    incoming = IncomingRequest(b"", headers, peer=peer, proxies=PROXIES)
    found = [pair for pair in forwarded(incoming, "e", "serving") if b"forwarded" in pair[0]]
    assert len(found) == len(dict(found))
    return {name.decode().removeprefix("x-forwarded-"): value.decode() for name, value in found}


def test_a_stack_learns_who_asked() -> None:
    """As behind any proxy: the address, the scheme and the host."""
    assert told((), "192.0.2.1") == {"for": "192.0.2.1", "proto": "http"}
    assert told(((b"host", b"chat"),), "::1") == {"for": "::1", "proto": "http", "host": "chat"}


@pytest.mark.parametrize("proxy", ["127.0.0.1", "10.1.2.3", "fd00::9"])
def test_a_trusted_proxy_is_believed(proxy: str) -> None:
    """It says how it was asked itself; the list of those before it grows by it."""
    assert told(CLAIMED, proxy) == {
        "for": f"203.0.113.7, 198.51.100.2, 10.9.9.9, {proxy}",
        "proto": "https",
        "host": "chat.example",
    }


@pytest.mark.parametrize("client", ["192.0.2.1", "11.0.0.1", "2001:db8::1", "unix"])
def test_what_others_claim_stands_before_them_and_counts_for_nothing_else(client: str) -> None:
    """The list is read from its end; scheme and host are the router's own."""
    assert told(CLAIMED, client) == {
        "for": f"203.0.113.7, 198.51.100.2, 10.9.9.9, {client}",
        "proto": "http",
        "host": "router:8080",
    }


def test_an_answer_keeps_what_is_the_clients() -> None:
    """The router's own words are its own."""
    said = (
        (b"content-type", b"text/event-stream"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"connection", b"x-hop"),
        (b"x-hop", b"1"),
        (b"date", b"now"),
        (b"server", b"old"),
        (b"transfer-encoding", b"chunked"),
        (b"x-accel-buffering", b"yes"),
        (b"x-cutover-served", b"me"),
    )
    assert returned(said) == (
        (b"content-type", b"text/event-stream"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
    )
