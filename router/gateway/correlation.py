"""The exchange and the run a gateway call belongs to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from starlette.types import Scope

from effects.tape import TapeSession
from router.config.schema import Settings
from router.context import Traces
from router.gateway.refusals import GatewayRefused
from router.serving.run import Run
from router.stack import EXCHANGE_HEADER, ROLE_HEADER, header_of

EXCHANGE_HEADERS: Final = (EXCHANGE_HEADER, b"x-exchange-id")
"""Headers in which a call may name its exchange, the first one that is there counts."""
_ROLES: Final = frozenset({"serving", "fallback", "shadow"})


class OpenExchanges(Protocol):
    """The exchanges whose calls a gateway answers: those of a router, or those of a replay."""

    @property
    def settings(self) -> Callable[[], Settings]:
        """Returns the settings in force."""
        ...

    @property
    def traces(self) -> Traces:
        """Which exchange a trace belongs to."""
        ...

    def runs(self, exchange: str, /) -> Sequence[Run] | None:
        """Return the runs of an open exchange, its shadow's last; None where it is unknown."""
        ...


def calling_session(exchanges: OpenExchanges, scope: Scope) -> TapeSession | None:
    """Return the tape session of the run a call belongs to; None for a call outside exchanges.

    Raises `GatewayRefused` where the path names an exchange that is not open, or the role none of
    its runs has.
    """
    runs = open_runs(exchanges, scope)
    if runs is None:
        if "exchange" in scope["path_params"]:
            raise GatewayRefused(404, "unknown_exchange", "no such exchange is open here")
        return None
    role = header_of(scope["headers"], ROLE_HEADER).decode("latin-1")
    run = _run_in_role(runs, role)
    if run is None:
        raise GatewayRefused(404, "unknown_run", f"no run of this exchange is {role!r}")
    return run.session


def open_runs(exchanges: OpenExchanges, scope: Scope) -> Sequence[Run] | None:
    """Return the runs of the exchange a call belongs to; None where none is open here."""
    return exchanges.runs(calling_exchange(exchanges, scope))


def calling_exchange(exchanges: OpenExchanges, scope: Scope) -> str:
    """Return the id of the exchange a call names, or is traced to; "" for none."""
    return named_exchange(scope) or exchanges.traces.exchange(scope["headers"]) or ""


def named_exchange(scope: Scope) -> str | None:
    """Return the id of the exchange a call names, in its path or in a header."""
    if (path_id := scope["path_params"].get("exchange")) is not None:
        return str(path_id)
    named = (header_of(scope["headers"], name).decode("latin-1") for name in EXCHANGE_HEADERS)
    return next(filter(None, named), None)


def _run_in_role(runs: Sequence[Run], role: str) -> Run | None:
    """Return the run in a role; without one the shadow once it runs alone, else the serving run."""
    if role in _ROLES:
        return next((run for run in runs if run.role == role), None)
    shadow = next((run for run in runs if run.role == "shadow"), None)
    served = [run for run in runs if run.role != "shadow"]
    if shadow is not None and (not served or served[-1].complete):
        return shadow
    return served[-1] if served else None
