"""The operations API: what people see of a running router and change in it, on record.

A token comes first, then the request; who changes something is named by the token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, assert_never

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Query
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import Request
from starlette.responses import Response

from contract.errors import CutoverError, EffectFailed
from router.admin.audit import Audit, Change, now
from router.admin.auth import AdminTokens
from router.admin.config_file import (
    Edited,
    EditRefused,
    NotWritten,
    Tables,
    Value,
    edit_flow,
    edit_tables,
)
from router.admin.pages import (
    MOST_EXCHANGES,
    ExchangesPage,
    FlowPage,
    FlowsPage,
    ModelsPage,
    NewModel,
    NewProvider,
    PausePage,
    PausesPage,
    PinsPage,
    RecentExchanges,
    ReleasedPins,
    Share,
    flow_page,
    flows_page,
    models_page,
    pins_page,
    pins_released,
    released_pins,
)
from router.config.capabilities import default_models
from router.config.errors import ConfigRefused
from router.config.schema import percentage
from router.config.watcher import SettingsWatcher
from router.http.connection import BodyMemory
from router.http.endpoints import read_json
from router.http.openapi import answer, body_of, page_of
from router.problems import Problem
from router.stack import STACKS, StackName

if TYPE_CHECKING:
    from effects.model import ModelRegistry, RescuingModel
    from effects.stores import PauseStore, Waiting
    from router.config.schema import Settings
    from router.router import Router


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations API; all methods raise `Problem`."""

    router: Router
    models: ModelRegistry
    model: RescuingModel
    recent: RecentExchanges
    watched: SettingsWatcher
    audit: Audit
    check_models: Callable[[Settings], object]
    """Raises `CutoverError` where the models of settings cannot be used here: a key is missing."""
    edited: Callable[[Change, str], None] | None = None
    """Called with a change of the file and its version, before that is in force here."""
    _editing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def pauses(self) -> PausesPage:
        """Return the open pauses, oldest first, without what they hold."""
        store = self._pause_store()
        with _store_errors("pauses"):
            waiting = await store.waiting()
        moment = now() / 1_000_000
        return PausesPage(pauses=[_pause_page(one, moment) for one in waiting])

    async def expire(self, who: str, hitl_id: str) -> PausePage:
        """Expire a pause, on record."""
        store = self._pause_store()
        with _store_errors("pauses"):
            known = {one.hitl_id: one for one in await store.waiting()}
            reply = await store.expire(hitl_id) if hitl_id in known else "unknown"
        match reply:
            case "unknown":
                raise Problem(404, "unknown_pause", "no pause with this id waits")
            case "taken":
                raise Problem(409, "continued_already", "this pause is being continued")
            case "over":
                raise Problem(410, "expired", "this pause has expired or been answered")
            case "expired":
                pause = known[hitl_id]
                before, after = {hitl_id: pause.state}, {hitl_id: "expired"}
                change = _change(who, "pause expired", pause.flow, before, after)
                await asyncio.to_thread(self.audit, change)
                return _pause_page(pause, now() / 1_000_000, "expired")
            case _:
                assert_never(reply)

    async def share(self, who: str, what: str, flow: str, key: str, share: Share) -> FlowPage:
        """Set a percentage, and the switch if it is given."""
        self.flow(flow)
        try:
            values: dict[str, Value] = {key: percentage(share.percent)}
        except ValueError as error:
            raise Problem(422, "invalid_request", f"{key}: {error}") from error
        if share.enable is not None:
            values["enable_langgraph"] = share.enable
        return await self._edit_flow(who, what, flow, values)

    async def rollback(self, who: str, flow: str) -> FlowPage:
        """Send everything of a flow to legacy; 409 where legacy is not part of this deployment."""
        self.flow(flow)
        if "legacy" not in self.router.stacks:
            raise Problem(409, "no_legacy_stack", "there is no stack to roll back to")
        return await self._edit_flow(who, "rollback", flow, {"enable_langgraph": False})

    async def pins(self) -> PinsPage:
        """Count the pins by flow and stack."""
        with _store_errors("pins"):
            counts = await self.router.assigner.pins.count()
        return pins_page(self.router.settings(), counts)

    async def release(self, who: str, flow: str, stack: str | None) -> ReleasedPins:
        """Release conversations of a flow, all or those of one stack, on record."""
        self.flow(flow)
        known = _known_stack(stack) if stack else None
        with _store_errors("pins"):
            released = await self.router.assigner.pins.release(flow, known)
        page = released_pins(self.router.settings(), flow, released)
        await asyncio.to_thread(self.audit, pins_released(who, page))
        return page

    async def reset(self, who: str, flow: str, stack: str) -> FlowPage:
        """Close a breaker, here and, with the next synchronisation, in routers that share it."""
        self.flow(flow)
        known = _known_stack(stack)
        before = self.router.admission.breakers.reset(flow, known)
        change = _change(who, "breaker reset", flow, {known: before}, {known: "closed"})
        await asyncio.to_thread(self.audit, change)
        return flow_page(self.router, flow)

    async def reset_provider(self, who: str, provider: str) -> ModelsPage:
        """Close the breakers of a provider, in this process."""
        if provider not in {entry.provider.name for entry in self.models.entries.values()}:
            raise Problem(404, "unknown_provider", "no provider of that name is registered")
        known = [one for one in self.model.breaker_states() if one.provider == provider]
        self.model.breakers.reset(provider)
        before: dict[str, object] = {f"{provider}/{one.model}": one.state for one in known}
        after: dict[str, object] = dict.fromkeys(before, "closed")
        await asyncio.to_thread(
            self.audit, _change(who, "provider breakers reset", "", before, after)
        )
        return self.registry()

    def registry(self) -> ModelsPage:
        """Return the registry of models."""
        breakers, configured = self.model.breaker_states(), self.watched.settings().providers
        return models_page(self.models.entries, breakers, configured)

    async def put_model(self, who: str, new: NewModel) -> ModelsPage:
        """Add a model, or put another one under its id; with its provider, if that is described."""
        provider = new.provider if isinstance(new.provider, NewProvider) else None
        table = _table(new, "id") | {"provider": provider.name if provider else new.provider}
        tables: dict[tuple[str, str], dict[str, Any] | None] = {("models", new.id): table}
        if provider is not None:
            tables["providers", provider.name] = _table(provider, "name")
        return await self._edit_models(who, new.id, lambda _: tables)

    async def remove_model(self, who: str, model_id: str) -> ModelsPage:
        """Remove a model of the file; 409 while another one or a flow names it."""

        def plan(old: Settings) -> Tables:
            if model_id not in old.models:
                if model_id in self.models.entries:
                    why = "this model comes from the environment, the file has no models"
                    raise Problem(409, "not_in_file", why)
                raise Problem(404, "unknown_model", "no model of that id is registered")
            users = [
                f"models.{name}.fallbacks"
                for name, other in old.models.items()
                if model_id in other.fallbacks
            ]
            users += [key for key, name in default_models(old) if name == model_id]
            if users:
                why = f"{', '.join(users)}: change that first"
                raise Problem(409, "model_in_use", why)
            return {("models", model_id): None}

        return await self._edit_models(who, model_id, plan)

    async def _edit_models(
        self, who: str, model_id: str, plan: Callable[[Settings], Tables]
    ) -> ModelsPage:
        def check(new: Settings) -> None:
            for key, name in default_models(new):
                if name in self.models.entries and name not in new.models:
                    why = f"{key} = {name!r} would be none of the models: add that one first"
                    raise EditRefused(why)
            try:
                self.check_models(new)
            except CutoverError as error:
                raise EditRefused(error) from error

        edit = partial(edit_tables, self.watched.path, self.router.flows, plan, check)
        await self._edit(who, edit, partial(_model_change, model_id))
        return self.registry()

    async def _edit_flow(
        self, who: str, what: str, flow: str, values: Mapping[str, Value]
    ) -> FlowPage:
        edit = partial(edit_flow, self.watched.path, self.router.flows, flow, values)
        await self._edit(who, edit, lambda _: what, flow)
        return flow_page(self.router, flow)

    async def _edit(
        self,
        who: str,
        edit: Callable[[], Edited],
        describe: Callable[[Edited], str],
        flow: str = "",
    ) -> None:
        """Edit the file, and put what it holds in force; `describe` says what was changed."""

        def edit_on_record() -> Edited:
            edited = edit()
            if edited.changed:
                change = _change(who, describe(edited), flow, edited.before, edited.after)
                self.audit(change)
                if self.edited is not None:
                    self.edited(change, edited.settings.version)
            return edited

        async with self._editing:
            try:
                # In one thread: the caller may disconnect in between.
                edited = await asyncio.to_thread(edit_on_record)
            except EditRefused as refused:
                raise Problem(422, "invalid_request", str(refused)) from refused
            except (ConfigRefused, NotWritten) as error:
                raise Problem(409, "not_written", str(error)) from error
            if edited.changed:
                self.watched.adopt(edited.text)

    def flow(self, flow: str) -> FlowPage:
        """Return a flow that is served here."""
        if flow not in self.router.flows:
            raise Problem(404, "unknown_flow", "no flow of that name is served here")
        return flow_page(self.router, flow)

    def _pause_store(self) -> PauseStore:
        if self.router.pauses is None:
            raise Problem(404, "no_pauses", "no pauses are stored here")
        return self.router.pauses.store


def _known_stack(name: str) -> StackName:
    known = STACKS.get(name)
    if known is None:
        raise Problem(404, "unknown_stack", "there are 'legacy' and 'graph'")
    return known


@contextmanager
def _store_errors(what: str) -> Iterator[None]:
    try:
        yield
    except EffectFailed as failure:
        why = f"the {what} cannot be reached"
        raise Problem(503, failure.fault.code, why, retry_after=1) from failure


def _pause_page(waiting: Waiting, moment: float, state: str = "") -> PausePage:
    return PausePage(
        id=waiting.hitl_id,
        flow=waiting.flow,
        stack=waiting.stack,
        session=waiting.session_id,
        state=state or waiting.state,
        age=max(moment - waiting.created_at, 0.0),
        expires_in=max(waiting.expires_at - moment, 0.0),
        size=waiting.size,
    )


def _table(page: msgspec.Struct, *without: str) -> dict[str, Any]:
    """Return a body as a table of the file, without what it leaves to defaults."""
    values = {name: getattr(page, name) for name in page.__struct_fields__ if name not in without}
    return {name: value for name, value in values.items() if value is not None}


def _model_change(model_id: str, edited: Edited) -> str:
    """Describe an edit of a model, by what became of its provider."""
    provider = f"models.{model_id}.provider"
    if provider in edited.after and edited.before[provider] is None:
        return "model added"
    if provider in edited.after and edited.after[provider] is None:
        return "model removed"
    return "model changed"


def _change(
    who: str, what: str, flow: str, before: Mapping[str, object], after: Mapping[str, object]
) -> Change:
    return Change(at=now(), who=who, what=what, flow=flow, before=before, after=after)


_BODY_BYTES = 10_000
_share = msgspec.json.Decoder(Share)
_new_model = msgspec.json.Decoder(NewModel)
_bearer = HTTPBearer(auto_error=False, description="A token of `[admin] token_env`.")

admin = APIRouter(prefix="/admin", tags=["operations"], default_response_class=Response)


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


def _page(page: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(page), media_type="application/json")


@admin.get("/flows", responses=_answers(FlowsPage))
async def flows(_: Who, operations: Ops) -> Response:
    """Show every flow: stage, settings in force, breakers, ledger; and the router's counts."""
    return _page(flows_page(operations.router, operations.watched.fault))


@admin.get("/flows/{flow}", responses=_answers(FlowPage, 404, 422))
async def flow_(_: Who, operations: Ops, flow: str) -> Response:
    """Show one flow."""
    return _page(operations.flow(flow))


@admin.get("/models", responses=_answers(ModelsPage))
async def models(_: Who, operations: Ops) -> Response:
    """Show the registry: providers and their limits, models and their prices; no keys."""
    return _page(operations.registry())


@admin.post(
    "/models",
    responses=_answers(ModelsPage, 400, 408, 409, 413, 422),
    openapi_extra={"requestBody": body_of(NewModel)},
)
async def put_model(who: Who, operations: Ops, request: Request) -> Response:
    """Add a model, or put another one under its id: in force with the next request, and lasting."""
    memory: BodyMemory = request.app.state.body_memory
    new: NewModel = await read_json(memory, request, _new_model, _BODY_BYTES)
    return _page(await operations.put_model(who, new))


@admin.delete("/models/{model_id:path}", responses=_answers(ModelsPage, 404, 409, 422))
async def remove_model(who: Who, operations: Ops, model_id: str) -> Response:
    """Remove a model that no other one falls back to, and no flow uses by default."""
    return _page(await operations.remove_model(who, model_id))


@admin.get("/exchanges", responses=_answers(ExchangesPage, 422))
async def exchanges(
    _: Who, operations: Ops, limit: Annotated[int, Query(ge=1, le=MOST_EXCHANGES)] = 100
) -> Response:
    """Show the last exchanges of this process, the latest first; without their content."""
    return _page(ExchangesPage(exchanges=operations.recent.last(limit)))


@admin.get("/pauses", responses=_answers(PausesPage, 404, 503))
async def pauses(_: Who, operations: Ops) -> Response:
    """Show open pauses, the oldest first, without what they hold."""
    return _page(await operations.pauses())


@admin.delete(
    "/pauses/{hitl_id}",
    responses=_answers(PausePage, 404, 409, 410, 422, 503),
)
async def expire_pause(who: Who, operations: Ops, hitl_id: str) -> Response:
    """Expire a pause: its question is closed, and what it held is deleted."""
    return _page(await operations.expire(who, hitl_id))


@admin.post(
    "/flows/{flow}/percent",
    responses=_answers(FlowPage, 400, 404, 408, 409, 413, 422),
    openapi_extra={"requestBody": body_of(Share)},
)
async def set_percent(who: Who, operations: Ops, flow: str, request: Request) -> Response:
    """Set the share of route keys that graph serves."""
    share = await _share_of(request)
    return _page(await operations.share(who, "percent", flow, "langgraph_percent", share))


@admin.post(
    "/flows/{flow}/shadow",
    responses=_answers(FlowPage, 400, 404, 408, 409, 413, 422),
    openapi_extra={"requestBody": body_of(Share)},
)
async def set_shadow(who: Who, operations: Ops, flow: str, request: Request) -> Response:
    """Set the share of requests that are mirrored."""
    share = await _share_of(request)
    return _page(await operations.share(who, "shadow", flow, "shadow_percent", share))


@admin.post(
    "/flows/{flow}/rollback",
    responses=_answers(FlowPage, 404, 409, 422),
)
async def rollback(who: Who, operations: Ops, flow: str) -> Response:
    """Send everything of a flow to legacy, now; its percentages stay for the next attempt."""
    return _page(await operations.rollback(who, flow))


@admin.get("/pins", responses=_answers(PinsPage, 503))
async def pins(_: Who, operations: Ops) -> Response:
    """Show how many conversations of each flow are pinned to each stack."""
    return _page(await operations.pins())


@admin.delete("/flows/{flow}/pins", responses=_answers(ReleasedPins, 404, 422, 503))
async def release_pins(who: Who, operations: Ops, flow: str, stack: str | None = None) -> Response:
    """Release the conversations of a flow, or of one of its stacks: their next turn is hashed."""
    return _page(await operations.release(who, flow, stack))


@admin.post(
    "/breaker/{flow}/{stack}/reset",
    responses=_answers(FlowPage, 404, 422),
)
async def reset_breaker(who: Who, operations: Ops, flow: str, stack: str) -> Response:
    """Close a breaker, here and in routers that share it, and reset its counts."""
    return _page(await operations.reset(who, flow, stack))


@admin.post(
    "/providers/{provider}/reset",
    responses=_answers(ModelsPage, 404, 422),
)
async def reset_provider(who: Who, operations: Ops, provider: str) -> Response:
    """Close a provider's breakers, in this process, and reset their counts."""
    return _page(await operations.reset_provider(who, provider))


async def _share_of(request: Request) -> Share:
    memory: BodyMemory = request.app.state.body_memory
    share: Share = await read_json(memory, request, _share, _BODY_BYTES)
    return share
