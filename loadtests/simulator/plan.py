"""What is sent for an answer: its parts, as far as a fault lets them go out."""

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from loadtests.simulator.answer import Answer, Cut, ErrorEvent, Fault, Garbage, Silence
from loadtests.simulator.request import ModelRequest
from loadtests.simulator.wire import (
    HTTP_SERVER_ERROR,
    StreamPart,
    chat_stream,
    chat_whole,
    error_body,
    error_event,
)

OK = 200
_GARBAGE = b"data: {broken\n\n"
Headers = tuple[tuple[str, str], ...]
Parts = tuple[StreamPart, ...]


class Plan(NamedTuple):
    """An answer as it goes out; `fault` is what `play` has to do beside sending the parts."""

    parts: Parts
    media: str = "application/json"
    status: int = OK
    headers: Headers = ()
    fault: Fault | None = None


def plan_answer(request: ModelRequest, answer: Answer) -> Plan:
    """Return the plan of an answer to a request for a model."""
    if answer.status != OK:
        return plan_body(b"", answer)
    if answer.raw is not None:
        return plan_raw(answer.raw, answer.headers, answer.fault)
    if request.stream:
        return _plan_stream(chat_stream(request, answer), answer.headers, answer.fault)
    return plan_body(msgspec.json.encode(chat_whole(request, answer)), answer)


def plan_raw(raw: str, headers: Headers = (), fault: Fault | None = None) -> Plan:
    """Return the plan of an exact body, of events or of JSON."""
    events = re.split(rb"(?<=\n\n)", raw.encode())  # every byte is kept
    parts = [StreamPart(event, carries=True) for event in events if event]
    plan = _plan_stream(parts, headers, fault)
    return plan if not raw.lstrip().startswith("{") else plan._replace(media="application/json")


def _plan_stream(parts: Iterable[StreamPart], headers: Headers, fault: Fault | None) -> Plan:
    struck = _struck(tuple(parts), fault)
    return Plan(struck, "text/event-stream; charset=utf-8", headers=headers, fault=fault)


def plan_body(body: bytes, answer: Answer) -> Plan:
    """Return the plan of a whole body, or of the error whose status the answer has."""
    status, fault = answer.status, answer.fault
    message = answer.text or f"The simulated provider answers with status {status}."
    if isinstance(fault, ErrorEvent):
        status, message, fault = HTTP_SERVER_ERROR, fault.message, None
    if isinstance(fault, Garbage):
        body, fault = b"{broken", None
    if status != OK:
        body = error_body(status, message) if answer.raw is None else answer.raw.encode()
    half = len(body) // 2 if isinstance(fault, Cut | Silence) else len(body)
    return Plan((StreamPart(body[:half]),), status=status, headers=answer.headers, fault=fault)


def _struck(parts: Parts, fault: Fault | None) -> Parts:
    """Return what goes out before a stream breaks off, or with what does not belong in it."""
    match fault:
        case Cut(after) | Silence(after):
            return parts[: _place(parts, after)]
        case ErrorEvent(after, code, message):
            return (*parts[: _place(parts, after)], StreamPart(error_event(code, message)))
        case Garbage(at):
            place = _place(parts, at)
            return (*parts[:place], StreamPart(_GARBAGE), *parts[place:])
        case _:
            return parts


def _place(parts: Parts, chunks: int) -> int:
    """Return the index of the part that follows the first `chunks` chunks."""
    carriers = [k for k, part in enumerate(parts) if part.carries]
    return carriers[chunks] if chunks < len(carriers) else carriers[-1] + 1 if carriers else 0
