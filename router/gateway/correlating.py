"""Which run asks: the one on whose tape a call is recorded, or from whose tape it is played."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.gateway.refusals import GatewayRefused
from router.remote.headers import EXCHANGE, ROLE

if TYPE_CHECKING:
    from effects.tape import TapeSession
    from router.context import ExchangeContext
    from router.router import Router
    from router.serving.run import Headers, Run

SITE: Final = "gateway"
"""Where all calls of stacks elsewhere stand on the tape: they do not say more."""

_EXCHANGES: Final = (EXCHANGE.encode(), b"x-exchange-id")
_ROLE: Final = ROLE.encode()
_ROLES: Final = frozenset({"serving", "fallback", "shadow"})


def asking(router: Router, headers: Headers, path_id: str | None) -> TapeSession | None:
    """Find the run a call belongs to; None for a call that stands alone.

    Raises `GatewayRefused` where the path names an exchange that is not open, or none of whose
    runs has the role the call says.
    """
    ticket = _ticket(router, headers, path_id)
    if ticket is None:
        return None
    role = _said(headers, _ROLE)
    drive = _drive(ticket, role)
    if drive is None:
        raise GatewayRefused(404, "unknown_run", f"no run of this exchange is {role!r}")
    return drive.run


def named(headers: Headers, path_id: str | None) -> str | None:
    """Give the id of the exchange a call names, in its path or in a header."""
    if path_id is not None:
        return path_id
    return next((value for name in _EXCHANGES if (value := _said(headers, name))), None)


def here(router: Router, headers: Headers, path_id: str | None) -> bool:
    """Whether the exchange a call belongs to is open in this process."""
    told = named(headers, path_id)
    return router.ticket(told or router.traces.exchange(headers) or "") is not None


def _ticket(router: Router, headers: Headers, path_id: str | None) -> ExchangeContext | None:
    if path_id is not None:
        ticket = router.ticket(path_id)
        if ticket is None:
            raise GatewayRefused(404, "unknown_exchange", "no such exchange is open here")
        return ticket
    told = named(headers, None)
    return router.ticket(told or router.traces.exchange(headers) or "")


def _drive(ticket: ExchangeContext, role: str | None) -> Run | None:
    """Find the drive in a role; without one the shadow once it runs alone, else who serves."""
    serving, job = ticket.serving.drives, ticket.job
    shadow = None if job is None else job.drive
    if role in _ROLES:
        drives = [*serving, *([shadow] if shadow is not None else [])]
        return next((drive for drive in drives if drive.role == role), None)
    if shadow is not None and (not serving or serving[-1].complete):
        return shadow
    return serving[-1] if serving else None


def _said(headers: Headers, wanted: bytes) -> str | None:
    return next((value.decode("latin-1") for name, value in headers if name == wanted), None)
