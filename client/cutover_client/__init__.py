"""What a service does to the world, done once and on cutover's tape.

    gateway = Gateway("http://router.internal:8081", key=os.environ["GATEWAY_KEY"])
    app.add_middleware(ExchangeMiddleware, gateway=gateway)

    @effect("orders.insert")
    async def insert_order(order: dict) -> int: ...

A request that cutover sent is an exchange: the function runs in the run that serves it, and in a
shadow or a successor it returns what it returned before. Outside of any it is the function alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cutover_client.application import wrap_app
from cutover_client.calls import (
    EffectFailed,
    EffectInDoubt,
    ExchangeOver,
    GatewayError,
    NotJson,
    NotOnTape,
)
from cutover_client.effect import effect
from cutover_client.exchange import Exchange, correlation_headers, current_exchange
from cutover_client.gateway import Gateway
from cutover_client.middleware import ExchangeMiddleware
from cutover_client.transports import CutoverTransport

if TYPE_CHECKING:
    from cutover_client.graph import wrap_graph

__all__ = [
    "CutoverTransport",
    "EffectFailed",
    "EffectInDoubt",
    "Exchange",
    "ExchangeMiddleware",
    "ExchangeOver",
    "Gateway",
    "GatewayError",
    "NotJson",
    "NotOnTape",
    "correlation_headers",
    "current_exchange",
    "effect",
    "wrap_app",
    "wrap_graph",
]


def __getattr__(name: str) -> Any:
    """Import what needs more than httpx where it is used."""
    if name == "wrap_graph":
        return import_module("cutover_client.graph").wrap_graph
    raise AttributeError(name)
