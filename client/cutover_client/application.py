"""An ASGI application as a flow of a stack in the router's process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from dataclasses import dataclass
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class NotAnApplication(TypeError):
    """What is wrapped is no ASGI application, or not where it is said to be."""

    def __init__(self, why: str) -> None:
        super().__init__(f"wrap_app: {why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedApplication:
    """An application, where in it a flow is, and how long its stream may be silent."""

    app: Application
    path: str
    media_types: frozenset[str]
    first_event_seconds: float
    idle_seconds: float
    total_seconds: float

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Be the application."""
        await self.app(scope, receive, send)


def wrap_app(
    app: Application,
    *,
    path: str = "",
    media_types: Collection[str] = (),
    first_event_seconds: float = 30.0,
    idle_seconds: float = 30.0,
    total_seconds: float = 600.0,
) -> WrappedApplication:
    """Return an application (FastAPI's, Starlette's, any ASGI 3) as a flow of a stack.

        FLOWS = {"support": wrap_app(app, path="/chat")}

    It gets what clients post, at `path` (that of the flow, where there is none), and its stream is
    passed on. The limits are those of a stack behind an address; `media_types` are further ones of
    its streams. Raises `NotAnApplication`.
    """
    given: object = app
    why = ""
    if not callable(given):
        why = f"a {type(given).__name__} is no ASGI application (name the object, not the module)"
    elif path and not path.startswith("/"):
        why = f"the path {path!r} does not begin with a slash"
    elif min(first_event_seconds, idle_seconds, total_seconds) <= 0:
        why = "limits are seconds above 0"
    if why:
        raise NotAnApplication(why)
    return WrappedApplication(
        app=app,
        path=path,
        media_types=frozenset(media_types),
        first_event_seconds=first_event_seconds,
        idle_seconds=idle_seconds,
        total_seconds=total_seconds,
    )
