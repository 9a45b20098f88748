"""What is sent for an answer: its parts, as far as a fault lets them go out."""

import re
from typing import NamedTuple

import msgspec

from loadtests.simulator.answer import Answer, Cut, ErrorEvent, Fault, Garbage, Silence
from loadtests.simulator.request import Api, ModelRequest
from loadtests.simulator.wire import (
    HTTP_SERVER_ERROR,
    STREAMS,
    WHOLE,
    StreamPart,
    error_body,
    error_event,
)

OK = 200
_GARBAGE = b"data: {broken\n\n"
Parts = tuple[StreamPart, ...]


class Plan(NamedTuple):
    """An answer as it goes out; `fault` is what `play` has to do beside sending the parts."""

    parts: tuple[StreamPart, ...]
    media: str = "application/json"
    status: int = OK
    headers: tuple[tuple[str, str], ...] = ()
    fault: Fault | None = None


def plan_answer(request: ModelRequest, answer: Answer) -> Plan:
    """Return the plan of an answer to a request for a model."""
    if answer.status != OK:
        return plan_body(b"", answer, request.api)
    if answer.raw is not None:
        events = re.split(rb"(?<=\n\n)", answer.raw.encode())  # every byte is kept
        parts = [StreamPart(event, carries=True) for event in events if event]
        streamed = not answer.raw.lstrip().startswith("{")
    elif request.stream:
        parts, streamed = list(STREAMS[request.api](request, answer)), True
    else:
        body = msgspec.json.encode(WHOLE[request.api](request, answer))
        return plan_body(body, answer, request.api)
    media = "text/event-stream; charset=utf-8" if streamed else "application/json"
    struck = _struck(tuple(parts), answer.fault, request.api)
    return Plan(struck, media, headers=answer.headers, fault=answer.fault)


def plan_body(body: bytes, answer: Answer, api: Api = "chat") -> Plan:
    """Return the plan of a whole body, or of the error whose status the answer has."""
    status, fault = answer.status, answer.fault
    message = answer.text or f"The simulated provider answers with status {status}."
    if isinstance(fault, ErrorEvent):
        status, message, fault = HTTP_SERVER_ERROR, fault.message, None
    if isinstance(fault, Garbage):
        body, fault = b"{broken", None
    if status != OK:
        body = error_body(api, status, message) if answer.raw is None else answer.raw.encode()
    half = len(body) // 2 if isinstance(fault, Cut | Silence) else len(body)
    return Plan((StreamPart(body[:half]),), status=status, headers=answer.headers, fault=fault)


def _struck(parts: Parts, fault: Fault | None, api: Api) -> Parts:
    """Return what goes out before a stream breaks off, or with what does not belong in it."""
    match fault:
        case Cut(after) | Silence(after):
            return parts[: _place(parts, after)]
        case ErrorEvent(after, code, message):
            return (*parts[: _place(parts, after)], StreamPart(error_event(api, code, message)))
        case Garbage(at):
            place = _place(parts, at)
            return (*parts[:place], StreamPart(_GARBAGE), *parts[place:])
        case _:
            return parts


def _place(parts: Parts, chunks: int) -> int:
    """Return the index of the part that follows the first `chunks` chunks."""
    carriers = [k for k, part in enumerate(parts) if part.carries]
    return carriers[chunks] if chunks < len(carriers) else carriers[-1] + 1 if carriers else 0
