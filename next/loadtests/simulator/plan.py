"""What is sent for an answer, when, and how it ends: faults are decided here, `play` obeys."""

import re
from typing import Literal, NamedTuple, assert_never

import msgspec

from loadtests.simulator.answer import (
    Answer,
    Cut,
    ErrorEvent,
    Fault,
    Garbage,
    NeverAnswers,
    Reset,
    Silence,
    SlowFirst,
)
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


class Plan(NamedTuple):
    """An answer as it goes out.

    `wait` is in seconds, before the first part, and before the headers too unless `headers_first`.
    A plan that ends `silent` keeps the connection open; `never` and `reset` send nothing at all.
    """

    parts: tuple[StreamPart, ...]
    media: str = "application/json"
    status: int = OK
    headers: tuple[tuple[str, str], ...] = ()
    wait: float = 0.0
    headers_first: bool = True
    ending: Literal["whole", "cut", "silent", "never", "reset"] = "whole"


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
    plan = Plan(tuple(parts), media, headers=answer.headers)
    return _with_fault(plan, answer.fault, request.api)


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
    half = len(body) // 2
    parts = (StreamPart(body[:half]), StreamPart(body[half:], carries=True, pauses=0))
    if isinstance(fault, Cut | Silence):
        fault = type(fault)(0)
    return _with_fault(Plan(parts, status=status, headers=answer.headers), fault, api)


def _with_fault(plan: Plan, fault: Fault | None, api: Api) -> Plan:
    parts = plan.parts
    match fault:
        case None:
            return plan
        case Cut(after):
            return plan._replace(parts=parts[: _place(parts, after)], ending="cut")
        case Silence(after):
            return plan._replace(parts=parts[: _place(parts, after)], ending="silent")
        case ErrorEvent(after, code, message):
            event = StreamPart(error_event(api, code, message))
            return plan._replace(parts=(*parts[: _place(parts, after)], event))
        case Garbage(at):
            place = _place(parts, at)
            return plan._replace(parts=(*parts[:place], StreamPart(_GARBAGE), *parts[place:]))
        case SlowFirst(seconds, headers):
            return plan._replace(wait=seconds, headers_first=headers)
        case NeverAnswers():
            return plan._replace(ending="never")
        case Reset():
            return plan._replace(ending="reset")
        case _:
            assert_never(fault)


def _place(parts: tuple[StreamPart, ...], chunks: int) -> int:
    """Return the index of the part that follows the first `chunks` chunks."""
    carriers = [k for k, part in enumerate(parts) if part.carries]
    return carriers[chunks] if chunks < len(carriers) else carriers[-1] + 1 if carriers else 0
