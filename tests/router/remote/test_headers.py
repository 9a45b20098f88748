"""Headers on their way through."""

from __future__ import annotations

from router.driving import Incoming
from router.remote.headers import forwarded, returned


def test_what_belongs_to_the_connection_stays_on_it() -> None:
    """RFC 9110, 7.6.1: also what `Connection` names, in any case."""
    incoming = Incoming(
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
        ("authorization", "Bearer t"),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
        ("traceparent", "00-1-2-01"),
        ("x-name", "é"),
        ("accept-encoding", "identity"),
        ("x-cutover-exchange", "e1"),
        ("x-cutover-role", "fallback"),
    ]


def test_an_answer_keeps_what_is_the_clients() -> None:
    """Names in lower case; the router's own words are its own."""
    said = (
        (b"Content-Type", b"text/event-stream"),
        (b"Set-Cookie", b"a=1"),
        (b"Set-Cookie", b"b=2"),
        (b"Connection", b"x-hop"),
        (b"X-Hop", b"1"),
        (b"Date", b"now"),
        (b"Server", b"old"),
        (b"Transfer-Encoding", b"chunked"),
        (b"X-Accel-Buffering", b"yes"),
        (b"X-Cutover-Served", b"me"),
    )
    assert returned(said) == (
        (b"content-type", b"text/event-stream"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
    )
