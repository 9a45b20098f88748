"""Outcomes: what became of each exchange for its client, by the stack it was assigned to.

Assigned, not served: a stack answers for the requests that were rolled to it, whoever saved them
(intention to treat). Live and offline the same functions count.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from contract.records import Outcome


class ExchangeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange as its client had it; its shadow is no part of it.

    `began` is in microseconds since the epoch; other times are microseconds since the exchange
    began: the first frame, the first text, the last frame. `longest_gap` is the longest wait
    between two frames, in microseconds. `end` is how the last run that served it ended, `code` the
    code of its failure or refusal. `lost` is what a fallback cost, in microseconds. `conversation`
    is what it belongs to, "" where its request names none. `cost` is None where a price is unknown.
    `reason`, `bucket` and `config` are those of its record: what decided the assignment or, after a
    failure, why another stack served; where its key lies among 100 000 buckets, -1 where that is
    unknown; the version of the settings.
    """

    exchange: str
    flow: str
    assigned: str
    served: str
    began: int
    end: Outcome
    reason: str = ""
    bucket: int = -1
    config: str = ""
    code: str = ""
    conversation: str = ""
    fallback: Literal["", "breaker", "fallback", "takeover"] = ""
    lost: int = 0
    client_left: bool = False
    first_frame: int | None = None
    first_text: int | None = None
    longest_gap: int | None = None
    last_frame: int | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    tool_calls: int = 0
    tool_failures: int = 0
    feedback: Literal[-1, 0, 1] | None = None
