"""One call on the tape: what was asked, what came back and when."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from cutover.records import EntryRecord, ErrorRecord, ItemRecord

OUTCOME_UNKNOWN = "OutcomeUnknown"
"""The kind of a write that was begun in a process that ended before its result came."""
End = Literal["open", "done", "failed", "cut"]


class Signal:
    """Wakes all tasks that wait: an event that is replaced whenever it is set."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next `notify`."""
        await self._event.wait()

    def notify(self) -> None:
        """Wake every waiting task."""
        self._event.set()
        self._event = asyncio.Event()


class Call(msgspec.Struct, frozen=True):
    """What a run asks for: the effect's `name` and the `key` by which the tape finds it.

    `canonical` is the request itself, as it is compared. `seconds` bound the performance. `model`
    marks requests to a model: they cost money, and the key has dates and ids folded. `host` is
    where a request goes, for who looks at it: no call is found by it.
    """

    name: str
    key: bytes
    canonical: bytes
    writes: bool = False
    model: bool = False
    seconds: float = 30.0
    host: str = ""
    anew: bool = False  # performed also where the tape has it

    @property
    def place(self) -> bytes:
        """What calls are found by: the name and the key."""
        return self.name.encode() + b"\0" + self.key


class Fault(msgspec.Struct, frozen=True):
    """How a call failed: the class of the exception, its message, and its arguments as JSON.

    `args` is there for exceptions that the effect declares, which readers raise anew.
    """

    kind: str
    message: str = ""
    args: msgspec.Raw = msgspec.Raw(b"[]")


class LiveValue:
    """An item that cannot be encoded: it is handed on in this process, and never stored."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


Item = bytes | LiveValue


@dataclass(slots=True, eq=False)
class Entry:
    """One call: any number of runs read its items while they come and after.

    `at` and the stamps of `items` are in microseconds since the exchange began.
    """

    call: Call
    at: int
    items: list[tuple[int, Item]] = field(default_factory=list)
    end: End = "open"
    fault: Fault | None = None
    error: BaseException | None = None
    """The exception itself, where the call failed in this process and has to be raised as it is."""
    changed: Signal = field(default_factory=Signal)
    task: asyncio.Task[None] | None = None
    resume: Callable[[], object] = lambda: None
    """Has a thread go on with a call of blocking code, unless a run performs it."""
    finish: Callable[[], bool] = lambda: False
    """Brings such a call to its end in this thread; False where a run or a thread performs it."""
    stop: Callable[[], object] = lambda: None
    """Brings no more items of a call of blocking code."""
    deadline: asyncio.TimerHandle | None = None
    """Ends a call that its caller performs in a thread."""
    readers: list[Any] = field(default_factory=list)
    """Runs that read it, or have just left; a fenced one holds it for its successor."""
    withdrawn: bool = False
    """It is off the tape: readers get `error` as it is."""
    spent: bool = False
    """Items have been dropped, since the tape is over its limit."""

    def close(
        self, end: End, fault: Fault | None = None, error: BaseException | None = None
    ) -> None:
        """End the call; the first end counts."""
        if self.end == "open":
            self.end, self.fault, self.error = end, fault, error
            if self.deadline is not None:
                self.deadline.cancel()
            self.changed.notify()

    def cancel(self) -> None:
        """Stop performing; the entry ends `cut`. A thread that performs stops at its next item."""
        if self.task is not None:
            self.task.cancel()
        elif self.end == "open":
            self.close("cut")
            self.stop()


def entry_record(entry: Entry) -> EntryRecord:
    """Return an entry as it is stored; items that cannot be encoded are left out."""
    call, fault = entry.call, entry.fault
    items = tuple(ItemRecord.of(at, item) for at, item in entry.items if isinstance(item, bytes))
    error = None
    if fault is not None:
        error = ErrorRecord(fault.kind, fault.message, bytes(fault.args).decode())
    canonical = call.canonical.decode("utf-8", "replace")
    return EntryRecord(
        call.name, call.key.hex(), canonical, entry.at, call.writes, items, entry.end, error
    )


def entry_of(record: EntryRecord) -> Entry:
    """Return a stored entry; a write that was begun and never ended has an unknown outcome."""
    key, canonical = bytes.fromhex(record.key), record.canonical.encode()
    call = Call(record.name, key, canonical, record.writes, record.name.startswith("model."))
    entry = Entry(call, record.at, [(item.at, item.data) for item in record.items], record.end)
    if record.error is not None:
        args = msgspec.Raw(record.error.args.encode())
        entry.fault = Fault(record.error.kind, record.error.message, args)
    if record.end == "open":
        entry.end, entry.fault = "failed", Fault(OUTCOME_UNKNOWN)
    return entry
