"""A response whose body goes to a listener, in the turn of the loop in which its bytes arrived."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from effects.tape import Signal


class StreamedResponse(ABC):
    """The response to one request; `ended` when nothing more will arrive.

    `changed` wakes tasks that wait for the head or for the end.
    """

    def __init__(self) -> None:
        self.changed = Signal()
        self.ended = False
        self._held = b""
        self._listener: Callable[[bytes], None] | None = None
        self._error: BaseException | None = None

    @property
    @abstractmethod
    def status(self) -> int:
        """Status of the response; 0 before its head has arrived."""

    @property
    @abstractmethod
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of the response, names in lower case."""

    def listen(self, listener: Callable[[bytes], None]) -> None:
        """Pass the body on to `listener`, also what has arrived; `check` raises what it raised."""
        self._listener = listener
        if self._held:
            held, self._held = self._held, b""
            self._pass_on(listener, held)

    async def read(self, most: int) -> bytes:
        """Read the body to its end, or beyond `most` bytes; raises what `check` does."""
        body = bytearray()
        self.listen(body.extend)
        while not self.ended and len(body) <= most:
            await self.changed.wait()
        self.check()
        return bytes(body)

    def check(self) -> None:
        """Raise the error of the response, if there is one."""
        if self._error is not None:
            raise self._error

    @abstractmethod
    def pause(self) -> None:
        """Pause reading."""

    @abstractmethod
    def resume(self) -> None:
        """Resume reading."""

    @abstractmethod
    def close(self) -> None:
        """Release the response; where it has not ended, nobody reads the rest."""

    @abstractmethod
    def drain(self) -> None:
        """Read no more of it, and let it end."""

    def _pass_on(self, listener: Callable[[bytes], None], body: bytes) -> None:
        try:
            listener(body)
        except Exception as error:  # noqa: BLE001 - for the task that waits, not for the sender
            self._error = error
            self.close()


def ignore_body(_: bytes) -> None:
    """Ignore what arrives."""
