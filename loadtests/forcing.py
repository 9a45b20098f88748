"""Asking a router for one stack: its signed QA header, one signature for every request.

x-cutover-qa: graph;exp=1790000000;sig=<hex of HMAC-SHA256 over "graph|1790000000|route key">
"""

from __future__ import annotations

import hmac

HEADER = "x-cutover-qa"
VALID_SECONDS = 300


def qa_header(stack: str, route_key: str, key: str, now: float) -> tuple[str, str]:
    """Sign a wish for the next five minutes; `now` in Unix seconds."""
    expires = int(now) + VALID_SECONDS
    content = f"{stack}|{expires}|{route_key}".encode("utf-8", "surrogatepass")
    signature = hmac.new(key.encode(), content, "sha256").hexdigest()
    return HEADER, f"{stack};exp={expires};sig={signature}"
