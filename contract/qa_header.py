"""The QA header: a signed request to be served by one stack, for one route key, for a while.

x-cutover-qa: graph;exp=1790000000;sig=<hex of HMAC-SHA256 over "graph|1790000000|route key">
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from typing import Literal

QA_HEADER = "x-cutover-qa"

Ignored = Literal["no_key", "malformed", "bad_signature", "expired"]

_SHAPE = re.compile(r"(?P<stack>legacy|graph);exp=(?P<exp>[0-9]{1,12});sig=(?P<sig>[0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class NotForced:
    """Why a header is ignored; the user is served as without one."""

    why: Ignored


def sign(stack: str, expires: int, route_key: str, key: bytes) -> str:
    """Return the header's value; `expires` in Unix seconds."""
    return f"{stack};exp={expires};sig={_signature(stack, str(expires), route_key, key)}"


def verify(
    value: str, route_key: str, key: bytes, now: float
) -> Literal["legacy", "graph"] | NotForced:
    """Return the stack that a valid header asks for; `now` in Unix seconds. Never raises."""
    if not key:
        return NotForced("no_key")
    found = _SHAPE.fullmatch(value.strip())
    if found is None:
        return NotForced("malformed")
    wanted = _signature(found["stack"], found["exp"], route_key, key)
    if not hmac.compare_digest(wanted, found["sig"]):
        return NotForced("bad_signature")
    if int(found["exp"]) <= now:
        return NotForced("expired")
    return "graph" if found["stack"] == "graph" else "legacy"


def _signature(stack: str, expires: str, route_key: str, key: bytes) -> str:
    content = f"{stack}|{expires}|{route_key}".encode("utf-8", "surrogatepass")
    return hmac.new(key, content, "sha256").hexdigest()
