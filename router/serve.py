"""Serving: a stream out of one run, or of two."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from cutover.errors import (
    Completed,
    CutoverError,
    Failed,
    Left,
    Pause,
    Refusal,
    Refused,
    StackFailed,
    outcome_of,
)
from cutover.flow import Frame
from router.driver import Candidate, Driver
from router.exchange import Served
from router.takeover import Due, PrefixMismatch


class NotServed(CutoverError):
    """Nothing was sent: the request ends with an error status. `failed` says why."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(f"not served: {failed.code}")
        self.failed = failed


class CutOff(CutoverError):
    """A stream that has begun ends in failure, and its wire has no words for that."""


FOLLOWS_SECONDS = 5.0
"""How long what a service says next may take behind an event that ends an answer."""
StorePause = Callable[[Served, str, Sequence[Frame]], Awaitable[None]]
"""Stores a paused exchange: its question and the question's frames. Raises where it cannot."""


async def serve(
    exchange: Served, candidates: Sequence[Candidate], store_pause: StorePause
) -> AsyncGenerator[bytes, None]:
    """Yield the frames of one request: of its stack, and of the next one where that fails.

    The frames that a client has are checked and skipped when another stack goes on. A failure of
    the world ends the stream, since the other stack would ask the same provider. So does one that a
    stack reports in its stream; the last stack's report goes out. Raises `Refused` and `NotServed`
    before the first frame or never, `CutOff` behind the last one where no frame can tell of a
    failure.
    """
    flow, sent = exchange.flow, exchange.sent
    began = bool(sent)  # a resumed exchange: its client has the beginning
    questions = flow.pausing.questions if flow.pausing else frozenset()
    for candidate in candidates:
        if exchange.stopping or (exchange.runs and exchange.tape.overflowed):
            break
        driver = exchange.begin(candidate)
        run, framer = driver.run, driver.framer
        due = Due(sent, framer)
        run.behind = lambda due=due: due.behind  # type: ignore[misc]
        held: list[Frame] = []
        """A question goes out when the pause is stored, or answered; a preamble with content."""
        told = False
        try:
            if len(exchange.runs) > 1 and sent and framer.comments:
                yield f": served-by {candidate.name} {exchange.id}\n\n".encode()
            while (frame := await _next_frame(exchange, driver)) is not None:
                if run.ended is not None:
                    break  # a pause, or a refused call, whatever the stack made of the exception
                failed = driver.reported(frame)
                final = candidate is candidates[-1] or exchange.tape.overflowed
                if failed and not final and failed.blame != "world":
                    raise StackFailed(failed.code, failed.blame)  # noqa: TRY301 - as a stack would
                new = due.feed(frame)
                told = told or failed is not None
                if frame.verdict == "preamble" and not sent:
                    held += [] if new is None else [new]
                    continue
                for one in held:
                    sent.add(one)
                    yield one.raw
                held.clear()
                if new is not None and frame.name in questions:
                    held.append(new)
                elif new is not None:
                    sent.add(new)
                    if frame.verdict == "terminal":
                        exchange.outcome, exchange.ended_by = failed or driver.ending, driver
                        exchange.ended = asyncio.get_running_loop().time()
                    yield new.raw
                if exchange.ended_by is not None and not framer.verbatim:
                    return
            if exchange.ended_by is not None:
                return
            run.end(driver.ending)
            if run.ended == Completed():  # its last bytes are the end, and it may be all preamble
                exchange.outcome = run.ended
                for one in held:
                    sent.add(one)
                    yield one.raw
                return
        except (asyncio.CancelledError, GeneratorExit):
            if exchange.ended_by is None:  # behind the terminal event, leaving is no cancellation
                exchange.outcome = Left()
                run.end(exchange.outcome)
                if exchange.tape.journal is not None or len(exchange.runs) > 1:
                    run.fence()  # off the tape it would make writes again that are on it
                exchange.close_soon(driver)
            raise
        except PrefixMismatch as error:
            run.end(Failed("prefix_mismatch", detail=str(error)))
        except Exception as error:  # noqa: BLE001 - whatever a stack raises ends its run
            raised = outcome_of(error)
            late = isinstance(raised, Refusal) and driver.frames  # it may refuse before them alone
            run.end(Failed("refused_late", detail=str(error)) if late else raised)
        ended = run.ended or Failed("stack_failed")
        if isinstance(ended, Pause):
            exchange.outcome = Left()  # until the pause is stored
            storing = _store(exchange, driver, ended, held, store_pause)
            exchange.storing = asyncio.get_running_loop().create_task(storing)
            await asyncio.shield(exchange.storing)
            for question in held:
                sent.add(question)
            for raw in [*(one.raw for one in held), *exchange.close(exchange.outcome)]:
                yield raw
            return
        exchange.outcome = ended
        run.fence()
        exchange.close_soon(driver)
        match ended:
            case Refusal() if not sent:
                raise Refused(ended.status, ended.code, ended.detail)
            case Failed() if told:
                return
            case Failed(blame="world"):
                break
            case _:
                pass
    last = exchange.outcome
    if not isinstance(last, Failed):
        last = exchange.outcome = Failed("refused_late")
    if not (sent or began):
        raise NotServed(last)
    ending = exchange.close(last)
    for raw in ending:
        yield raw
    if not ending:
        raise CutOff(last.code)


async def _next_frame(exchange: Served, driver: Driver) -> Frame | None:
    """Return a run's next frame, None behind the last.

    A service may go on behind an event that ends an answer, as an agent does with its next one:
    what it says within `FOLLOWS_SECONDS` belongs to the stream, which has not ended then.
    """
    if exchange.ended_by is None:
        return await driver.pull()
    try:
        async with asyncio.timeout_at((exchange.ended or 0.0) + FOLLOWS_SECONDS):
            frame = await driver.pull()
    except Exception:  # noqa: BLE001 - the answer is whole, however its connection ends
        return None
    if frame is not None and (frame.texts or (frame.rest and frame.verdict != "content")):
        exchange.ended_by = None
    return frame


async def _store(
    exchange: Served, driver: Driver, pause: Pause, held: list[Frame], store_pause: StorePause
) -> None:
    """Settle the tape and store it; the outcome says whether it is, and if not nothing is asked."""
    await exchange.tape.pause()
    exchange.close_soon(driver)
    try:
        await store_pause(exchange, pause.question, held)
    except Exception as error:  # noqa: BLE001 - whatever the store raises, the client is told
        held.clear()
        exchange.outcome = Failed("pause_not_stored", "world", f"{type(error).__name__}: {error}")
    else:
        exchange.outcome = pause
