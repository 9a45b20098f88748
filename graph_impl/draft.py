"""The reply in progress, as a frozen value that fits into a graph's state."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from contract.flows.chat import ChatOptions, Send, ToolFeedback
from contract.model import Chunk


class Draft(msgspec.Struct, frozen=True, omit_defaults=True):
    """The text so far, and what of it the client has.

    `at` is the stamp of the newest item, `last` the frame sent last, `last_at` its stamp; both are
    None before the first.
    """

    content: str = ""
    reasoning: str = ""
    at: int = 0
    last: Send | None = None
    last_at: int | None = None

    @property
    def unsent(self) -> bool:
        """Whether the client lacks some of it."""
        if self.last is None:
            return bool(self.content or self.reasoning)
        return self.content != self.last.content or self.reasoning != (
            self.last.reason_content or ""
        )


Sent = tuple[Draft, tuple[Send, ...]]
"""A draft after a step, and the frames the step sends."""


def take(draft: Draft, chunk: Chunk, options: ChatOptions) -> Sent:
    """Add a chunk; send when it brings the first text or the interval has passed."""
    reasoning = draft.reasoning + chunk.reasoning if options.wire == "extended" else ""
    grown = Draft(draft.content + chunk.text, reasoning, chunk.at, draft.last, draft.last_at)
    return flush(grown, options) if _due(grown, options) else (grown, ())


def _due(draft: Draft, options: ChatOptions) -> bool:
    last = draft.last
    if last is None or draft.last_at is None:
        return True
    if draft.content and not last.content:
        return True
    if draft.reasoning and not last.reason_content:
        return True
    return draft.at - draft.last_at >= round(options.yield_interval * 1_000_000)


def flush(draft: Draft, options: ChatOptions) -> Sent:
    """Send what the client lacks."""
    return _send(draft, options) if draft.unsent else (draft, ())


def feedback(draft: Draft, status: ToolFeedback, options: ChatOptions) -> Sent:
    """Send a tool's status at once, unsent text before it."""
    draft, text = flush(draft, options)
    draft, frames = _send(draft, options, status)
    return draft, text + frames


def _send(draft: Draft, options: ChatOptions, status: ToolFeedback | None = None) -> Sent:
    frame = Send(
        draft.content,
        draft.reasoning if options.wire == "extended" else UNSET,
        UNSET if status is None else status,
    )
    if frame == draft.last:
        return draft, ()
    return msgspec.structs.replace(draft, last=frame, last_at=draft.at), (frame,)
