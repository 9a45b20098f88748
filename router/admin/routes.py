"""The operations API over HTTP: a token first, then the request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Query
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import Request
from starlette.responses import Response

from router.admin.auth import AdminTokens
from router.admin.operations import Operations
from router.admin.pages import (
    MOST_EXCHANGES,
    ExchangesPage,
    FlowPage,
    FlowsPage,
    ModelsPage,
    PausePage,
    PausesPage,
    Share,
)
from router.http.body import BodyMemory
from router.http.endpoints import decode
from router.http.openapi import answer, body_of, page_of
from router.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

_BODY_BYTES = 10_000
_share = msgspec.json.Decoder(Share)
_bearer = HTTPBearer(auto_error=False, description="A token of `[admin] token_env`.")

admin = APIRouter(prefix="/admin", tags=["operations"])


def add_admin(app: FastAPI, operations: Operations, tokens: AdminTokens) -> None:
    """Add the operations API to an application."""
    app.state.operations = operations
    app.state.tokens = tokens
    app.include_router(admin)


async def _who(
    request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> str:
    """Return the name of the caller; raises `Problem` 401 or 403."""
    if given is None:
        why = "send the token as `Authorization: Bearer …`"
        raise Problem(401, "token_missing", why, challenge="Bearer")
    tokens: AdminTokens = request.app.state.tokens
    name = tokens.who(given.credentials)
    if name is None:
        raise Problem(403, "token_wrong")
    return name


async def _operations(request: Request) -> Operations:
    operations: Operations = request.app.state.operations
    return operations


Who = Annotated[str, Depends(_who)]
Ops = Annotated[Operations, Depends(_operations)]


def _answers(page: type[msgspec.Struct], *statuses: int) -> dict[int | str, dict[str, Any]]:
    answers: dict[int | str, dict[str, Any]] = {200: page_of(page)}
    return answers | {status: answer(status) for status in (401, 403, *statuses)}


def _takes(struct: type[msgspec.Struct]) -> Mapping[str, Any]:
    return {"requestBody": body_of(struct)}


def _page(page: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(page), media_type="application/json")


@admin.get("/flows", response_class=Response, responses=_answers(FlowsPage))
async def flows(_: Who, operations: Ops) -> Response:
    """Show every flow: stage, settings in force, breakers, ledger; and the router's counts."""
    return _page(operations.show_flows())


@admin.get("/flows/{flow}", response_class=Response, responses=_answers(FlowPage, 404, 422))
async def flow_(_: Who, operations: Ops, flow: str) -> Response:
    """Show one flow."""
    return _page(operations.show_flow(flow))


@admin.get("/models", response_class=Response, responses=_answers(ModelsPage))
async def models(_: Who, operations: Ops) -> Response:
    """Show the registry: providers and their limits, models and their prices; no keys."""
    return _page(operations.show_models())


@admin.get("/exchanges", response_class=Response, responses=_answers(ExchangesPage, 422))
async def exchanges(
    _: Who, operations: Ops, limit: Annotated[int, Query(ge=1, le=MOST_EXCHANGES)] = 100
) -> Response:
    """Show the last exchanges of this process, the latest first; without their content."""
    return _page(operations.show_exchanges(limit))


@admin.get("/pauses", response_class=Response, responses=_answers(PausesPage, 404, 503))
async def pauses(_: Who, operations: Ops) -> Response:
    """Show open pauses, the oldest first, without what they hold."""
    return _page(await operations.waiting.show())


@admin.delete(
    "/pauses/{hitl_id}",
    response_class=Response,
    responses=_answers(PausePage, 404, 409, 410, 422, 503),
)
async def expire_pause(who: Who, operations: Ops, hitl_id: str) -> Response:
    """Expire a pause: its question is closed, and what it held is deleted."""
    return _page(await operations.waiting.expire(who, hitl_id))


@admin.post(
    "/flows/{flow}/percent",
    response_class=Response,
    responses=_answers(FlowPage, 400, 404, 408, 409, 413, 422),
    openapi_extra=dict(_takes(Share)),
)
async def set_percent(who: Who, operations: Ops, flow: str, request: Request) -> Response:
    """Set the share of route keys that graph serves."""
    share = await _share_of(request)
    return _page(await operations.share(who, "percent", flow, "langgraph_percent", share))


@admin.post(
    "/flows/{flow}/shadow",
    response_class=Response,
    responses=_answers(FlowPage, 400, 404, 408, 409, 413, 422),
    openapi_extra=dict(_takes(Share)),
)
async def set_shadow(who: Who, operations: Ops, flow: str, request: Request) -> Response:
    """Set the share of requests that are mirrored."""
    share = await _share_of(request)
    return _page(await operations.share(who, "shadow", flow, "shadow_percent", share))


@admin.post(
    "/flows/{flow}/rollback",
    response_class=Response,
    responses=_answers(FlowPage, 404, 409, 422),
)
async def rollback(who: Who, operations: Ops, flow: str) -> Response:
    """Send everything of a flow to legacy, now; its percentages stay for the next attempt."""
    return _page(await operations.rollback(who, flow))


@admin.post(
    "/breaker/{flow}/{stack}/reset",
    response_class=Response,
    responses=_answers(FlowPage, 404, 422),
)
async def reset_breaker(who: Who, operations: Ops, flow: str, stack: str) -> Response:
    """Close a breaker, here and in routers that share it, and reset its counts."""
    return _page(await operations.reset(who, flow, stack))


@admin.post(
    "/providers/{provider}/reset",
    response_class=Response,
    responses=_answers(ModelsPage, 404, 422),
)
async def reset_provider(who: Who, operations: Ops, provider: str) -> Response:
    """Close a provider's breakers, in this process, and reset their counts."""
    return _page(await operations.reset_provider(who, provider))


async def _share_of(request: Request) -> Share:
    memory: BodyMemory = request.app.state.body_memory
    body = await memory.read(request.scope, request.receive, _BODY_BYTES)
    memory.release(body)
    share: Share = decode(_share, body)
    return share
