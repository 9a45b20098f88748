"""What is written in one turn of the loop leaves together."""

from __future__ import annotations

import asyncio

from cutover.server.corking import AT_ONCE, Corked


class Wire(asyncio.Transport):
    """Notes what is written, call by call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bytes] = []
        self.ends: list[str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Note it."""
        self.calls.append(bytes(data))

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return bool(self.ends)

    def close(self) -> None:
        """Note it."""
        self.ends.append("close")

    def abort(self) -> None:
        """Note it."""
        self.ends.append("abort")


async def test_one_turn_is_one_write() -> None:
    """In the order in which it was written."""
    wire = Wire()
    corked = Corked(wire)
    corked.write(b"a")
    corked.write(b"b")
    assert not wire.calls
    await asyncio.sleep(0)
    corked.write(b"c")
    await asyncio.sleep(0)
    assert wire.calls == [b"ab", b"c"]


async def test_nothing_overtakes_what_is_held() -> None:
    """What is written now takes it along; alone it goes as it is."""
    wire = Wire()
    corked = Corked(wire)
    corked.write_now(b"a")
    corked.write(b"b")
    corked.write_now(b"c")
    await asyncio.sleep(0)
    assert wire.calls == [b"a", b"bc"]


async def test_much_is_not_held() -> None:
    """Whoever writes it has to learn in time that nobody reads it."""
    wire = Wire()
    Corked(wire).write(b"a" * AT_ONCE)
    assert [len(one) for one in wire.calls] == [AT_ONCE]


async def test_closing_writes_first_and_dropping_does_not() -> None:
    """As without a cork."""
    for end, calls in (("close", [b"a"]), ("abort", [])):
        wire = Wire()
        corked = Corked(wire)
        corked.write(b"a")
        getattr(corked, end)()
        await asyncio.sleep(0)
        assert (wire.calls, wire.ends, corked.is_closing()) == (calls, [end], True)
