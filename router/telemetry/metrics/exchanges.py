"""What an exchange adds to the metrics, when it has ended: nothing is counted in its stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.telemetry.metrics import instruments as i
from router.telemetry.metrics.labels import Codes
from router.telemetry.names import OTHER

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from contract.records import RunRecord
    from router.context import Account, ExchangeContext, LedgerLine
    from router.telemetry.metrics.panel import Panel

_MICROSECONDS = 1_000_000


class Exchanges:
    """Observes exchanges for a panel; `models` are those that are configured now."""

    def __init__(self, panel: Panel, models: Callable[[], Container[str]]) -> None:
        self._panel = panel
        self._models = models
        self._codes = Codes()

    def refused(self, flow: str, status: int, code: str) -> None:
        """Count a refusal of the router's own."""
        self._panel.add(i.REFUSALS, 1, flow, str(status), self._codes(code))

    def finished(self, context: ExchangeContext) -> None:
        """Count an exchange, its times and what its served runs used."""
        self._times(context)
        self._stand_in(context)
        if context.records:
            last = context.records[-1]
            self._panel.add(i.EXCHANGES, 1, *_who(context), last.outcome)
            self._refusal(context)
        for run, account in zip(context.records, context.accounts, strict=True):
            self._use(run, account)

    def settled(self, context: ExchangeContext, line: LedgerLine) -> None:
        """Count what a shadow used beyond the tape."""
        if line.state == "compared":
            self._use(context.records[-1], context.accounts[-1])

    def _times(self, context: ExchangeContext) -> None:
        who = _who(context)
        self._panel.observe(i.DURATION, context.ended / _MICROSECONDS, *who)
        for instrument, at in (
            (i.FIRST_FRAME, context.first_frame),
            (i.FIRST_TEXT, context.first_text),
        ):
            if at is not None:
                self._panel.observe(instrument, at / _MICROSECONDS, *who)

    def _stand_in(self, context: ExchangeContext) -> None:
        if context.fallback:
            who = _who(context)
            self._panel.add(i.STAND_INS, 1, *who, context.fallback, self._codes(context.reason))
            self._panel.add(i.LOST, context.lost_us / _MICROSECONDS, *who)

    def _refusal(self, context: ExchangeContext) -> None:
        outcome = context.outcome
        if outcome is not None and outcome.refusal is not None:
            refusal = outcome.refusal
            self.refused(context.spec.name, refusal.status, refusal.code)

    def _use(self, run: RunRecord, account: Account) -> None:
        for charge in account.charges:
            usage = charge.use.usage
            if charge.how != "live" or usage is None:
                continue  # from the tape: another run's, who counts it
            known = self._models()
            asked, answered = (
                model if model in known else OTHER for model in (charge.requested, charge.answered)
            )
            what = (run.flow, run.stack, run.role, answered, asked)
            self._panel.add(i.TOKENS, usage.prompt_tokens, *what, "input")
            self._panel.add(i.TOKENS, usage.completion_tokens, *what, "output")
            if charge.cost is not None:
                self._panel.add(i.COST, charge.cost, *what)


def _who(context: ExchangeContext) -> tuple[str, str, str]:
    return context.spec.name, context.assignment.stack, context.served
