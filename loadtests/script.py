"""Scripts: what the stamped target is to do with one request, written in its `content`."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from contract.errors import CutoverError

ScriptEnd = Literal["success", "failed", "cut", "missing", "stall", "refuse", "malformed"]


class ScriptRefused(CutoverError):
    """A script cannot be read."""

    def __init__(self, word: str) -> None:
        super().__init__(f"cannot read {word!r} as a part of a script")


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """An exact schedule, seconds since the request was read.

    `headers` until the response starts, `first` until the first text, then `sends` texts `gap`
    apart. `end`: `cut` drops the connection after half of the texts, `missing` ends properly but
    without the last two frames, `stall` goes silent after half of them until the client leaves,
    `malformed` sends one event that is not JSON, `refuse` answers 409 before any frame.
    """

    headers: float = 0.0
    first: float = 0.05
    gap: float = 0.02
    sends: int = 10
    end: ScriptEnd = "success"

    def due(self, number: int) -> float:
        """Seconds after which text `number` (from 0) is due."""
        return self.first + number * self.gap

    @property
    def spoken(self) -> int:
        """How many texts are sent."""
        return self.sends // 2 if self.end in ("cut", "stall") else self.sends


def parse_script(text: str) -> Script:
    """Read `first=0.05 gap=0.02 sends=10 end=cut`; raises `ScriptRefused`."""
    values: dict[str, str] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        if not equals or (name == "end" and value not in get_args(ScriptEnd)):
            raise ScriptRefused(word)
        values[name] = value
    try:
        return msgspec.convert(values, Script, strict=False)
    except msgspec.ValidationError as error:
        raise ScriptRefused(text) from error
