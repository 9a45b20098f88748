"""What an exchange adds to the metrics, when it has ended: nothing is counted in its stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.telemetry.metrics import instruments as i
from router.telemetry.metrics.labels import Codes
from router.telemetry.names import OTHER
from router.telemetry.timing import first_frame, first_text

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from contract.records import RunRecord
    from router.capture.records import Account
    from router.context import ExchangeContext
    from router.shadow.ledger import Line
    from router.telemetry.metrics.panel import Panel

_MICROSECONDS = 1_000_000


class Exchanges:
    """Observes exchanges for a panel; `models` are those that are configured now."""

    def __init__(self, panel: Panel, models: Callable[[], Container[str]]) -> None:
        self._panel = panel
        self._models = models
        self._codes = Codes()

    def turned_away(self, flow: str, status: int, code: str) -> None:
        """Count a refusal of the router's own."""
        self._panel.add(i.REFUSALS, 1, flow, str(status), self._codes(code))

    def concluded(self, ticket: ExchangeContext) -> None:
        """Count an exchange, its times and what its served runs used."""
        self._times(ticket)
        self._stand_in(ticket)
        if ticket.runs:
            last = ticket.runs[-1]
            self._panel.add(i.EXCHANGES, 1, *_who(ticket), last.outcome)
            self._refusal(ticket)
        for run, account in zip(ticket.runs, ticket.accounts, strict=True):
            self._use(run, account)

    def settled(self, ticket: ExchangeContext, line: Line) -> None:
        """Count what a shadow used beyond the tape."""
        if line.state == "compared":
            self._use(ticket.runs[-1], ticket.accounts[-1])

    def _times(self, ticket: ExchangeContext) -> None:
        who, serving = _who(ticket), ticket.serving
        self._panel.observe(i.DURATION, ticket.ended / _MICROSECONDS, *who)
        for instrument, at in (
            (i.FIRST_FRAME, first_frame(serving)),
            (i.FIRST_TEXT, first_text(serving)),
        ):
            if at is not None:
                self._panel.observe(instrument, at / _MICROSECONDS, *who)

    def _stand_in(self, ticket: ExchangeContext) -> None:
        serving = ticket.serving
        how = "instead" if serving.plan.instead else ""
        if len(serving.drives) > 1:
            how = "takeover" if serving.drive.sent else "fallback"
        if how:
            who = _who(ticket)
            self._panel.add(i.STAND_INS, 1, *who, how, self._codes(serving.reason))
            self._panel.add(i.LOST, serving.lost_us / _MICROSECONDS, *who)

    def _refusal(self, ticket: ExchangeContext) -> None:
        ending = ticket.serving.drive.ending
        if ending is not None and ending.refusal is not None:
            refusal = ending.refusal
            self.turned_away(ticket.spec.name, refusal.status, refusal.code)

    def _use(self, run: RunRecord, account: Account) -> None:
        for charge in account.charges:
            usage = charge.use.usage
            if charge.how != "live" or usage is None:
                continue  # from the tape: another run's, who counts it
            known = self._models()
            asked, answered = (
                model if model in known else OTHER for model in (charge.asked, charge.answered)
            )
            what = (run.flow, run.stack, run.role, answered, asked)
            self._panel.add(i.TOKENS, usage.prompt_tokens, *what, "input")
            self._panel.add(i.TOKENS, usage.completion_tokens, *what, "output")
            if charge.cost is not None:
                self._panel.add(i.COST, charge.cost, *what)


def _who(ticket: ExchangeContext) -> tuple[str, str, str]:
    serving = ticket.serving
    return ticket.spec.name, serving.plan.assigned.name, serving.served.name
