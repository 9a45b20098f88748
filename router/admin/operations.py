"""Operations: what people see of a running router and change in it, on record with their name."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, assert_never

from contract.errors import EffectFailed
from router.admin.audit import Change, now
from router.admin.config_file import NotWritten, edit_flow
from router.admin.pages import (
    ExchangesPage,
    PausePage,
    PausesPage,
    flow_page,
    flows_page,
    models_page,
)
from router.config.errors import ConfigRefused
from router.config.schema import percentage
from router.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from effects.model import ModelRegistry, RescuingModel
    from effects.stores import PauseStore, Waiting
    from router.admin.audit import Audit
    from router.admin.config_file import Edited, Value
    from router.admin.pages import FlowPage, FlowsPage, ModelsPage, RecentExchanges, Share
    from router.config.watcher import SettingsWatcher
    from router.router import Router
    from router.stack import StackName


@dataclass(frozen=True, slots=True)
class PauseOperations:
    """The open pauses of a store, without what they hold; raises `Problem`."""

    store: PauseStore
    audit: Audit

    async def show(self) -> PausesPage:
        """Return the open pauses, oldest first."""
        with _store_errors():
            waiting = await self.store.waiting()
        moment = now() / 1_000_000
        return PausesPage(pauses=[_pause_page(one, moment) for one in waiting])

    async def expire(self, who: str, hitl_id: str) -> PausePage:
        """Expire one, on record; raises `Problem` 404, 409, 410 or 503."""
        with _store_errors():
            known = {one.hitl_id: one for one in await self.store.waiting()}
            reply = await self.store.expire(hitl_id) if hitl_id in known else "unknown"
        match reply:
            case "unknown":
                raise Problem(404, "unknown_pause", "no pause with this id waits")
            case "taken":
                raise Problem(409, "continued_already", "this pause is being continued")
            case "over":
                raise Problem(410, "expired", "this pause has expired or been answered")
            case "expired":
                return await self._on_record(who, known[hitl_id])
            case _:
                assert_never(reply)

    async def _on_record(self, who: str, before: Waiting) -> PausePage:
        change = Change(
            at=now(),
            who=who,
            what="pause expired",
            flow=before.flow,
            before={before.hitl_id: before.state},
            after={before.hitl_id: "expired"},
        )
        await asyncio.to_thread(self.audit, change)
        return _pause_page(before, now() / 1_000_000, "expired")


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except EffectFailed as failure:
        why = "the pauses cannot be reached"
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


_STACKS: Mapping[str, StackName] = {"legacy": "legacy", "graph": "graph"}


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations API; all methods raise `Problem`."""

    router: Router
    models: ModelRegistry
    model: RescuingModel
    recent: RecentExchanges
    watched: SettingsWatcher
    audit: Audit
    edited: Callable[[Change, str], None] | None = None
    """Called with a change of the file and its version, before that is in force here."""
    _editing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def show_flows(self) -> FlowsPage:
        """Return all flows, and the router's counts."""
        return flows_page(self.router, self.watched.fault)

    def show_flow(self, flow: str) -> FlowPage:
        """Return one flow."""
        self._known(flow)
        return flow_page(self.router, flow)

    def show_models(self) -> ModelsPage:
        """Return the registry of models."""
        return models_page(self.models.entries, self.model.breaker_states())

    @property
    def waiting(self) -> PauseOperations:
        """The pauses; raises `Problem` where none are stored."""
        pauses = self.router.pauses
        if pauses is None:
            raise Problem(404, "no_pauses", "no pauses are stored here")
        return PauseOperations(pauses.store, self.audit)

    def show_exchanges(self, count: int) -> ExchangesPage:
        """Return the last exchanges."""
        return ExchangesPage(exchanges=self.recent.last(count))

    async def share(self, who: str, what: str, flow: str, key: str, share: Share) -> FlowPage:
        """Set a percentage, and the switch if it is given."""
        self._known(flow)
        values: dict[str, Value] = {key: _percent(share.percent, key)}
        if share.enable is not None:
            values["enable_langgraph"] = share.enable
        return await self._edit(who, what, flow, values)

    async def rollback(self, who: str, flow: str) -> FlowPage:
        """Send everything of a flow to legacy; 409 where legacy is not part of this deployment."""
        self._known(flow)
        if "legacy" not in self.router.stacks:
            raise Problem(409, "no_legacy_stack", "there is no stack to roll back to")
        return await self._edit(who, "rollback", flow, {"enable_langgraph": False})

    async def reset(self, who: str, flow: str, stack: str) -> FlowPage:
        """Close a breaker, here and, with the next synchronisation, in routers that share it."""
        self._known(flow)
        known = _STACKS.get(stack)
        if known is None:
            raise Problem(404, "unknown_stack", "there are 'legacy' and 'graph'")
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
        return self.show_models()

    async def _edit(self, who: str, what: str, flow: str, values: Mapping[str, Value]) -> FlowPage:
        async with self._editing:
            try:
                edited = await asyncio.to_thread(self._write, who, what, flow, values)
            except (ConfigRefused, NotWritten) as error:
                raise Problem(409, "not_written", str(error)) from error
            if edited.changed:
                self.watched.adopt(edited.text)
        return flow_page(self.router, flow)

    def _write(self, who: str, what: str, flow: str, values: Mapping[str, Value]) -> Edited:
        """Edit the file and record it, in a thread: the caller may disconnect in between."""
        edited = edit_flow(self.watched.path, self.router.flows, flow, values)
        if edited.changed:
            change = _change(who, what, flow, edited.before, edited.after)
            self.audit(change)
            if self.edited is not None:
                self.edited(change, edited.settings.version)
        return edited

    def _known(self, flow: str) -> None:
        if flow not in self.router.flows:
            raise Problem(404, "unknown_flow", "no flow of that name is served here")


def _percent(value: float, key: str) -> Decimal:
    try:
        return percentage(value)
    except ValueError as error:
        raise Problem(422, "invalid_request", f"{key}: {error}") from error


def _change(
    who: str, what: str, flow: str, before: Mapping[str, object], after: Mapping[str, object]
) -> Change:
    return Change(at=now(), who=who, what=what, flow=flow, before=before, after=after)
