"""The access log: one line an exchange, when its shadow has ended."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from router.stack import FIELDS
from router.telemetry.instruments import safe_name

if TYPE_CHECKING:
    from router.context import ExchangeContext, LedgerLine

log = logging.getLogger(__name__)


class AccessLog:
    """Logs exchanges; times in milliseconds."""

    def refused(self, flow: str, status: int, code: str) -> None:
        """Log a request that was refused before it became an exchange."""
        fields = {"flow": flow, "status": status, "code": safe_name(code)}
        log.info("turned away", extra={FIELDS: fields})

    def finished(self, context: ExchangeContext) -> None:
        """Its shadow stands in the same line."""

    def settled(self, context: ExchangeContext, line: LedgerLine) -> None:
        """Log an exchange."""
        log.info("exchange", extra={FIELDS: _fields(context, line)})


def _fields(context: ExchangeContext, line: LedgerLine) -> dict[str, Any]:
    """Return the facts of an exchange; tokens and cost are those of the live calls of all runs."""
    charges = [charge for account in context.accounts for charge in account.charges]
    live = [charge for charge in charges if charge.how == "live"]
    used = [charge.use.usage for charge in live if charge.use.usage is not None]
    costs = [charge.cost for charge in live if charge.cost is not None]
    fields = {
        "exchange": context.exchange,
        "flow": context.spec.name,
        "assigned": context.assignment.stack,
        "served": context.served,
        "reason": safe_name(context.reason),
        "bucket": context.assignment.bucket,
        "configuration": context.config,
        "first_frame_ms": _ms(context.first_frame),
        "first_text_ms": _ms(context.first_text),
        "duration_ms": _ms(context.ended),
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
            "nodes_ms": {safe_name(node): _ms(spent) for node, spent in last.nodes.items()},
            "run_ms": _ms(last.run_us or None),
        }
    return fields


def _ms(stamp: int | None) -> float | None:
    return None if stamp is None else stamp / 1_000
