"""What is kept and told of exchanges."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from msgspec import field

from router.sections.section import MIB, Bytes, Count, Most, Seconds, Section


class Redact(Section, frozen=True):
    """`[captures.redact]`: what is replaced before anything is stored.

    `paths` are dotted, `*` stands for one step; `patterns` are regular expressions by name, which
    come on top of the built-in ones; one with a built-in's name takes its place, "" removes it.
    """

    paths: tuple[str, ...] = (
        "request.body.user_name",
        "tape.conversations.*.args.turn.user_name",
        "tape.conversations.*.items.*.turn.user_name",
        "tape.conversations.*.items.*.turns.*.user_name",
    )
    patterns: dict[str, str] = field(default_factory=dict)


class Captures(Section, frozen=True):
    """`[captures]`: where exchanges are written down, how many, how much they take and how long.

    `pseudonym_key_env` names the key of the pseudonyms; without one they hold for one process.
    """

    path: str = "captures"
    percent: Decimal = Decimal("100.000")
    batch: Count = 64
    queue: Count = 16_384
    flush_seconds: Seconds = 1.0
    segment_bytes: Bytes = 64 * MIB
    disk_bytes: Bytes = 4_096 * MIB
    keep_days: Most = 0
    pseudonym_key_env: str = ""
    redact: Redact = Redact()


class Metrics(Section, frozen=True):
    """`[metrics]`: whether `/metrics` is kept and served for Prometheus."""

    enabled: bool = False


class Log(Section, frozen=True):
    """`[log]`: lines for people, or a JSON object each, with one for every exchange."""

    format: Literal["text", "json"] = "text"


class Tracing(Section, frozen=True):
    """`[tracing]`: where traces go, and how many; `endpoint_env` names the variable with the URL.

    `percent` is the share of exchanges of callers who do not say whether they are traced.
    """

    endpoint_env: str = ""
    percent: Decimal = Decimal("10.000")
