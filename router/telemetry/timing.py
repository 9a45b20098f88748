"""How long an exchange took, as its client saw it; read off what is kept of it anyway."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from router.serving.run import Frame, Run
    from router.serving.stream import Serving


LOOKED_AT = 1_000
"""Frames in which text is looked for: whoever thinks aloud for longer is not waited for here."""


def first_frame(serving: Serving) -> int | None:
    """Microseconds until the first frame; None where none was sent, or it was let go of."""
    return next((frame.at for _, frame in _sent(serving)), None)


def first_text(serving: Serving) -> int | None:
    """Microseconds until the first frame with text of the answer; None where there was none."""
    looked_at = islice(_sent(serving), LOOKED_AT)
    return next((frame.at for drive, frame in looked_at if drive.text_of(frame)), None)


def _sent(serving: Serving) -> Iterator[tuple[Run, Frame]]:
    """Give the frames the client got and the run each is of, up to those that were let go of."""
    if not serving.committed:
        return
    for drive, successor in zip(serving.drives, [*serving.drives[1:], None], strict=True):
        for frame in drive.frames[drive.skipped : None if successor is None else successor.sent]:
            if not frame.data:
                return
            yield drive, frame
