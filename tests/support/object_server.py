"""A real S3-compatible server on loopback, moto's, that counts requests and fails as told."""

from __future__ import annotations

import secrets
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qs

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from effects.places import Place
from tests.support.patience import PATIENCE_S

Fault = Literal["refuse", "deny", "lose", "ignore", "cut", "hold"]
"""An error, a permission that is missing, an error though it was done, success though it was not;
a connection that is cut in the middle of the body, at once or when the test goes on."""
_ERROR = "<Error><Code>{}</Code><Message>as told</Message></Error>"
_ANSWERS = {
    "refuse": ("500 Internal Server Error", _ERROR.format("InternalError")),
    "lose": ("500 Internal Server Error", _ERROR.format("InternalError")),
    "deny": ("403 Forbidden", _ERROR.format("AccessDenied")),
    "ignore": ("200 OK", "<DeleteResult></DeleteResult>"),
}
Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]

ENVIRON = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_MAX_ATTEMPTS": "1",
}
"""What a client reads from its environment, but for the server's address."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the server received it: `operation` is its method, or LIST, or VERSIONING."""

    operation: str
    path: str
    range: str
    prefix: str
    size: int
    region: str


@dataclass(slots=True)
class ObjectServer:
    """The server; `requests` are those since they were cleared, `fault` is what writes meet."""

    url: str = ""
    bucket: str = ""
    """The URL of the newest bucket."""
    requests: list[Request] = field(default_factory=list)
    fault: Fault | None = None
    failing: str = "PUT"
    """The operation that the fault meets."""
    held: threading.Event = field(default_factory=threading.Event)
    """Half of the body of a request that is held has been read."""
    go_on: threading.Event = field(default_factory=threading.Event)
    """Requests that are held are cut."""
    app: Wsgi = field(default_factory=lambda: DomainDispatcherApplication(create_backend_app))

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a client."""
        return {**ENVIRON, "AWS_ENDPOINT_URL": self.url}

    def counts(self) -> Counter[str]:
        """Count the requests by operation."""
        return Counter(one.operation for one in self.requests)

    def new_bucket(self) -> None:
        """Make another bucket; the environment is that of the server."""
        name = f"bucket-{secrets.token_hex(8)}"
        self.bucket = f"s3://{name}"
        Place(self.bucket).system.mkdir(name)
        self.requests.clear()

    def reset(self) -> None:
        """Forget requests, and fail no more."""
        self.requests.clear()
        self.fault, self.failing = None, "PUT"
        self.held.clear()
        self.go_on.clear()

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        """Answer a request as moto does, or fail it."""
        query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        kind = method
        for word, name in (("list-type", "LIST"), ("versioning", "VERSIONING")):
            if method == "GET" and word in query:
                kind = name
        size = int(environ.get("CONTENT_LENGTH") or 0)
        found = Request(
            kind,
            path,
            environ.get("HTTP_RANGE", ""),
            query.get("prefix", [""])[0],
            size,
            _region(environ.get("HTTP_AUTHORIZATION", "")),
        )
        self.requests.append(found)
        fault = self.fault if found.operation == self.failing else None
        if fault is None:
            return self.app(environ, start)
        if fault in _ANSWERS:
            if fault == "lose":
                list(self.app(environ, lambda *_: None))
            else:
                environ["wsgi.input"].read(size)
            status, text = _ANSWERS[fault]
            body = text.encode()
            start(status, [("content-type", "application/xml"), ("content-length", str(len(body)))])
            return [body]
        environ["wsgi.input"].read(size // 2)
        if fault == "hold":
            self.held.set()
            self.go_on.wait(PATIENCE_S)
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        raise ConnectionResetError


def _region(authorization: str) -> str:
    """Return the region of a signature by `Credential=KEY/DATE/REGION/s3/aws4_request`."""
    _, found, credential = authorization.partition("Credential=")
    return credential.split("/")[2] if found else ""


class _Silent(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


@contextmanager
def object_server() -> Iterator[ObjectServer]:
    """Run a server in a thread of its own."""
    found = ObjectServer()
    server = make_server("127.0.0.1", 0, found, threaded=True, request_handler=_Silent)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        found.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()
