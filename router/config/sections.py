"""What a section of the configuration is, and what bounds its values have."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from router.config.flow_settings import FLAG_KINDS

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Bytes = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=1)]
Most = Annotated[int, Meta(ge=0)]
"""A limit; 0 is none."""
Price = Annotated[float, Meta(ge=0)]

MIB = 1_048_576


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A section of the file; a misspelt key is refused."""


class ProviderSettings(Section, frozen=True):
    """`[providers.<name>]`: an OpenAI-compatible endpoint and its time limits."""

    base_url: str
    key_env: str = ""
    connect_seconds: Seconds = 5.0
    first_byte_seconds: Seconds = 30.0
    first_token_seconds: Seconds = 60.0
    idle_seconds: Seconds = 30.0
    total_seconds: Seconds = 600.0


class ModelSettings(Section, frozen=True):
    """`[models.<id>]`: who serves a model id; prices per million tokens."""

    provider: str
    model: str = ""
    context_tokens: Count = 128_000
    max_output_tokens: Count = 16_384
    input_price: Price | None = None
    output_price: Price | None = None
    fallbacks: tuple[str, ...] = ()

    @property
    def priced(self) -> bool:
        """Whether what it costs is known: it takes both prices."""
        return self.input_price is not None and self.output_price is not None


class RescueSettings(Section, frozen=True):
    """`[rescue]`: how far the model port goes when a provider fails (docs/rescue.md).

    Each model is asked `attempts` times at most for one answer; waits grow from
    `first_wait_seconds`, and a provider that asks for more than `longest_wait_seconds` is not
    waited for. A breaker opens when `breaker_ratio` of at least `breaker_calls` calls of the last
    `breaker_window_seconds` have failed, and lets a probe through `breaker_rest_seconds` later.
    """

    attempts: Annotated[int, Meta(ge=1, le=10)] = 3
    first_wait_seconds: Seconds = 0.5
    longest_wait_seconds: Seconds = 10.0
    breaker_window_seconds: Seconds = 30.0
    breaker_calls: Count = 10
    breaker_ratio: Annotated[float, Meta(gt=0, le=1)] = 0.5
    breaker_rest_seconds: Seconds = 10.0


class EmbeddingSettings(Section, frozen=True):
    """`[embeddings]`: what makes the vectors of the memory; without it full text is searched.

    `local` is the model of the extra `local-embeddings`; else `base_url`, `model`, `key_env` and
    `dimensions` name an OpenAI-compatible endpoint. `shortened` asks it for that many dimensions.
    Entries less like a query than `least_similarity` are not told.
    """

    local: bool = False
    base_url: str = ""
    model: str = ""
    key_env: str = ""
    dimensions: Annotated[int, Meta(ge=0, le=16_000)] = 0
    shortened: bool = False
    total_seconds: Seconds = 5.0
    least_similarity: Annotated[float, Meta(ge=0, lt=1)] = 0.0


class PromptSettings(Section, frozen=True):
    """`[prompts]`: the Jinja2 environment of prompts that are to be converted (docs/prompts.md).

    The router has no use for it. What is named `package.module:name` is imported by
    `cutover prompts`; the settings from `block_start_string` on are those of `jinja2.Environment`.
    """

    environment: str = ""
    files: tuple[str, ...] = ("**/*.j2", "**/*.jinja", "**/*.jinja2")
    partials: tuple[str, ...] = ("**/_*",)
    search: tuple[str, ...] = ()
    encoding: str = "utf-8"
    suffix: str = ".md"
    block_start_string: str = "{%"
    block_end_string: str = "%}"
    variable_start_string: str = "{{"
    variable_end_string: str = "}}"
    comment_start_string: str = "{#"
    comment_end_string: str = "#}"
    line_statement_prefix: str = ""
    line_comment_prefix: str = ""
    trim_blocks: bool = False
    lstrip_blocks: bool = False
    newline_sequence: Literal["\n", "\r\n", "\r"] = "\n"
    keep_trailing_newline: bool = False
    undefined: str = "default"
    autoescape: bool | str | tuple[str, ...] = False
    finalize: str = ""
    extensions: tuple[str, ...] = ()
    filters: dict[str, str] = field(default_factory=dict)
    tests: dict[str, str] = field(default_factory=dict)
    globals: dict[str, str] = field(default_factory=dict)


class RedactionSettings(Section, frozen=True):
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


class CaptureSettings(Section, frozen=True):
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
    redact: RedactionSettings = RedactionSettings()


class MetricsSettings(Section, frozen=True):
    """`[metrics]`: whether `/metrics` is kept and served for Prometheus."""

    enabled: bool = False


class LogSettings(Section, frozen=True):
    """`[log]`: lines for people, or a JSON object each, with one for every exchange."""

    format: Literal["text", "json"] = "text"


class TracingSettings(Section, frozen=True):
    """`[tracing]`: where traces go, and how many; `endpoint_env` names the variable with the URL.

    `percent` is the share of exchanges of callers who do not say whether they are traced.
    """

    endpoint_env: str = ""
    percent: Decimal = Decimal("10.000")


_URLS = ("http://", "https://")
_MediaType = Annotated[str, Meta(pattern=r"^[a-z0-9._+-]+/[a-z0-9._+-]+\Z")]
"""In lower case and without parameters, as those of answers are when they are held against it."""


class RemoteStackSettings(Section, frozen=True):
    """`[stacks.<name>]`: a stack behind an address, its time limits and what may be done with it.

    `first_event_seconds` counts from the request, `idle_seconds` is the longest silence from then
    on (a comment is none), `total_seconds` is the whole stream. `paths` has those of flows that are
    not asked at their own. `flows` are those it has, all where none is named. `resumable`: asked
    again with the answers its model gave through the gateway, it gives the same text. `media_types`
    are what else its streams call themselves, though they are none of those.
    """

    url: str
    paths: dict[str, str] = field(default_factory=dict)
    flows: frozenset[str] = frozenset()
    shadow_safe: bool = False
    resumable: bool = False
    media_types: frozenset[_MediaType] = frozenset()
    connect_seconds: Seconds = 2.0
    first_event_seconds: Seconds = 30.0
    idle_seconds: Seconds = 30.0
    total_seconds: Seconds = 600.0

    def serves(self, flow: str) -> bool:
        """Whether it has a flow."""
        return not self.flows or flow in self.flows


class StackSettings(Section, frozen=True):
    """`[stacks]`: where a stack's flows are: `package:NAME` or an address; "" is the built-in."""

    legacy: str | RemoteStackSettings = ""
    graph: str | RemoteStackSettings = ""

    def place(self, name: Literal["legacy", "graph"]) -> str | RemoteStackSettings:
        """Give where a stack is, an address as such also where nothing but a URL is said."""
        said: str | RemoteStackSettings = getattr(self, name)
        if isinstance(said, str) and said.startswith(_URLS):
            return RemoteStackSettings(url=said)
        return said


class GatewaySettings(Section, frozen=True):
    """`[gateway]`: models for stacks elsewhere, as OpenAI's API (docs/gateway.md).

    `key_env` names the key callers must show; it is required where others can reach the router.
    """

    enabled: bool = False
    key_env: str = ""
    max_body_bytes: Bytes = 16 * MIB


class StoreSettings(Section, frozen=True):
    """`[stores]`: addresses, or `env:NAME` for one with a password in it.

    `auto` is `process` for one worker, and the SQLite file of the other stores for several;
    `board`, for breakers and the shadow's budget, is where `locks` are.
    """

    conversations: str = "sqlite:///var/cutover.sqlite"
    memory: str = "sqlite:///var/cutover.sqlite"
    pauses: str = "sqlite:///var/cutover.sqlite"
    locks: str = "auto"
    pins: str = "auto"
    board: str = "auto"
    history: str = "sqlite:///var/cutover.sqlite"
    checkpoints: str = "auto"


class PauseSettings(Section, frozen=True):
    """`[pauses]`: how long a question waits, and the keys of what is stored meanwhile.

    `key_env` names the variable with keys (32 bytes each, base64, separated by commas): the first
    seals, all open. `strict` refuses what was stored without one.
    """

    key_env: str = ""
    strict: bool = False
    keep_seconds: Annotated[float, Meta(gt=0, le=31_536_000)] = 86_400.0


class McpServerSettings(Section, frozen=True):
    """`[tools.mcp.<name>]`: a program that is started, or a URL (docs/tools.md).

    `env` names the variables the program is given, `token_env` the one with the token a URL is
    shown. `allow` (empty: all), `deny` and `read_only` hold the server's own names of its tools.
    """

    command: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    url: str = ""
    token_env: str = ""
    timeout_seconds: Seconds = 10.0
    connect_seconds: Seconds = 30.0
    prefix: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    read_only: bool | tuple[str, ...] | Literal["hints"] = "hints"


class ToolSettings(Section, frozen=True):
    """`[tools]`: where tools come from beside those built in."""

    mcp: dict[str, McpServerSettings] = field(default_factory=dict)


class RolloutSettings(Section, frozen=True):
    """`[rollout]`: the salt is equal across a fleet; changing it reshuffles everyone.

    `pin_seconds` is how long a conversation keeps its stack after its last turn.
    """

    salt: str = "cutover"
    pin_seconds: Annotated[float, Meta(gt=0, le=31_536_000)] = 2_592_000.0


class ServerSettings(Section, frozen=True):
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


class LimitSettings(Section, frozen=True):
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


class RateSettings(Section, frozen=True):
    """`[rate]`: how often one user, or one route key, may ask; 0 is no limit."""

    per_minute: Annotated[float, Meta(ge=0)] = 0.0
    burst: Count = 10
    by: Literal["user", "route_key"] = "user"
    keys: Count = 100_000


class BreakerSettings(Section, frozen=True):
    """`[breaker]`: when a stack's flow is spared, for how long, and how it comes back."""

    enabled: bool = True
    failure_ratio: Annotated[float, Meta(gt=0, le=1)] = 0.5
    least_requests: Count = 20
    window_seconds: Seconds = 30.0
    open_seconds: Seconds = 15.0
    probes: Count = 3


class ShadowSettings(Section, frozen=True):
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


class FlagSettings(Section, frozen=True):
    """`[flags]`: where switches and shares come from beside the file; "" is the file alone.

    `provider` is `file` or `package.module:factory`, called with `options`. `user` and `tenant`
    say where a request names them: `header:NAME`, `body:FIELD`.
    """

    provider: str = ""
    ask: tuple[str, ...] = tuple(FLAG_KINDS)
    user: str = "body:user_id"
    tenant: str = ""
    options: dict[str, Any] = field(default_factory=dict)


class AdminSettings(Section, frozen=True):
    """`[admin]`: the operations API; `token_env` names the variable with who may use it."""

    token_env: str = ""
    anywhere: bool = False
    audit_path: str = "var/audit.jsonl"
