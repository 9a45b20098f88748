"""The schema of `cutover.toml`: every key with its type, bounds, default and meaning.

docs/configuration.md is generated from it (`python -m router.config.reference`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from contract.flows.declared import DeclaredFlow
from contract.operations import WORKERS_RUN, WriteLimits
from router.config.addresses import (
    AUTO,
    Advertised,
    AuditStore,
    BodyField,
    Broker,
    CheckpointStore,
    Coordination,
    Endpoint,
    Engine,
    ExampleBody,
    FlowPath,
    Folder,
    HistoryStore,
    Host,
    Listener,
    LoopbackUrl,
    Network,
    OptionalEndpoint,
    OptionalUrl,
    PauseStore,
    RequestAttribute,
    Store,
    Url,
    UrlPath,
    Variable,
    matching,
    read_listener,
)
from router.config.patterns import Patterns, compile_patterns, pattern_expression, pattern_name
from router.stack import StackName

Stage = Literal["off", "shadow", "ramp", "full", "retired"]
Sticky = Literal["auto", "none", "conversation"]
FlagKind = Literal["switch", "percent", "keys"]

FLAG_KINDS: Mapping[str, FlagKind] = {
    "enable_langgraph": "switch",
    "langgraph_percent": "percent",
    "shadow_percent": "percent",
    "langgraph_fallback": "switch",
    "fallback_to_graph": "switch",
    "force_graph": "keys",
    "force_legacy": "keys",
}
"""The flags of a flow; a flag source knows them as `chat.langgraph_percent`."""

UNKNOWN_KEY: Final = "unknown_key"
"""The type of pydantic's error for a key that is not in the schema."""
MIB = 1_048_576
WORKER_MARGIN: Final = 60.0
"""Seconds an action has beyond a limit: to end what it runs, to go back, to clean up."""
STEP = Decimal("0.001")
_ALL = 100
_URL = ("http://", "https://")
_YEAR_SECONDS = 31_536_000

_STAGES: tuple[tuple[Stage, bool | None, str | None, bool | None, bool | None], ...] = (
    # stage, enabled, share of keys on graph, mirrored, legacy takes over (None: either way)
    ("off", False, None, None, None),
    ("off", True, "none", False, None),
    ("shadow", True, "none", True, None),
    ("ramp", True, "some", None, None),
    ("retired", True, "all", False, False),
    ("full", True, "all", None, None),
)


def percentage(value: object) -> Decimal:
    """Return a percentage with three places; raises `ValueError` on finer ones and beyond 100."""
    exact = Decimal(str(value)) if type(value) in {int, float, Decimal} else None
    if exact is None:
        message = "must be a number"
        raise ValueError(message)
    if not exact.is_finite():
        message = "must be a finite number"
        raise ValueError(message)
    if not 0 <= exact <= _ALL:
        message = "allowed: 0 to 100"
        raise ValueError(message)
    if (rounded := exact.quantize(STEP)) != exact:
        message = f"allowed: steps of {STEP}"
        raise ValueError(message)
    return rounded


_Number = BeforeValidator(lambda value: float(value) if isinstance(value, Decimal) else value)
"""TOML fractions are read as `Decimal`, for percentages."""

Origin = Annotated[
    str,
    matching(r"\*|https?://[^/\s]+", "must be as https://chat.example.org, without a path, or *"),
]
"""Of a page, as browsers send it: `https://chat.example.org`; `*` is any."""
Seconds = Annotated[float, _Number, Field(gt=0, le=86_400)]
LongSeconds = Annotated[float, _Number, Field(gt=0, le=_YEAR_SECONDS)]
Ratio = Annotated[float, _Number, Field(gt=0, le=1)]
Price = Annotated[float, _Number, Field(ge=0)]
Margin = Annotated[float, _Number, Field(gt=0)]
Percent = Annotated[Decimal, BeforeValidator(percentage)]
Positive = Annotated[int, Field(ge=1)]
ObjectBytes = Annotated[int, Field(ge=1, le=64 * MIB)]
"""Few enough for one request."""
ObjectSeconds = Annotated[float, _Number, Field(gt=0, le=3_600)]
"""Erasure takes an exchange that began longer ago for written."""
Limit = Annotated[int, Field(ge=0)]
"""0 is no limit."""
Texts = Annotated[tuple[str, ...], Strict(strict=False)]
Names = Annotated[frozenset[str], Strict(strict=False)]
Table = dict[str, str]
_CapturePath = Annotated[
    str,
    matching(
        r"(?:request|tape|frames)(?:\.[^.]+)*",
        "allowed: dotted paths that begin with request, tape or frames",
    ),
]
_PatternName = Annotated[str, AfterValidator(pattern_name)]
_PatternText = Annotated[
    str, AfterValidator(lambda text: text and pattern_expression(text).pattern)
]
_ServerName = Annotated[
    str,
    matching(
        r"(?=.{1,30}$)[a-zA-Z0-9-]+(_[a-zA-Z0-9-]+)*",
        "a name has up to 30 letters, digits, '-', and single '_' between them",
    ),
]
_Module = Annotated[
    str,
    matching(r"[^\W\d]\w*(\.[^\W\d]\w*)*", "must be the name of a module, such as app.tools"),
]
_MediaType = Annotated[
    str, matching(r"[a-z0-9._+-]+/[a-z0-9._+-]+", "must be as text/html, in lower case")
]


def _key(description: str, default: Any = ..., **more: Any) -> Any:
    """Declare a key; the description stands beside it in docs/configuration.md."""
    return Field(default, description=description, **more)


class Section(BaseModel):
    """A table of the file; frozen, and an unknown key is refused."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, table: Any, info: ValidationInfo) -> Any:
        """Raise on an unknown key; the validation's context names fields that no file has."""
        known = sorted(cls.model_fields.keys() - (info.context or ()))
        for key in table if isinstance(table, dict) else ():
            if key not in known:
                facts = {"key": key, "known": known}
                raise PydanticCustomError(UNKNOWN_KEY, "unknown key", facts)
        return table


class RolloutSettings(Section):
    """Salt of the split, and how long conversations keep their stack."""

    salt: str = _key("equal across a fleet; changing it reshuffles everyone", "cutover")
    pin_seconds: LongSeconds = _key(
        "how long a conversation keeps its stack after its last turn", 2_592_000.0
    )


class GateMargins(Section):
    """How much worse graph may be and be promoted: of shares in points, of all else as a share."""

    failures: Margin = _key("requests that failed or that another stack had to serve", 0.005)
    errors: Margin = _key("requests whose client got an error", 0.005)
    truncated: Margin = _key("streams that broke off", 0.005)
    fallbacks: Margin = _key("requests that another stack took over", 0.005)
    refusals: Margin = _key("refused requests", 0.01)
    client_left: Margin = _key("clients that left before the end", 0.02)
    no_text: Margin = _key("completed requests whose answer has no text", 0.005)
    tool_failures: Margin = _key("requests with a failed tool call, of those with any", 0.02)
    feedback: Margin = _key("bad ratings, of all ratings", 0.05)
    ttfe_p50: Margin = _key("time to first event", 0.1)
    ttfe_p95: Margin = 0.1
    ttft_p50: Margin = _key("time to first text", 0.1)
    ttft_p95: Margin = 0.1
    e2e_p50: Margin = _key("time to the end", 0.1)
    e2e_p95: Margin = 0.1
    gap_p95: Margin = _key("longest gap between two frames", 0.25)
    tokens: Margin = _key("mean tokens of a request", 0.1)
    cost: Margin = _key("mean cost of a request", 0.1)


GateMeasureName = Literal[
    "failures",
    "errors",
    "truncated",
    "fallbacks",
    "refusals",
    "client_left",
    "no_text",
    "tool_failures",
    "feedback",
    "ttfe_p50",
    "ttfe_p95",
    "ttft_p50",
    "ttft_p95",
    "e2e_p50",
    "e2e_p95",
    "gap_p95",
    "tokens",
    "cost",
]


class GateSettings(Section):
    """What a promotion needs; the same keys in `[flows.chat.gate]` go before. See gate.md."""

    requests: Positive = _key("fewest of each stack for a critical check", 500)
    pairs: Limit = _key("fewest pairs of runs compared, where shadows run", 100)
    losses: Ratio = _key("share of those pairs that may be missing, dropped or unreadable", 0.05)
    critical: Annotated[tuple[GateMeasureName | Literal["quality"], ...], Strict(strict=False)] = (
        _key(
            "margins that must be shown to hold; these alone roll back",
            ("failures", "ttft_p95", "e2e_p95"),
        )
    )
    objectives: dict[GateMeasureName, Margin] = _key(
        "limits of graph's own figures by the names of margins: shares, seconds, tokens, money", {}
    )
    quality: Ratio = _key(
        "how far below one half graph's share of judged preferences may be; see judge.md", 0.05
    )
    load_seconds: LongSeconds = _key("how old load runs may be", 604_800.0)
    selftest: bool = _key("test the comparison itself first, some 3 s", default=True)
    margins: GateMargins = GateMargins()

    def over(self, base: GateSettings) -> GateSettings:
        """Return `base` with what is set here in its place, margin by margin."""
        found = {key: getattr(self, key) for key in self.model_fields_set}
        changed = {key: getattr(self.margins, key) for key in self.margins.model_fields_set}
        found["margins"] = base.margins.model_copy(update=changed)
        return base.model_copy(update=found)


class FlowSettings(Section):
    """Who serves a flow; percentages in steps of 0.001."""

    enable_langgraph: bool = _key(
        "false: everything to legacy at once; graph does not run at all", default=False
    )
    langgraph_percent: Percent = _key(
        "share of route keys assigned to graph, steps of 0.001", Decimal("0.000")
    )
    langgraph_fallback: bool = _key("legacy takes over when graph fails", default=True)
    fallback_to_graph: bool = _key("the other direction", default=False)
    shadow_percent: Percent = _key(
        "share of requests mirrored to the stack that does not serve", Decimal("0.000")
    )
    max_streams: Limit = _key("open at once; 0: no limit but those of [limits]", 0)
    when_open: Literal["try", "refuse"] = _key(
        'with an open breaker and no fallback: "refuse" answers 503', "try"
    )
    route_key: str = _key("what the split hashes; the flow's first if left out", "")
    sticky: Sticky = _key(
        '"conversation": frozen at its first turn; "none"; see rollout.md', "auto"
    )
    history: Literal["shared", "own"] = _key(
        '"own": each stack stores its conversations itself; see conversations.md', "shared"
    )
    force_graph: Names = _key(
        "route keys pinned for QA; a signed header pins one request", frozenset()
    )
    force_legacy: Names = frozenset()
    prompts: str = _key("folder of your prompts, at start; see prompts.md", "")
    gate: GateSettings | None = None
    options: Any = None
    declared: DeclaredFlow | None = None

    @property
    def configured_share(self) -> float:
        """The percentage of graph in force: 0 where it is switched off."""
        return float(self.langgraph_percent) if self.enable_langgraph else 0.0

    @property
    def stage(self) -> Stage:
        """How far the migration of this flow is configured to be."""
        return self.stage_with(())

    def stage_with(self, serving: Iterable[StackName]) -> Stage:
        """Return how far the migration is where these stacks serve, too, whatever the percentage.

        So pins, forced keys and open breakers keep a flow from being `full`, or only `shadow`.
        """
        percent, stacks = self.langgraph_percent, set(serving)
        stacks |= {"graph"} if percent else set()
        stacks |= {"legacy"} if percent < _ALL else set()
        share = "some" if len(stacks) > 1 else "all" if "graph" in stacks else "none"
        facts = (self.enable_langgraph, share, self.shadow_percent > 0, self.langgraph_fallback)
        return next(
            stage
            for stage, *wanted in _STAGES
            if all(want is None or want == fact for want, fact in zip(wanted, facts, strict=True))
        )


class PauseDeclaration(Section):
    """How a declared flow of code in this process goes on that waits for a person's answer."""

    path: FlowPath
    id: BodyField = "id"
    answer: BodyField = "answer"
    frames: Any = ()


class FlowDeclaration(Section):
    """What declares a flow: where it is served, what its stream looks like, and how it pauses."""

    path: FlowPath
    dialect: Any
    graph_dialect: Any = None
    route_keys: dict[str, BodyField] = {}
    example: ExampleBody = ""
    grammar: Any = None
    failure: Any = None
    pause: PauseDeclaration | None = None


class ServerSettings(Section):
    """At start, except max_body_bytes and trusted_proxies."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8_080
    workers: Annotated[int, Field(ge=1, le=256)] = _key(
        "processes on this address; see deployment.md", 1
    )
    max_body_bytes: Positive = MIB
    drain_seconds: Seconds = _key("for open streams when the router stops", 20.0)
    drain_write_seconds: Annotated[float, _Number, Field(ge=0, le=86_400)] = _key(
        "then for writes that have begun, at most; 0: as long as they may take", 0.0
    )
    qa_key_env: Variable = _key("variable with the key of the x-cutover-qa header", "")
    receipt_key_env: Variable = _key(
        "variable with keys of the receipts in exchange ids, separated by commas: the first "
        'signs, all verify; "": see feedback.md',
        "",
    )
    trusted_proxies: Annotated[tuple[Network, ...], Strict(strict=False)] = _key(
        "their x-forwarded-proto and -host go to remote stacks; see remote.md", ("127.0.0.1", "::1")
    )
    cors_origins: Annotated[tuple[Origin, ...], Strict(strict=False)] = _key(
        'whose pages may send requests, with cookies; ["*"]: all, without', ()
    )


def _labelled(operations: object) -> object:
    """Join the names of operations: without quotes TOML reads `workers.run` as table and key."""
    if not isinstance(operations, Mapping):
        return operations
    found: dict[object, object] = {}
    for port, value in operations.items():
        inner = value.items() if isinstance(value, Mapping) else ()
        found |= {f"{port}.{name}": seconds for name, seconds in inner} or {port: value}
    return found


class LimitSettings(Section):
    """Streams, times and memory; of streams 0 is no limit."""

    streams: Limit = _key("open at once in this process, then 503", 4_096)
    legacy_streams: Limit = _key("of them served by legacy", 3_072)
    graph_streams: Limit = 3_072
    loop_seconds: Annotated[float, _Number, Field(ge=0, le=86_400)] = _key(
        "a longer block of the event loop is logged, at start; 0: not watched", 1.0
    )
    stall_seconds: Seconds = _key(
        "a stack that has done nothing for so long, though it could, is stalled", 10.0
    )
    exchange_bytes: Positive = _key(
        "on one tape, and eight times as much in its frames; beyond, an exchange has neither "
        "shadow nor takeover, and its frames are dropped",
        4 * MIB,
    )
    total_bytes: Positive = _key("on all tapes and their frames, at start", 256 * MIB)
    body_bytes: Positive = _key(
        "of all request bodies over 64 KiB held at once, then 503", 256 * MIB
    )
    body_seconds: Seconds = _key("for a client to send a body, then 408", 30.0)
    unsent_bytes: Positive = _key(
        "of one answer not read by its client; beyond, its stack waits", MIB // 4
    )
    send_seconds: Seconds = _key("for a client to take the next piece", 60.0)
    tool_seconds: Seconds = _key("the most any one tool may take, at start", 30.0)
    tool_characters: Positive = _key("of a tool's answer, at start", 65_536)
    write_seconds: Seconds = _key(
        "for a started write or tool in all; more than tool_seconds", 35.0
    )
    tools: dict[str, Seconds] = _key(
        "tool_seconds of single tools, in place of their own limit, at start: build = 300.0", {}
    )
    operations: Annotated[dict[str, Seconds], BeforeValidator(_labelled)] = _key(
        'write_seconds of single operations: "workers.run" = 600.0', {}
    )

    @property
    def writes(self) -> WriteLimits:
        """The deadlines of writes; a tool's own limit leaves its call as much more as any other."""
        more = self.write_seconds - self.tool_seconds
        tools = {name: seconds + more for name, seconds in self.tools.items()}
        return WriteLimits(self.write_seconds, self.operations, tools)


class RateSettings(Section):
    """In each process."""

    per_minute: Price = _key("requests of one user, then 429; 0: no limit", 0.0)
    burst: Positive = _key("and at once", 10)
    by: Literal["user", "route_key"] = _key(
        'or "route_key"; a request without a user counts by message', "user"
    )
    keys: Positive = _key("users remembered", 100_000)


class BreakerSettings(Section):
    """Per flow and stack, shared through [stores] shared_state; an edit closes them."""

    enabled: bool = True
    failure_ratio: Ratio = _key("of the requests in the window, at which it opens", 0.5)
    least_requests: Positive = _key("fewer open nothing", 20)
    window_seconds: Seconds = 30.0
    open_seconds: Seconds = _key("then probes are let through", 15.0)
    probes: Positive = _key("requests that must all succeed", 3)


class AdminSettings(Section):
    """At start."""

    token_env: Variable = _key(
        'variable with tokens for /admin: alice:token,ops:token; "": no /admin', ""
    )
    anywhere: bool = _key("true: also on an address that is not loopback", default=False)
    audit_path: str = _key("who changed what", "var/audit.jsonl")


class ShadowSettings(Section):
    """How the candidate runs beside the serving stack."""

    mode: Literal["replay", "tail", "live"] = _key(
        '"tail": while the serving stack runs; "live": with its own model calls, within a '
        "budget (noise.md)",
        "replay",
    )
    history: Literal["served", "own"] = _key(
        '"own": its own earlier answers; needs mode = "live" (noise.md)', "served"
    )
    rules: str = _key(
        'file of what does not count (rules.md), at start; "": diff.toml, if it is there', ""
    )
    queue: Positive = _key("exchanges that may wait, at start", 256)
    broker: Broker = _key(
        'redis://… or "env:NAME", at start: in mode "replay" shadows run on `cutover '
        'shadow-worker`, see scaling.md; "": in this process',
        "",
    )
    worker_seconds: Seconds = _key("for a worker to tell how an exchange ended", 600.0)
    streams: Positive = _key("remote shadows that may run at once; in process it is one", 256)
    seconds: Seconds = _key("for one shadow", 60.0)
    model_calls: Positive = _key('open at once in mode "live", at start', 4)
    tokens_per_day: Limit = _key(
        "spent by all routers that share [stores] shared_state, by UTC day; 0: no limit", 0
    )
    cost_per_day: Price = _key(
        "the same in the currency of the models' prices, which all of them need", 0.0
    )
    requests_per_day: Limit = _key(
        "the same in shadows at services, and in those that call a model themselves", 0
    )


class RedactionSettings(Section):
    """What is replaced before anything is stored; see privacy.md."""

    paths: Annotated[tuple[_CapturePath, ...], Strict(strict=False)] = _key(
        'dotted; "*" is any one step',
        (
            "request.body.user_name",
            "request.body.interlocutor.name",
            "tape.conversations.*.args.turn.user_name",
            "tape.conversations.*.items.*.turn.user_name",
            "tape.conversations.*.items.*.turns.*.user_name",
        ),
    )
    patterns: dict[_PatternName, _PatternText] = _key(
        'regular expressions by name, beside the built-in ones; "" removes one; one that takes '
        "over 0.5 s of processor time for a text costs the exchange",
        {},
    )


class CaptureSettings(Section):
    """At start."""

    path: Folder = _key("a folder or any fsspec URL", "captures")
    percent: Percent = _key("share of exchanges captured", Decimal("100.000"))
    batch: Positive = _key("exchanges, and later second runs, in one frame", 64)
    queue: Positive = _key(
        "exchanges that may wait for the disk, 64 MiB in all; beyond, dropped", 16_384
    )
    flush_seconds: Seconds = 1.0
    segment_bytes: Positive = _key("of a file on a disk", 64 * MIB)
    object_bytes: ObjectBytes = _key(
        "on an object store, of an object; four times as many are held in memory at most", 16 * MIB
    )
    object_seconds: ObjectSeconds = _key(
        "on an object store, how old an object is when it is put: what a kill may cost", 60.0
    )
    disk_bytes: Positive = _key("on a disk: beyond, the oldest segments go", 4_096 * MIB)
    keep_days: Limit = _key("older segments go; 0: none goes by age", 0)
    pseudonym_key_env: Variable = _key(
        "variable with the key of pseudonyms; without it they last for one process", ""
    )
    redact: RedactionSettings = RedactionSettings()


class MetricsSettings(Section):
    """At start."""

    enabled: bool = _key("serve metrics for Prometheus: GET /metrics", default=False)


class TracingSettings(Section):
    """At start."""

    endpoint_env: Variable = _key(
        "variable with the URL for traces, such as http://collector:4318/v1/traces", ""
    )
    percent: Percent = _key(
        "share of exchanges traced, unless their caller decides", Decimal("10.000")
    )


class LogSettings(Section):
    """At start."""

    format: Literal["text", "json"] = _key(
        '"json": an object per line, and a line for every exchange', "text"
    )


class StoreSettings(Section):
    """At start; "env:NAME" takes the address from a variable."""

    conversations: Store = _key(
        "also memory://, postgresql://…, http(s)://…", "sqlite:///var/cutover.sqlite"
    )
    memory: Store = _key("also memory://, postgresql://…", "sqlite:///var/cutover.sqlite")
    pauses: PauseStore = _key("also memory://, postgresql://…", "sqlite:///var/cutover.sqlite")
    audit: AuditStore = _key(
        "of what workers were told to do; auto: where the pauses are; also sqlite:///…, "
        "postgresql://…, memory://",
        AUTO,
    )
    locks: Coordination = _key(
        '"process", sqlite:///…, redis://…; auto: process for one worker, the SQLite file of '
        "the stores above for several",
        AUTO,
    )
    pins: Coordination = _key(
        'the same, auto: also the SQLite file where a flow has history = "own"', AUTO
    )
    shared_state: Coordination = _key(
        "breakers and the shadow's budget; the same, auto: where the locks are", AUTO
    )
    history: HistoryStore = _key(
        'of changes, see rollout.md; "": none', "sqlite:///var/cutover.sqlite"
    )
    checkpoints: CheckpointStore = _key(
        "threads of the graph stack: beside the conversations, in checkpoints.sqlite or the "
        'same database; also sqlite:///…, postgresql://…, memory://; "": none, as auto where a '
        "service stores the conversations",
        AUTO,
    )


class ConversationSettings(Section):
    """At start; a service that stores conversations, see memory-service.md."""

    token_env: Variable = _key("variable with its bearer token", "")


class PauseSettings(Section):
    """At start; see privacy.md."""

    key_env: Variable = _key(
        "variable with keys that encrypt pauses, 32 bytes each in base64, separated by commas: "
        'the first encrypts, all decrypt; "": not encrypted',
        "",
    )
    strict: bool = _key("true: a pause stored without a key is refused", default=False)
    keep_seconds: LongSeconds = _key("how long a question waits", 86_400.0)


class ExchangeSettings(Section):
    """At start; see operations.md."""

    journal: bool = _key(
        "true: the writes of every exchange are stored beside the pauses before they are made, "
        "and their results, and what follows the end of a stream is finished after a kill",
        default=False,
    )


class ImportSettings(Section):
    """For `cutover import`; see import.md."""

    redact: bool = _key(
        "true: what [captures.redact] finds in imported texts is replaced by pseudonyms; takes "
        "the key of [captures] pseudonym_key_env",
        default=False,
    )


class EmbeddingSettings(Section):
    """At start; the vectors by which the memory searches, see memory.md; none: full text."""

    local: bool = _key("the small model of the extra `local-embeddings`", default=False)
    base_url: OptionalEndpoint = _key(
        "or an OpenAI-compatible endpoint, such as https://api.openai.com/v1", ""
    )
    model: str = _key("its model, required with base_url", "")
    key_env: Variable = _key("variable with the key", "")
    dimensions: Annotated[int, Field(ge=0, le=16_000)] = _key(
        "of that model's vectors, required with base_url", 0
    )
    shortened: bool = _key("true: ask the endpoint for that many dimensions", default=False)
    total_seconds: Seconds = _key(
        "for one request and its retries; then full text is searched", 5.0
    )
    least_similarity: Annotated[float, _Number, Field(ge=0, lt=1)] = _key(
        "entries less like the query (cosine) are left out", 0.0
    )


SHADOW_SAFE: Final = (
    "on a request with x-cutover-role: shadow it sends nothing, charges nothing and changes no "
    "store that another service reads"
)
"""What `shadow_safe` declares of a service."""


class RemoteStackSettings(Section):
    """`[stacks.<name>]`: a stack behind an address, its time limits and what may be done with it.

    `shadow_safe`: as `SHADOW_SAFE` says.
    `resumable`: called again with the answers its model gave through the gateway, it sends the same
    text.
    """

    url: Url
    paths: dict[str, UrlPath] = _key("of flows with a path of their own there", {})
    flows: Names = _key("flows it has; empty: all", frozenset())
    shadow_safe: bool = False
    resumable: bool = False
    media_types: Annotated[frozenset[_MediaType], Strict(strict=False)] = _key(
        "further media types of its streams, in lower case", frozenset()
    )
    connect_seconds: Seconds = 2.0
    first_event_seconds: Seconds = _key("from the request on", 30.0)
    idle_seconds: Seconds = _key("the longest silence; a comment ends it", 30.0)
    total_seconds: Seconds = _key("for the whole stream", 600.0)

    def serves(self, flow: str) -> bool:
        """Whether it has a flow."""
        return not self.flows or flow in self.flows


Place = Annotated[
    str | RemoteStackSettings,
    BeforeValidator(
        lambda place: {"url": place} if isinstance(place, str) and place.startswith(_URL) else place
    ),
]
"""`package:NAME`, "" for the built-in stack, or where a remote one is."""


class StackSettings(Section):
    """At start: a team's own stack, package:NAME, also of the current folder; "" is built in."""

    legacy: Place = _key("or an address: see remote.md", "")
    graph: Place = ""

    def place(self, name: StackName) -> str | RemoteStackSettings:
        """Return where a stack is."""
        return self.legacy if name == "legacy" else self.graph


class FlagSettings(Section):
    """At start; see rollout.md."""

    provider: str = _key('"" is this file; "file": through the SDK; "package.module:factory"', "")
    ask: Texts = tuple(FLAG_KINDS)
    user: RequestAttribute = _key(
        'where requests name the user for providers: "header:NAME", "body:FIELD"', "body:user_id"
    )
    tenant: RequestAttribute = ""
    options: dict[str, Any] = _key(
        'arguments of the factory; "env:NAME" takes a value from a variable', {}
    )


def _rising(steps: tuple[Decimal, ...]) -> tuple[Decimal, ...]:
    if not steps or steps[0] == 0 or list(steps) != sorted(set(steps)):
        message = "must be percentages above 0, each larger than the one before"
        raise ValueError(message)
    return steps


class RampSettings(Section):
    """For `cutover ramp` alone: see ramp.md."""

    steps: Annotated[tuple[Percent, ...], Strict(strict=False), AfterValidator(_rising)] = _key(
        "percentages, one after another",
        tuple(Decimal(step).quantize(STEP) for step in (1, 5, 25, 50, 100)),
    )
    hold_seconds: LongSeconds = _key("how long each step is in force at least", 3_600.0)
    passes: Positive = _key("consecutive looks at which the gate says promote, for each step", 3)
    interval_seconds: Seconds = _key("between two looks", 60.0)
    before: Texts = _key(
        "command before each promotion, as a list; where it fails none is made", ()
    )
    after: Texts = _key("command after each promotion and after a rollback", ())
    hook_seconds: Seconds = _key("either may take", 60.0)
    state: str = _key("folder of the state, a file for each flow", "var/ramp")
    writer: str = _key(
        'of the flags: "file" is this one; "package.module:factory", as '
        '"cutover.ramp.services:FlagdFile"',
        "file",
    )
    options: dict[str, Any] = _key(
        'arguments of the factory beside the flow; "env:NAME" takes a value from a variable', {}
    )


class ProviderSettings(Section):
    """An OpenAI-compatible endpoint; without any, OPENAI_API_KEY and OPENAI_BASE_URL make one."""

    base_url: Endpoint = _key("", examples=["https://api.openai.com/v1"])
    key_env: Variable = _key("the variable's name, never the key", "", examples=["OPENAI_API_KEY"])
    connect_seconds: Seconds = 5.0
    first_byte_seconds: Seconds | None = _key(
        "until the response's headers; if left out as first_token_seconds", None, examples=[30.0]
    )
    first_token_seconds: Seconds | None = _key(
        "if left out 20 where a fallback stands ready, otherwise 120", None, examples=[60.0]
    )
    idle_seconds: Seconds = 30.0
    total_seconds: Seconds = 600.0


class ModelSettings(Section):
    """The id requests name; prices per million tokens."""

    provider: str = _key("", examples=["openai"])
    model: str = _key("its name there; the id if left out", "", examples=["gpt-4.1"])
    context_tokens: Positive | None = _key(
        "if left out a context-length error moves on to any fallback", None, examples=[128_000]
    )
    max_output_tokens: Positive = 16_384
    input_price: Price | None = _key("for the record's cost; none by default", None, examples=[2.0])
    output_price: Price | None = _key("", None, examples=[8.0])
    fallbacks: Texts = _key("model ids to try when this one fails, best first", ())
    first_token_seconds: Seconds | None = _key(
        "the limit of this model, on headers, too; its provider's if left out",
        None,
        examples=[60.0],
    )

    @property
    def priced(self) -> bool:
        """Whether its cost is known: that takes both prices."""
        return self.input_price is not None and self.output_price is not None


class RescueSettings(Section):
    """What happens when a provider fails: docs/rescue.md."""

    attempts: Annotated[int, Field(ge=1, le=10)] = _key(
        "calls of each model for one answer, at most", 3
    )
    first_wait_seconds: Seconds = _key(
        "waits are drawn from half of this to the whole, doubled each time", 0.5
    )
    longest_wait_seconds: Seconds = _key("a provider that demands a longer one is given up", 10.0)
    hedge_seconds: Annotated[float, _Number, Field(ge=0, le=86_400)] = _key(
        "call a ready fallback, too, after this long without output; both are billed; 0: never",
        0.0,
    )
    breaker_window_seconds: Seconds = 30.0
    breaker_calls: Positive = _key("fewer calls in the window open no breaker", 10)
    breaker_ratio: Ratio = _key("share of them that failed", 0.5)
    breaker_rest_seconds: Seconds = _key("until an open breaker lets a probe through", 10.0)


class GatewaySettings(Section):
    """At start; models for remote stacks: docs/gateway.md."""

    enabled: bool = False
    listen: Listener = _key(
        'its own host and port; "users": those of [server], where users reach it, too',
        "127.0.0.1:8081",
    )
    key_env: Variable = _key(
        "variable with the key callers show; required unless it listens on loopback", ""
    )
    advertise: Advertised = _key(
        'host:port at which other routers reach it, or "env:NAME"; needs [stores] shared_state in '
        "Redis; see gateway.md",
        "",
    )
    max_body_bytes: Positive = 16 * MIB
    effects: bool = _key(
        "also take the effects that stacks perform themselves; needs key_env; see effects.md",
        default=False,
    )
    tool_servers: Texts = _key(
        "servers of [tools.mcp] that stacks reach below /mcp/; needs key_env; see mcp.md", ()
    )
    normalise: bool = _key(
        "calls that differ by what client libraries do to them are one call; see gateway.md",
        default=True,
    )

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of its own listener; None where it is not enabled, or is on the users'."""
        return read_listener(self.listen) if self.enabled else None


class McpServerSettings(Section):
    """At start, as all of [tools]: docs/tools.md."""

    command: Texts = _key("the program and its arguments; or", (), examples=[["mcp-files", "/srv"]])
    url: OptionalUrl = _key("where it listens, for streamable HTTP", "")
    env: Annotated[tuple[Variable, ...], Strict(strict=False)] = _key(
        "variables the program receives, by name", ()
    )
    token_env: Variable = _key("variable with the bearer token for a url", "")
    timeout_seconds: Seconds = _key("for one call; tool_seconds is the most", 10.0)
    connect_seconds: Seconds = _key("to start, and to list its tools", 30.0)
    prefix: (
        Annotated[
            str, matching(r"[a-zA-Z0-9_-]{0,32}", "allowed: up to 32 letters, digits, '_' and '-'")
        ]
        | None
    ) = _key(
        'before the names of its tools; its own name and "__" if left out',
        None,
        examples=["files__"],
    )
    allow: Texts = _key("its tools that are offered, by its own names; empty: all", ())
    deny: Texts = _key("those that are not", ())
    read_only: bool | Texts | Literal["hints"] = _key(
        "as the server declares; or true, false, or the names of those that are", "hints"
    )
    idempotent: bool | Texts | Literal["hints"] = _key(
        "likewise, those that may be called again where a kill lost their result", "hints"
    )
    shadow_reads: bool = _key(
        "shadows of services may call read-only tools that the served run did not; see mcp.md",
        default=False,
    )


def _with_prefixes(servers: dict[str, McpServerSettings]) -> dict[str, McpServerSettings]:
    # Two underscores, which no name holds: no default prefix begins another.
    return {
        name: server.model_copy(
            update={"prefix": f"{name}__" if server.prefix is None else server.prefix}
        )
        for name, server in servers.items()
    }


class PythonToolSettings(Section):
    """At start; tools of your own: docs/tools.md."""

    modules: Annotated[tuple[_Module, ...], Strict(strict=False)] = _key(
        "modules with functions marked as tools, or LangChain tools", (), examples=[["app.tools"]]
    )


class ToolSettings(Section):
    """Where tools come from beside those built in."""

    python: PythonToolSettings = PythonToolSettings()
    mcp: Annotated[dict[_ServerName, McpServerSettings], AfterValidator(_with_prefixes)] = {}


class DeploySettings(Section):
    """Releases of one folder, for the worker `deploy`."""

    root: str = _key('folder of the releases and of the link `current`; "": no deployments', "")
    source: str = _key("folder that is released, outside root", "")
    build: Texts = _key("command that runs in the copy of it, as a list: never a shell", ())
    check: Texts = _key("command that succeeds in a release that works; or", ())
    check_url: LoopbackUrl = _key("what such a release answers with 2xx, on this machine", "")
    env: Annotated[tuple[Variable, ...], Strict(strict=False)] = _key(
        "variables both commands get, beside PATH, HOME and RELEASE", ()
    )
    keep: Positive = _key("releases that stay; the live one and the one before always do", 5)
    build_seconds: Seconds = 600.0
    check_seconds: Seconds = 60.0


class WorkerSettings(Section):
    """At start; what the flow ops may do on this machine, nothing by default: see ops.md."""

    system: bool = _key("true: disks, memory and processes are shown", default=False)
    root: str = _key('folder in which large files are looked for; "": none', "")
    temporary_root: str = _key('the only folder in which files are deleted; "": none', "")
    hosts: Annotated[tuple[Host, ...], Strict(strict=False)] = _key(
        'that may be connected to: names, "*.internal", networks; ["*"]: any but those of cloud '
        "metadata",
        (),
    )
    engine: Engine = _key(
        'of containers, such as unix:///var/run/docker.sock; "": none; needs the extra containers',
        "",
    )
    containers: Texts = _key("names of its containers that are shown and restarted", ("*",))
    seconds: Seconds = _key("the most an action may take that has no limit of its own", 30.0)
    output_bytes: Positive = _key("of a log or of a command's output that are shown", 65_536)
    deploy: DeploySettings = DeploySettings()

    @property
    def configured(self) -> bool:
        """Whether anything is configured that a worker may do."""
        folders = self.root, self.temporary_root, self.deploy.root
        return self.system or any(folders) or bool(self.hosts or self.engine)

    @property
    def limits(self) -> Mapping[tuple[str, str], float]:
        """The seconds of actions that may take longer than others, by worker and action."""
        deploy, limits = self.deploy, dict[tuple[str, str], float]()
        if self.engine:  # what the container has to stop comes on top
            limits["container", "restart"] = self.seconds + WORKER_MARGIN
        if deploy.root:
            limits["deploy", "plan"] = limits["deploy", "build"] = deploy.build_seconds
            limits["deploy", "verify"] = deploy.check_seconds + WORKER_MARGIN
        return limits

    @property
    def longest(self) -> float:
        """Seconds in which every action has ended, and has cleaned up what it left."""
        return max((self.seconds, *self.limits.values())) + WORKER_MARGIN


class PromptSettings(Section):
    """For `cutover prompts` alone: the environment of Jinja2 prompts; see prompts.md."""

    environment: str = _key(
        '"package.module:name": your jinja2.Environment, or its factory; then the keys from '
        "block_start_string on are not read",
        "",
    )
    files: Texts = ("**/*.j2", "**/*.jinja", "**/*.jinja2")
    partials: Texts = _key("files that are no prompts by themselves", ("**/_*",))
    search: Texts = _key("more folders that templates are loaded from", ())
    encoding: str = "utf-8"
    suffix: str = _key("what converted prompts end with", ".md")
    block_start_string: str = "{%"
    block_end_string: str = "%}"
    variable_start_string: str = "{{"
    variable_end_string: str = "}}"
    comment_start_string: str = "{#"
    comment_end_string: str = "#}"
    line_statement_prefix: str = _key('"": none', "")
    line_comment_prefix: str = ""
    trim_blocks: bool = False
    lstrip_blocks: bool = False
    newline_sequence: Literal["\n", "\r\n", "\r"] = "\n"
    keep_trailing_newline: bool = False
    undefined: str = _key('"strict", "chainable", "debug", or "package.module:Class"', "default")
    autoescape: bool | str | Texts = _key(
        'true, endings of names such as ["html"], or "package.module:function"', default=False
    )
    finalize: str = _key('"package.module:function"', "")
    extensions: Texts = _key('"jinja2.ext.do", or "package.module:Class"', ())
    filters: Table = _key('name = "package.module:function"', {})
    tests: Table = {}
    globals: Table = {}


def _with_names(models: dict[str, ModelSettings]) -> dict[str, ModelSettings]:
    return {
        name: model.model_copy(update={"model": model.model or name})
        for name, model in models.items()
    }


class Settings(Section):
    """Everything a deployment configures; every known flow is in `flows`.

    `version` is a digest of the content, equal for files that mean the same; `changed_by`,
    `prompts` and `ramp` are no part of it.
    """

    changed_by: str = _key("who wrote this, for the history; otherwise it is the file's owner", "")
    rollout: RolloutSettings = RolloutSettings()
    flows: dict[str, FlowSettings] = {}
    server: ServerSettings = ServerSettings()
    limits: LimitSettings = LimitSettings()
    rate: RateSettings = RateSettings()
    breaker: BreakerSettings = BreakerSettings()
    admin: AdminSettings = AdminSettings()
    shadow: ShadowSettings = ShadowSettings()
    captures: CaptureSettings = CaptureSettings()
    metrics: MetricsSettings = MetricsSettings()
    tracing: TracingSettings = TracingSettings()
    log: LogSettings = LogSettings()
    stores: StoreSettings = StoreSettings()
    conversations: ConversationSettings = ConversationSettings()
    pauses: PauseSettings = PauseSettings()
    exchanges: ExchangeSettings = ExchangeSettings()
    imports: ImportSettings = ImportSettings()
    embeddings: EmbeddingSettings = EmbeddingSettings()
    stacks: StackSettings = StackSettings()
    flags: FlagSettings = FlagSettings()
    ramp: RampSettings = RampSettings()
    providers: dict[str, ProviderSettings] = {}
    models: Annotated[dict[str, ModelSettings], AfterValidator(_with_names)] = {}
    rescue: RescueSettings = RescueSettings()
    gateway: GatewaySettings = GatewaySettings()
    tools: ToolSettings = ToolSettings()
    workers: WorkerSettings = WorkerSettings()
    prompts: PromptSettings = PromptSettings()
    gate: GateSettings = GateSettings()
    version: str = ""

    @property
    def writes(self) -> WriteLimits:
        """The deadlines of writes; that of `workers.run` is beyond every worker's own limit."""
        limits, workers = self.limits.writes, self.workers
        if not workers.configured:
            return limits
        run = WORKERS_RUN.label
        seconds = max(limits.operations.get(run, limits.seconds), workers.longest)
        return replace(limits, operations={**limits.operations, run: seconds})

    def gate_of(self, flow: str) -> GateSettings:
        """Return what a promotion of a flow needs."""
        own = self.flows[flow].gate
        return self.gate if own is None else own.over(self.gate)

    @property
    def patterns(self) -> Patterns:
        """The compiled patterns of `[captures.redact]`."""
        return compile_patterns(self.captures.redact.patterns)


AT_START: Final = frozenset(
    {
        *("server", "admin", "captures", "metrics", "tracing", "log", "stores", "conversations"),
        *("pauses", "exchanges", "embeddings", "stacks", "flags", "gateway", "tools", "workers"),
        *(f"limits.{key}" for key in ("loop_seconds", "total_bytes", "tool_seconds")),
        *("limits.tool_characters", "limits.tools"),
        *("shadow.broker", "shadow.queue", "shadow.rules", "shadow.model_calls"),
        "flows.*.prompts",
    }
)
"""Sections and keys that are read once; `*` is any name. An edit of them needs a restart."""
READ_LIVE: Final = frozenset(
    {"server.max_body_bytes", "server.trusted_proxies", "gateway.normalise"}
)
"""The keys of these sections that follow the file."""
_BESIDE_CONTENT: Final = frozenset({"version", "changed_by"})


class ChangedKey(NamedTuple):
    """A key whose value differs; `pattern` is the key with names as `*`, None is no value."""

    key: str
    pattern: str
    before: object
    after: object

    @property
    def read_at_start(self) -> bool:
        """Whether a router that runs reads it no more."""
        if self.pattern in READ_LIVE:
            return False
        return any(self.pattern == due or self.pattern.startswith(f"{due}.") for due in AT_START)

    @property
    def sentence(self) -> str:
        """The key, with its values where they are numbers or switches: a text may be a secret."""
        if not all(isinstance(value, (int, float, Decimal)) for value in (self.before, self.after)):
            return self.key
        return f"{self.key} {self.before} → {self.after}"


def changed_keys(before: Settings, after: Settings) -> tuple[ChangedKey, ...]:
    """Return the keys of two configurations whose values differ, in order."""
    return tuple(sorted(_changed("", "", before, after)))


def _changed(key: str, pattern: str, before: object, after: object) -> Iterator[ChangedKey]:
    if before == after:
        return
    old, new = _entries(before), _entries(after)
    if old is None or new is None:
        if key not in _BESIDE_CONTENT:
            yield ChangedKey(key, pattern, before, after)
        return
    for name in old.keys() | new.keys():
        step = "*" if isinstance(before, Mapping) else name
        paths = (f"{key}.{name}".removeprefix("."), f"{pattern}.{step}".removeprefix("."))
        yield from _changed(*paths, old.get(name), new.get(name))


def _entries(value: object) -> Mapping[str, object] | None:
    """Return what a section or table holds, by name; None for a value."""
    if isinstance(value, Section):
        return {name: getattr(value, name) for name in type(value).model_fields}
    return value if isinstance(value, Mapping) else None
