"""Extensions of the ASGI scope: what a server can do that the protocol has no words for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from starlette.types import Scope

ABORT: Final = "cutover.abort"
"""Its `call` drops the connection without waiting for anything."""
PASSING: Final = "cutover.passing"
"""Its `call` sends bytes of a body there and then, or gives False."""
LEAVING: Final = "cutover.server.shutdown"
"""Its `call` takes what is to be called when the client leaves, None for nothing any more."""


def extension(scope: Scope, name: str) -> Any:
    """Give what the server can do; None where it cannot."""
    return scope.get("extensions", {}).get(name, {}).get("call")


def drop(scope: Scope) -> bool:
    """Drop the connection of a request; gives whether the server lets us."""
    abort = extension(scope, ABORT)
    if abort is not None:
        abort()
    return abort is not None
