"""Operations: the changes people may make while a router runs, each on record with their name."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from router.admin.audit import Change, now
from router.admin.file_edit import NotWritten, edit_flow
from router.admin.pages import ExchangesPage
from router.admin.views import flow_page, flows_page, models_page
from router.admin.waiting import WaitingPauses
from router.config import ConfigRefused, percentage
from router.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from effects.model import ModelRegistry, RescuingModel
    from router.admin.audit import Audit
    from router.admin.file_edit import Edited, Value
    from router.admin.pages import FlowPage, FlowsPage, ModelsPage, Share
    from router.admin.recent import Recent
    from router.config import SettingsWatcher
    from router.router import Router
    from router.stack import StackName

_STACKS: Mapping[str, StackName] = {"legacy": "legacy", "graph": "graph"}


@dataclass(frozen=True, slots=True)
class Operations:
    """What the operations API does; it raises `Problem` where it does not do it."""

    router: Router
    models: ModelRegistry
    model: RescuingModel
    recent: Recent
    watched: SettingsWatcher
    audit: Audit
    edited: Callable[[Change, str], None] | None = None
    """Is told of a change of the file, and its version, before that is in force here."""
    _editing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def show_flows(self) -> FlowsPage:
        """Show all flows and the books."""
        return flows_page(self.router, self.watched.fault)

    def show_flow(self, flow: str) -> FlowPage:
        """Show one flow."""
        self._known(flow)
        return flow_page(self.router, flow)

    def show_models(self) -> ModelsPage:
        """Show the registry of models."""
        return models_page(self.models.entries, self.model.breaker_states())

    @property
    def waiting(self) -> WaitingPauses:
        """The pauses there are; raises `Problem` where none are kept."""
        pauses = self.router.pauses
        if pauses is None:
            raise Problem(404, "no_pauses", "nothing waits for a human here")
        return WaitingPauses(pauses.store, self.audit)

    def show_exchanges(self, count: int) -> ExchangesPage:
        """Show the last exchanges."""
        return ExchangesPage(exchanges=self.recent.last(count))

    async def share(self, who: str, what: str, flow: str, key: str, share: Share) -> FlowPage:
        """Set a percentage, and the switch where it is asked for."""
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
        """Close a breaker, here and, when they have heard of it, in routers that share it."""
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
        """Edit the file and record it, in a thread: whoever asked may leave in between."""
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
