"""Answers of services as recognition reads them: bodies cut into the pieces in which they came."""

from __future__ import annotations

from cutover.recognition import Answer, End

KINDS = {"sse": b"text/event-stream", "ndjson": b"application/x-ndjson", "text": b"text/plain"}
FIRST_US, STEP_US = 100_000, 20_000

TEXT = "Exports are part of the Team plan, and of every plan above it."
WORDS = [f"{word} " for word in TEXT.split(" ")[:-1]] + ["it."]
"""The text in the pieces in which most of these services send it."""


def answer_of(
    body: bytes,
    framing: str = "sse",
    *headers: tuple[bytes, bytes],
    kind: bytes | None = None,
    status: int = 200,
    end: End = "complete",
) -> Answer:
    """Return an answer whose frames came one after the other, 20 ms apart."""
    ends = {"sse": b"\n\n", "ndjson": b"\n", "text": b" "}[framing]
    frames = [frame + ends for frame in body.split(ends) if frame]
    if frames and not body.endswith(ends):
        frames[-1] = frames[-1].removesuffix(ends)
    pieces = tuple((FIRST_US + STEP_US * at, frame) for at, frame in enumerate(frames))
    head = ((b"content-type", KINDS[framing] if kind is None else kind), *headers)
    return Answer(status, head, pieces, end, FIRST_US + STEP_US * len(frames))


def refusal(status: int, body: bytes = b"", *headers: tuple[bytes, bytes]) -> Answer:
    """Return an answer that is no stream."""
    return Answer(status, headers, ((FIRST_US, body),) if body else (), "complete", FIRST_US)
