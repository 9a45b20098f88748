"""Requests of each flow that are served in every test of the kind, and what they cost."""

import tomllib
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtests.simulator import Answer


@dataclass(frozen=True, slots=True)
class Sample:
    """A request: its flow, body, path and options; `own` are the keys a repetition makes new.

    `answers` are the model's, where the simulated one would say more than a test needs.
    """

    flow: str
    body: Mapping[str, Any]
    path: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    own: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()


PICTURE = "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n").decode()
"""A picture as far as anyone here looks at it."""


def _sample(row: dict[str, Any]) -> Sample:
    body = {name: PICTURE if one == "PICTURE" else one for name, one in row.pop("body").items()}
    own, answers = row.pop("own", ()), row.pop("answers", ())
    return Sample(**row, body=body, own=tuple(own), answers=tuple(Answer(text=t) for t in answers))


_DATA = tomllib.loads(Path(__file__).with_name("samples.toml").read_text("utf-8"))
SAMPLES = {name: _sample(row) for name, row in _DATA.items()}
"""By what they show."""
