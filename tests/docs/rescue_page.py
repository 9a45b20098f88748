"""The tables of docs/rescue.md that show `effects.model.shapes`.

Run as a script, it writes them into the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from effects.model.shapes import (
    BUSY,
    ERRORS,
    INTERRUPTED,
    NO_SPEECH,
    REMEDIES,
    SPEECH,
    ErrorShape,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rescue.md"
PLACE = re.compile(r"(?<=<!-- shapes -->\n).*(?=\n<!-- end of shapes -->)", re.DOTALL)

THEN = {
    "again": "the same model again, then the next one",
    "move": "the next model",
    "larger": "a model with a larger context",
    "stop": "an error",
}
TRACKS = {
    "text": "text",
    "reasoning": "reasoning",
    "calls": "tool calls",
    "unread": "passed on, not shown in a chat",
}


def tables() -> str:
    """Return the tables as the page has them."""
    return f"{errors()}\n\n{finish_reasons()}\n\n{speech()}"


def errors() -> str:
    """Return the table of errors."""
    rows = [
        (
            shape.meaning,
            _known_by(shape),
            f"`{shape.fault}`",
            _then(shape),
            ", ".join(shape.learnt_from),
        )
        for shape in ERRORS
    ]
    providers = sorted({name for names in BUSY.values() for name in names})
    rows.append(
        (
            "inside a stream: busy",
            _codes(BUSY),
            "`model_error`",
            THEN["again"],
            ", ".join(providers),
        )
    )
    rows.append(("any other error inside a stream", "", "`model_error`", THEN["move"], ""))
    rows.append(("any other status", "", "`model_bad_request`", THEN["stop"], ""))
    return _table(("error", "known by", "fault", "what follows", "learnt from"), rows)


def finish_reasons() -> str:
    """Return the table of what completes an answer."""
    rows = [
        (f"finish reason `{reason}`", "broken off: `model_error`", ", ".join(providers))
        for reason, providers in INTERRUPTED.items()
    ]
    rows.append(("any other finish reason", "complete", "all"))
    rows.append(("`[DONE]`, or the end, without one", "cut: `model_truncated`", "all"))
    return _table(("the answer ends with", "it is", "learnt from"), rows)


def speech() -> str:
    """Return the table of a delta's fields."""
    rows = [
        (f"`{name}`", TRACKS[track], ", ".join(providers))
        for name, (track, providers) in SPEECH.items()
    ]
    rows.append((_codes(sorted(NO_SPEECH)), "no speech", ""))
    rows.append(("any other with a text in it", TRACKS["unread"], ""))
    return _table(("field of a delta", "read as", "learnt from"), rows)


def _known_by(shape: ErrorShape) -> str:
    parts = [_statuses(shape.statuses)] if shape.statuses else []
    if shape.words:
        parts.append(_codes(sorted(shape.words)))
    if shape.sentence is not None:
        parts.append("its sentence")
    return ": ".join(parts)


def _statuses(statuses: frozenset[int]) -> str:
    if len(statuses) >= 100:
        few = sorted(one for one in statuses if one < 500) if 500 in statuses else []
        first, last = (500, 599) if 500 in statuses else (min(statuses), max(statuses))
        return ", ".join([*map(str, few), f"{first}–{last}"])
    return ", ".join(map(str, sorted(statuses)))


def _then(shape: ErrorShape) -> str:
    remedy = REMEDIES.get(shape.fault, "stop")
    return THEN["move" if remedy == "again" and not shape.retryable else remedy]


def _codes(names: Iterable[str] | Mapping[str, object]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("-" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


if __name__ == "__main__":
    page = PAGE.read_text("utf-8")
    PAGE.write_text(PLACE.sub(lambda _: tables(), page), "utf-8")
