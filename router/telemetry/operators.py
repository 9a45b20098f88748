"""What operators ask of a running process: health, metrics, its status, and its switches."""

from __future__ import annotations

from hmac import compare_digest
from ipaddress import ip_address
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cutover.errors import Refused
from router.edge import problem, read_body, refused
from router.telemetry.metrics import MEDIA_TYPE, Telemetry
from router.telemetry.status import Process

MOST_BYTES = 1 << 14


def routes(process: Process, telemetry: Telemetry) -> list[Route]:
    """Return the routes of a process."""
    operating = process.operating

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> Response:
        """Answer whether requests would be served, and why not; notes do not change it."""
        against = "draining" if process.streams.draining else await operating.ready()
        notes = []
        if operating.refused():
            notes.append("the newest configuration is refused, the one before is in force")
        if count := operating.uncorrelated.total() - operating.uncorrelated["run_over"]:
            notes.append(f"{count} calls at the gateway name no run")
        body = {"status": against or "ready"} | ({"notes": notes} if notes else {})
        return JSONResponse(body, 503 if against else 200)

    async def metrics(_: Request) -> Response:
        return Response(telemetry.page(), media_type=MEDIA_TYPE)

    async def status(request: Request) -> Response:
        allowed = _bears(request, operating.token) if operating.token else _is_local(request)
        return JSONResponse(process.report()) if allowed else _unauthorised()

    async def flags(request: Request) -> Response:
        if operating.edit is None or not _bears(request, operating.token):
            return _unauthorised()
        try:
            return JSONResponse(await operating.edit(await _object(request)))
        except Refused as error:
            return refused(error)

    made = [Route("/healthz", healthz), Route("/readyz", readyz), Route("/cutover/status", status)]
    if operating.metrics:
        made.append(Route("/metrics", metrics))
    if operating.token and operating.edit is not None:
        made.append(Route("/cutover/flags", flags, methods=["POST"]))
    return made


def _bears(request: Request, token: str) -> bool:
    """Whether a request bears the token, compared in constant time."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    same = compare_digest(given.strip().encode("latin-1", "replace"), token.encode())
    return scheme.lower() == "bearer" and same


def _is_local(request: Request) -> bool:
    """Whether the peer is this machine, and no proxy on it that speaks for another."""
    if request.client is None or "x-forwarded-for" in request.headers:
        return False
    try:
        return ip_address(request.client.host).is_loopback
    except ValueError:
        return False


async def _object(request: Request) -> dict[str, Any]:
    raw = await read_body(request.receive, MOST_BYTES)
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, "no_json", "the body is no JSON object") from error


def _unauthorised() -> Response:
    return problem(401, "unauthorised", "this needs the token")
