"""The access log: one line an exchange, when its shadow has ended.

Names and sizes, never a text: what users and models wrote stays in the captures.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from contract.flow import SESSION
from contract.operations import TOOLS_RUN
from router.context import MESSAGE
from router.stack import FIELDS
from router.telemetry.instruments import safe_name

if TYPE_CHECKING:
    from contract.records import PlayRecord, RunRecord
    from effects.tape import Entry, StateChange
    from router.context import ExchangeContext, LedgerLine

log = logging.getLogger(__name__)

Pseudonym = Callable[[str, str], str]
"""Returns a text at a dotted path of a request's body as captures store it."""


class AccessLog:
    """Logs exchanges; times in milliseconds.

    Ids that clients chose are replaced by `pseudonym` as in captures. Of exchanges that are
    `debugged` each step is a line, too.
    """

    def __init__(self, pseudonym: Pseudonym = lambda _, value: value) -> None:
        self._pseudonym = pseudonym

    def refused(self, flow: str, status: int, code: str) -> None:
        """Log a request that was refused before it became an exchange."""
        fields = {"flow": flow, "status": status, "code": safe_name(code)}
        log.info("turned away", extra={FIELDS: fields})

    def finished(self, context: ExchangeContext) -> None:
        """Its shadow stands in the same line."""

    def settled(self, context: ExchangeContext, line: LedgerLine) -> None:
        """Log an exchange."""
        if context.debugged:
            _log_steps(context)
        log.info("exchange", extra={FIELDS: self._fields(context, line)})

    def _fields(self, context: ExchangeContext, line: LedgerLine) -> dict[str, Any]:
        """Return the facts of an exchange; tokens and cost are those of all live model calls."""
        charges = [charge for account in context.accounts for charge in account.charges]
        live = [charge for charge in charges if charge.how == "live"]
        used = [charge.use.usage for charge in live if charge.use.usage is not None]
        costs = [charge.cost for charge in live if charge.cost is not None]
        ids = context.ids
        fields: dict[str, Any] = {
            "exchange": context.exchange,
            "flow": context.spec.name,
            "message": self._shown(context, MESSAGE, ids),
            "session": self._shown(context, SESSION, ids),
            "assigned": context.assignment.stack,
            "served": context.served,
            "reason": safe_name(context.reason),
            "bucket": context.assignment.bucket,
            "configuration": context.config,
            "resumes": context.resumes or None,
            "paused_ms": _ms(context.paused_us) if context.resumes else None,
            "first_frame_ms": _ms(context.first_frame, context.start),
            "first_text_ms": _ms(context.first_text, context.start),
            "duration_ms": _ms(context.ended, context.start),
            "lost_ms": _ms(context.lost_us),
            "shadow_state": line.state,
            "shadow_reason": line.reason,
            "input_tokens": sum(usage.prompt_tokens for usage in used),
            "output_tokens": sum(usage.completion_tokens for usage in used),
            "cost": sum(costs) if costs else None,
        }
        if (last := context.last_served) is not None:
            fields |= {
                "outcome": last.outcome,
                "error": None if last.error is None else safe_name(last.error.code),
                "frames": len(last.frames),
                "bytes": sum(_size(text) for _, text in last.frames),
                "nodes_ms": {safe_name(node): _ms(spent) for node, spent in last.nodes.items()},
                "run_ms": _ms(last.run_us or None),
                "tools": _tools(context),
                "calls": len(last.plays),
                "tape_bytes": context.tape.usage.size,
            }
        return fields

    def _shown(self, context: ExchangeContext, key: str, ids: Mapping[str, str]) -> str | None:
        value = ids.get(key)
        if value is None:
            return None
        shown = self._pseudonym(context.spec.route_keys.get(key, key), value)
        return safe_name(value) if shown == value else shown


def _tools(context: ExchangeContext) -> list[str]:
    """Return the names of the tools that were called, in order, shadows left out."""
    calls = {
        play.entry
        for run in context.records
        if run.role != "shadow"
        for play in run.plays
        if (play.port, play.op) == (TOOLS_RUN.port, TOOLS_RUN.name)
    }
    if not calls:
        return []
    return [_subject(one) for one in context.tape.entries if one.seq in calls]


def _log_steps(context: ExchangeContext) -> None:
    """Log the path of each run, shadow included: calls, frames and changes of its graph's state.

    They are in the order of their stamps.
    """
    entries = {entry.seq: entry for entry in context.tape.entries}
    for run, account in zip(context.records, context.accounts, strict=True):
        steps = [(play.at, _call(play, entries)) for play in run.plays]
        steps += [
            (at, {"step": "frame", "number": number, "bytes": _size(text)})
            for number, (at, text) in enumerate(run.frames)
        ]
        steps += [
            (change.at, {"step": "state", "node": safe_name(change.node), "bytes": _sizes(change)})
            for change in account.changes
        ]
        for at, facts in sorted(steps, key=lambda step: step[0]):
            _log_step(run, {"at_ms": _ms(at), **facts})
        for node, spent in run.nodes.items():
            _log_step(run, {"step": "node", "node": safe_name(node), "open_ms": _ms(spent)})
        _log_step(run, {"step": "end", "outcome": run.outcome, "frames": len(run.frames)})


def _sizes(change: StateChange) -> dict[str, int]:
    return {safe_name(key): size for key, size in change.sizes.items()}


def _call(play: PlayRecord, entries: Mapping[int, Entry]) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "step": "call",
        "call": f"{play.port}.{play.op}",
        "site": safe_name(play.site),
        "how": play.how,
    }
    entry = None if play.entry is None else entries.get(play.entry)
    if entry is None:
        return facts
    if subject := _subject(entry):
        facts["subject"] = subject
    return facts | {
        "argument_bytes": len(entry.args),
        "items": len(entry.items),
        "end": entry.end,
        "error": None if entry.fault is None else safe_name(entry.fault.code),
        "call_ms": _ms(max(entry.ended - entry.at, 0)),
    }


def _log_step(run: RunRecord, facts: Mapping[str, Any]) -> None:
    who = {"exchange": run.exchange, "flow": run.flow, "stack": run.stack, "role": run.role}
    log.info("step", extra={FIELDS: {**who, **facts}})


def _subject(entry: Entry) -> str:
    name = entry.operation.subject(entry.args)
    return name and safe_name(name)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _ms(stamp: int | None, start: int = 0) -> float | None:
    return None if stamp is None else (stamp - start) / 1_000
