"""What requests meet: who takes them, how many, and what spares a stack."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from router.flags.values import KINDS
from router.sections.section import MIB, Bytes, Count, Most, Price, Seconds, Section


class Rollout(Section, frozen=True):
    """`[rollout]`: the salt is equal across a fleet; changing it reshuffles everyone.

    `pin_seconds` is how long a conversation keeps its stack after its last turn.
    """

    salt: str = "cutover"
    pin_seconds: Annotated[float, Meta(gt=0, le=31_536_000)] = 2_592_000.0


class Server(Section, frozen=True):
    """`[server]`: where requests come in, and how many processes take them.

    `qa_key_env` names the key of the QA header. `trusted_proxies` are addresses, or networks, whose
    `x-forwarded-proto` and `-host` are passed on to stacks behind an address.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8_080
    workers: Annotated[int, Meta(ge=1, le=256)] = 1
    max_body_bytes: Bytes = MIB
    drain_seconds: Seconds = 20.0
    qa_key_env: str = ""
    trusted_proxies: tuple[str, ...] = ("127.0.0.1", "::1")


class Limits(Section, frozen=True):
    """`[limits]`: how many streams may be open, how long things may take, what a tape may hold."""

    streams: Most = 4_096
    legacy_streams: Most = 3_072
    graph_streams: Most = 3_072
    loop_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 1.0
    stall_seconds: Seconds = 10.0
    exchange_bytes: Bytes = 4 * MIB
    total_bytes: Bytes = 256 * MIB
    body_bytes: Bytes = 256 * MIB
    body_seconds: Seconds = 30.0
    unsent_bytes: Bytes = MIB // 4
    send_seconds: Seconds = 60.0
    tool_seconds: Seconds = 30.0
    tool_characters: Count = 65_536
    write_seconds: Seconds = 35.0


class Rate(Section, frozen=True):
    """`[rate]`: how often one user, or one route key, may ask; 0 is no limit."""

    per_minute: Annotated[float, Meta(ge=0)] = 0.0
    burst: Count = 10
    by: Literal["user", "route_key"] = "user"
    keys: Count = 100_000


class BreakerRules(Section, frozen=True):
    """`[breaker]`: when a stack's flow is spared, for how long, and how it comes back."""

    enabled: bool = True
    failure_ratio: Annotated[float, Meta(gt=0, le=1)] = 0.5
    least_requests: Count = 20
    window_seconds: Seconds = 30.0
    open_seconds: Seconds = 15.0
    probes: Count = 3


class Shadow(Section, frozen=True):
    """`[shadow]`: how the candidate runs beside, and what it may spend; 0 is no limit.

    `streams` may run at once where stacks are behind addresses; in this process it is one or, in
    mode `live`, as many as may ask their model at once. `history` says whose earlier replies a
    shadow in this process is told: those that were `served`, or its `own`.
    """

    mode: Literal["replay", "tail", "live"] = "replay"
    history: Literal["served", "own"] = "served"
    queue: Count = 256
    streams: Count = 256
    seconds: Seconds = 60.0
    model_calls: Count = 4
    tokens_per_day: Most = 0
    cost_per_day: Price = 0.0


class Flags(Section, frozen=True):
    """`[flags]`: where switches and shares come from beside the file; "" is the file alone.

    `provider` is `file` or `package.module:factory`, called with `options`. `user` and `tenant`
    say where a request names them: `header:NAME`, `body:FIELD`.
    """

    provider: str = ""
    ask: tuple[str, ...] = tuple(KINDS)
    user: str = "body:user_id"
    tenant: str = ""
    options: dict[str, Any] = field(default_factory=dict)


class Admin(Section, frozen=True):
    """`[admin]`: the operations API; `token_env` names the variable with who may use it."""

    token_env: str = ""
    anywhere: bool = False
    audit_path: str = "var/audit.jsonl"
