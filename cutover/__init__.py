"""Put what existing code asks of the world on a tape, and play it to another implementation.

    from cutover import TapeTransport, effect

    client = AsyncOpenAI(http_client=httpx2.AsyncClient(transport=TapeTransport()))

    @effect("orders.create", writes=True)
    async def create_order(item: str, grams: int) -> str: ...

Outside an `Exchange` both are transparent. `wrap_graph` makes a stack of a LangGraph graph.
"""

from typing import TYPE_CHECKING, Any

from cutover.errors import CutoverError, EffectFailed, Paused, Refused, StackFailed
from cutover.flow import Event, Request, Stack
from cutover.flow_spec import FlowSpec, Grammar
from cutover.tape import Exchange, Run, effect

if TYPE_CHECKING:
    from cutover.graph import wrap_graph
    from cutover.graph_store import TapedStore
    from cutover.tape.transport import TapeTransport

__all__ = [
    "CutoverError",
    "EffectFailed",
    "Event",
    "Exchange",
    "FlowSpec",
    "Grammar",
    "Paused",
    "Refused",
    "Request",
    "Run",
    "Stack",
    "StackFailed",
    "TapeTransport",
    "TapedStore",
    "effect",
    "wrap_graph",
]

_LATE = {
    "TapeTransport": "cutover.tape.transport",
    "TapedStore": "cutover.graph_store",
    "wrap_graph": "cutover.graph",
}


def __getattr__(name: str) -> Any:
    """Import what needs httpx or LangGraph when it is first asked for."""
    if name not in _LATE:
        message = f"module 'cutover' has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module  # noqa: PLC0415 - needed here alone

    return getattr(import_module(_LATE[name]), name)
