"""Effects of services: calls that come back to the tape of a run, and are performed elsewhere."""

import asyncio
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from cutover.errors import Control, Fenced
from cutover.tape import OUTCOME_UNKNOWN, Call, Entry, Fault, Run
from cutover.tape.portal import obtain
from cutover.tape.remote import CallAnswer, CallQuestion, CallReport, pack, unpack
from cutover.tape.run import CallFailed
from router.gateway.runs import OpenRuns

GRACE_SECONDS = 2.0
"""How much later than its deadline a report may come: the service ends the call at the deadline."""


class Reply(NamedTuple):
    """What a service is answered; every body is JSON."""

    status: int
    body: bytes = b"{}"


class _Lent(NamedTuple):
    """A call that a service performs."""

    entry: Entry
    raw: bool


class Effects:
    """Answers calls of services; what is not on the tape of their run the services perform."""

    def __init__(self, runs: OpenRuns) -> None:
        self._runs = runs
        self._lent: WeakKeyDictionary[Run, list[_Lent | None]] = WeakKeyDictionary()
        self._watching: set[asyncio.Task[None]] = set()

    async def answer(self, name: str, number: str, body: bytes) -> Reply:
        """Answer `POST /runs/{name}/effects`, or with a number the report of a call.

        It waits for a call that is under way, unless it is cancelled. 409: refused, or reported
        already; 404: no such call; 422: the body is not as declared.
        """
        run = self._runs.find(name)
        try:
            if number:
                return await self._reported(run, number, msgspec.json.decode(body, type=CallReport))
            question = msgspec.json.decode(body, type=CallQuestion)
            call = question.call()
        except (ValueError, RecursionError) as error:  # msgspec's and the Unicode's, too
            return Reply(422, msgspec.json.encode({"detail": str(error)}))
        if run is None:
            known = self._runs.performs(name)
            said = (
                CallAnswer(outside=True) if known else CallAnswer(refused="fenced", subject="an id")
            )
        else:
            said = await self._answered(run, call, question)
        return Reply(409 if said.refused else 200, msgspec.json.encode(said))

    async def _answered(self, run: Run, call: Call, question: CallQuestion) -> CallAnswer:
        if run.over:
            run.exchange.off_tape[call.name] += 1
            return CallAnswer(outside=True)
        kind = OUTCOME_UNKNOWN if call.writes else "TimeoutError"
        late = Fault(kind, f"no report within {call.seconds:g} s")
        lent = msgspec.structs.replace(call, seconds=call.seconds + GRACE_SECONDS)
        try:
            entry, due = await obtain(run, lent, late)
            if due:
                return CallAnswer(perform=self._lend(run, _Lent(entry, question.raw)))
            if entry.end == "open" and not question.wait:
                return CallAnswer(
                    [], Fault("Blocking", "it is under way: await it, or use a thread")
                )
            fault = None
            try:
                items = [item async for item in run.read(entry)]
            except CallFailed as failed:
                items, fault = [item for _, item in entry.items], failed.fault
        except Control as control:
            return CallAnswer(refused=control.code, subject=control.subject)
        return CallAnswer(pack(items, raw=question.raw), fault)

    def _lend(self, run: Run, lent: _Lent) -> int:
        calls = self._lent.setdefault(run, [])
        calls.append(lent)
        watching = asyncio.get_running_loop().create_task(_watch(run, lent.entry))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        return len(calls) - 1

    async def _reported(self, run: Run | None, number: str, report: CallReport) -> Reply:
        calls = self._lent.get(run, []) if run is not None else []
        if run is None or not number.isdecimal() or int(number) >= len(calls):
            return Reply(404)
        lent = calls[int(number)]
        if lent is None or lent.entry.end != "open":
            return Reply(409)
        entry, items = lent.entry, unpack(report.items, raw=lent.raw)
        calls[int(number)] = None
        for item in items:
            run.exchange.take(entry, item)
        if report.incomplete:
            run.exchange.incomplete[entry.call.name] = report.incomplete
        await run.exchange.settle(entry, report.fault, None)
        run.leave(entry)
        return Reply(200)


async def _watch(run: Run, entry: Entry) -> None:
    """Wait until a call is reported: its run is not stalled meanwhile.

    A read is taken off the tape of a fenced run: its successor makes it anew, since the service
    that performs it may be gone. A write stays, until its deadline.
    """
    run.waiting += 1
    try:
        while entry.end == "open" and (entry.call.writes or not run.refusing):
            await entry.changed.wait()
    finally:
        run.waiting -= 1
    if entry.end == "open":
        run.exchange.withdraw(entry, Fenced(run.stack))
