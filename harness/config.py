"""The configuration: one TOML file, read into a frozen value; a misspelt key is refused."""

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from starlette.routing import compile_path

from cutover.errors import CutoverError
from cutover.wire import MOST_BLOCK_BYTES
from router.services.flow import PLACES
from rules.flows import FLOWS

MOST_BYTES = 1 << 20
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
"""Names of this machine for itself."""
_EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - where a server listens
_PROVIDER: Final = re.compile(r"[A-Za-z0-9_-]+")
Percent = Annotated[float, Field(ge=0, le=100)]


class SecretText(str):
    """Text of the configuration that stands in no line of the log; a default is none."""

    __slots__ = ()


def _from_environment(value: str) -> SecretText:
    """Return a value, or that of the variable which "env:NAME" names."""
    scheme, _, name = value.partition(":")
    if scheme != "env":
        return SecretText(value)
    if name not in os.environ:
        message = f"the environment variable {name} is not set"
        raise ValueError(message)
    return SecretText(os.environ[name])


Secret = Annotated[str, AfterValidator(_from_environment)]
"""Text that may stand in the environment."""


class ConfigRefused(CutoverError):
    """The configuration cannot be used: where, why, and the nearest key where one is misspelt."""

    def __init__(self, path: Path | None, problems: list[str]) -> None:
        self.problems = "; ".join(problems)
        super().__init__(f"{path or 'configuration'}: {self.problems}")


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ServerTable(_Table):
    """Where the router listens, and how it stops."""

    host: str = "127.0.0.1"
    """The address; `0.0.0.0` is every one."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    """The port; 0 takes a free one."""
    drain_seconds: Annotated[float, Field(ge=0)] = 30.0
    """How long a stopping server waits for its streams; then they end in failure events."""
    origins: list[str] = []
    """Other origins whose pages may use the flows, such as `https://app.example`; `*`: all."""
    flag_token: Secret = ""
    """The bearer token of `/cutover/flags` and `/cutover/status`; without it nothing is changed
    over HTTP, and the status is shown on this machine alone."""


class StoresTable(_Table):
    """Where the world is kept."""

    database: Secret = "sqlite+aiosqlite:///cutover.db"
    """SQLAlchemy's URL: `sqlite+aiosqlite:` or `postgresql+psycopg:`."""
    redis: Secret = ""
    """Where locks are shared; without it each process has its own."""
    memory_service: Secret = ""
    """The address of a service that keeps the conversations instead of the database."""
    memory_service_token: Secret = ""
    """What that service is asked with, as a bearer token."""
    pause_key: Secret = ""
    """16 or 32 bytes as base64: stored pauses are encrypted. Needs the package `cryptography`."""


class RolloutTable(_Table):
    """How keys are split."""

    salt: str = "cutover"
    """What keys are hashed with: another one draws all of them anew."""
    qa_key: Secret = ""
    """What a tester sends as `x-cutover-qa-key` to ask for a stack by `x-cutover-stack`."""


class ModelTable(_Table):
    """A model, by the id under which flows ask for it."""

    base_url: str = ""
    """An OpenAI-compatible endpoint; empty: `OPENAI_BASE_URL`, or else OpenAI's."""
    key: str = "env:OPENAI_API_KEY"
    """The key, or `env:NAME`, read at each call."""
    name: str = ""
    """What the provider calls it; empty: its id."""


class EmbeddingsTable(_Table):
    """What embeds memories; without this table the newest ones are found."""

    model: str
    """The id of a model."""
    dims: Annotated[int, Field(ge=1)]
    """The length of its vectors."""


class LimitsTable(_Table):
    """What a process takes on."""

    streams: Annotated[int, Field(ge=1)] = 1_000
    """Streams that may be open at the same time; more are refused with 503."""
    event_bytes: Annotated[int, Field(ge=1024)] = MOST_BLOCK_BYTES
    """Bytes of one event of a service's answer."""


class BreakerTable(_Table):
    """When a stack is left alone, by flow and process."""

    failures: Annotated[float, Field(gt=0, le=1)] = 0.5
    """The share of its runs that fail by its own fault."""
    runs: Annotated[int, Field(ge=1)] = 20
    """How many runs there must have been."""
    window_seconds: Annotated[float, Field(gt=0)] = 60.0
    """How far back runs count."""
    rest_seconds: Annotated[float, Field(gt=0)] = 30.0
    """How long it rests; then one run at a time tries."""


class CapturesTable(_Table):
    """What is stored of runs, redacted (docs/privacy.md); without this table nothing is."""

    url: Secret
    """A folder, or a bucket as fsspec names it, such as `s3://bucket/captures`."""
    key: Annotated[Secret, Field(min_length=16)]
    """What pseudonyms are made with: 16 characters or more, as random as a password."""
    percent: Percent = 100.0
    """The share of route keys whose runs are stored."""
    keep_days: Annotated[int, Field(ge=0)] = 30
    """How many days before today are kept; 0: all."""
    redact_paths: list[str] = []
    """What is replaced wherever it is found, such as `request.user.name`."""
    redact_patterns: dict[str, str] = {}
    """Own regular expressions by name; an empty one removes the built-in kind of its name."""


class ShadowTable(_Table):
    """What a process takes on for shadows; `shadow_percent` of a flow says which requests."""

    requests_a_day: Annotated[int, Field(ge=0)] | None = None
    """Shadows at most, from midnight (UTC)."""
    queue_mib: Annotated[int, Field(ge=1)] = 64
    """What the requests that wait for their shadows may hold in memory."""


class StackTable(_Table):
    """A service that serves the declared flows: `legacy`, the control, or `graph`."""

    url: Secret = ""
    """Its base URL."""
    app: str = ""
    """Instead: an ASGI app, or what returns one, as `module:app`; `serve` starts and stops it."""
    shadow_safe: bool = False
    """Whether a request may be made twice: what is not on the tape, a shadow does once more."""
    silence_seconds: Annotated[float, Field(gt=0)] = 60.0
    """How long it may send nothing."""
    total_seconds: Annotated[float, Field(gt=0)] = 600.0
    """How long an answer may take."""
    headers: dict[str, Secret] = {}
    """Headers of each request to it, such as a key of its own."""


class GatewayTable(_Table):
    """Where services send what they ask of models, so that it is recorded; without it, nowhere."""

    host: str = "127.0.0.1"
    """The address; any but one of loopback needs a `key`."""
    port: Annotated[int, Field(ge=1, le=65_535)] = 8081
    """The port."""
    url: str = ""
    """Where services reach it; empty: `http://HOST:PORT`."""
    key: Secret = ""
    """What callers send as the key of their API; without one their own go on to the provider."""
    origins: list[str] = []
    """Origins that calls may come with: pages, and services that pass headers of pages on."""
    body_bytes: Annotated[int, Field(ge=1)] = 32 << 20
    """Bytes of a request at most."""


class ConsoleTable(_Table):
    """A page that shows a rollout and sets its shares, at `/console`; without it there is none."""

    host: str = "127.0.0.1"
    """The address; any but one of loopback needs `server.flag_token`, which readers are asked for,
    as the password."""
    port: Annotated[int, Field(ge=1, le=65_535)] = 8082
    """The port."""
    reports: str = "report"
    """The folder to which `cutover diff` writes; `gate` and `ramp` leave their verdicts there."""


class ProviderTable(_Table):
    """A provider of models, by the first part of the gateway's paths; the first is `/v1` as well.

    Without any there are `openai` and `anthropic`.
    """

    base_url: Secret = ""
    """What its SDK is given as base URL; empty: `OPENAI_BASE_URL`, or else OpenAI's."""
    key: Secret = ""
    """What it gets where a caller sends the gateway's key."""
    silence_seconds: Annotated[float, Field(gt=0)] = 300.0
    """How long it may send nothing."""


class FlowTable(_Table):
    """A flow: `chat`, `companion`, `session`, `pipeline`, `ops`, or one of services, with `paths`.

    Switches and shares are in force at once where they change.
    """

    paths: list[str] = []
    """Paths of a declared flow, such as `/threads/{thread}/runs/stream`; none: a built-in one."""
    methods: list[Literal["GET", "POST", "PUT", "PATCH"]] = ["POST"]
    """How a declared flow is asked."""
    dialect: str = "chat-completions"
    """How its streams are read: a dialect's name, or the path of its TOML file."""
    keys: dict[str, str] = {}
    """Its route keys, as `user_id = "body.user.id"`; also `query.`, `header.` and `path.`."""
    example: str = ""
    """A request, as HTTP writes it: what `doctor` asks both services."""

    enable_langgraph: bool = False
    """The switch: while it is off, everything goes to legacy, pins and forced keys included."""
    langgraph_percent: Percent = 0.0
    """The share of route keys that graph serves, to a thousandth."""
    langgraph_fallback: bool = True
    """Whether the other stack goes on where one fails."""
    shadow_percent: Percent = 0.0
    """The share of route keys that the other stack plays in the shadow."""
    route_key: str = ""
    """What is split by, such as `user_id`; empty: the flow's first."""
    sticky: str = ""
    """The route key whose conversations keep the stack of their first turn, such as `chat_id`."""
    force_legacy: list[str] = []
    """Route keys that legacy serves."""
    force_graph: list[str] = []
    """Route keys that graph serves."""
    options: dict[str, Any] = {}
    """What both stacks are run with."""

    @property
    def graph_percent(self) -> float:
        """The share that graph serves: 0 while it is switched off."""
        return self.langgraph_percent if self.enable_langgraph else 0.0


class TelemetryTable(_Table):
    """What the process says of itself."""

    metrics: bool = True
    """Whether `/metrics` answers Prometheus, on the port of the flows."""
    log: Literal["text", "json"] = "text"
    """Whether a line of the log is text or a JSON object."""
    otlp: str = ""
    """The address of an OTLP/HTTP collector, such as `http://127.0.0.1:4318`; needs the extra
    `otlp`. Its headers and the sampling are in the variables `OTEL_*`."""


class FlagsTable(_Table):
    """Where switches and shares come from beside this file."""

    provider: str
    """What makes an OpenFeature provider, as `module:factory`; needs the extra `flags`. It is asked
    once a second for `chat.enable_langgraph`, `chat.langgraph_percent`, `chat.langgraph_fallback`
    and `chat.shadow_percent`; what it does not know, `[flows.chat]` says."""


class Settings(_Table):
    """The whole configuration. Without a file all five flows are served."""

    server: ServerTable = ServerTable()
    stores: StoresTable = StoresTable()
    rollout: RolloutTable = RolloutTable()
    limits: LimitsTable = LimitsTable()
    breaker: BreakerTable = BreakerTable()
    shadow: ShadowTable = ShadowTable()
    captures: CapturesTable | None = None
    stacks: dict[Literal["legacy", "graph"], StackTable] = {}
    telemetry: TelemetryTable = TelemetryTable()
    flags: FlagsTable | None = None
    gateway: GatewayTable | None = None
    console: ConsoleTable | None = None
    providers: dict[str, ProviderTable] = {
        "openai": ProviderTable(),
        "anthropic": ProviderTable(base_url="https://api.anthropic.com"),
    }
    models: dict[str, ModelTable] = {}
    tools: list[str] = []
    """Tools offered beside the built-in ones, as `module:object`: a tool, or a list of them."""
    workers: dict[str, Any] = {}
    """What the workers of `ops` may touch."""
    embeddings: EmbeddingsTable | None = None
    timezone: str = "UTC"
    """The zone of the dates in prompts."""
    flows: dict[str, FlowTable] = Field(default_factory=lambda: {one: FlowTable() for one in FLOWS})

    @property
    def built_in(self) -> bool:
        """Whether stacks in this process serve one of the flows."""
        return any(not table.paths for table in self.flows.values())

    @property
    def server_url(self) -> str:
        """The base URL under which this machine reaches the router."""
        host, port = self.server.host, self.server.port
        return f"http://{'127.0.0.1' if host in _EVERY_ADDRESS else host}:{port}"

    @property
    def gateway_url(self) -> str:
        """The base URL under which services reach the gateway, "" without one."""
        table = self.gateway
        return "" if table is None else table.url.rstrip("/") or f"http://{table.host}:{table.port}"


TABLES: Final[Mapping[str, type[BaseModel]]] = {
    name: kind
    for name, field in Settings.model_fields.items()
    for kind in (field.annotation, *get_args(field.annotation))
    if isinstance(kind, type) and issubclass(kind, BaseModel)
}
"""The tables by name; those of dicts are headed `[name.NAME]`."""


def load(path: Path | None) -> Settings:
    """Read a configuration file, or the defaults without one; raises `ConfigRefused`."""
    return Settings() if path is None else decode(read(path), path)


def read(path: Path) -> bytes:
    """Return a file's content; raises `ConfigRefused` for what is no file of at most 1 MiB."""
    try:
        if not path.is_file() and path.exists():
            raise ConfigRefused(path, ["not a regular file"])
        if path.stat().st_size > MOST_BYTES:
            raise ConfigRefused(path, [f"more than {MOST_BYTES} bytes"])
        return path.read_bytes()
    except OSError as error:
        raise ConfigRefused(path, [error.strerror or str(error)]) from error


def decode(content: bytes, path: Path) -> Settings:
    """Return the settings in a file's content; raises `ConfigRefused`."""
    try:
        return parse(tomllib.loads(content.decode()), path)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigRefused(path, [str(error)]) from error


def parse(tables: Mapping[str, Any], path: Path | None = None) -> Settings:
    """Return the settings in decoded tables; raises `ConfigRefused`."""
    try:
        settings = Settings.model_validate(tables)
    except ValidationError as error:
        raise ConfigRefused(path, [sentence(one) for one in error.errors()]) from error
    flows = (one for name, table in settings.flows.items() for one in _wrong(name, table))
    if wrong := [*flows, *_wrong_gateway(settings), *_wrong_stacks(settings)]:
        raise ConfigRefused(path, wrong)
    return settings


def _wrong_stacks(settings: Settings) -> Iterator[str]:
    if not settings.stacks and any(table.paths for table in settings.flows.values()):
        yield "stacks: a declared flow needs [stacks.legacy] and its url"
    for name, table in settings.flows.items() if "graph" not in settings.stacks else ():
        shared = table.enable_langgraph and (table.langgraph_percent or table.force_graph)
        if table.paths and shared:
            yield f"flows.{name}: has a share for graph, and there is no [stacks.graph]"
    for name, one in settings.stacks.items():
        if bool(one.url) == bool(one.app):
            yield f"stacks.{name}: has either a url or an app"


def _wrong_gateway(settings: Settings) -> Iterator[str]:
    """Yield what of the gateway's tables cannot be meant, or would give keys or captures away."""
    console = settings.console
    if console and console.host not in LOOPBACK and not settings.server.flag_token:
        yield f"server.flag_token: needed where the console listens on {console.host!r}"
    if (table := settings.gateway) is None:
        return
    if not table.key and table.host not in LOOPBACK:
        yield f"gateway.key: needed where it listens on {table.host!r}, for all who reach it"
    if not settings.providers:
        yield "providers: the gateway needs one"
    for name, one in settings.providers.items():
        if name in {"v1", "runs"} or not _PROVIDER.fullmatch(name):
            yield f"providers.{name}: a name has letters, digits, - and _, and is not v1 or runs"
        if one.key and not table.key:
            yield f"providers.{name}.key: needs gateway.key, or every process here may use it"
        if one.base_url and not one.base_url.startswith(("http://", "https://")):
            yield f"providers.{name}.base_url: begins with https://, or http://"


def _wrong(name: str, table: FlowTable) -> Iterator[str]:
    place = f"flows.{name}"
    if "/" in name:
        yield f"{place}: captures lie in folders, so that no name of a flow has a /"
    if not table.paths and name not in FLOWS:
        near = _nearest(name, FLOWS)
        yield f"{place}: no such flow{near}; one of services has `paths`"
        return
    if table.paths and name in FLOWS:
        yield f"{place}.paths: {name} is built in: give the declared flow another name"
        return
    known: Collection[str] = table.keys if table.paths else FLOWS[name].route_keys
    for key, value in (("route_key", table.route_key), ("sticky", table.sticky)):
        if value and value not in known:
            yield f"{place}.{key}: no such route key{_nearest(value, known)}"
    for key, value in table.keys.items():
        if value.partition(".")[0] not in PLACES or not value.partition(".")[2]:
            where = ", ".join(f"{one}." for one in PLACES)
            yield f"{place}.keys.{key}: {value!r} is no place: it begins with one of {where}"
        for path in table.paths if value.startswith("path.") else ():
            if value[5:] not in compile_path(path)[2]:
                yield f"{place}.keys.{key}: {path} has no {{{value[5:]}}}"
    if not table.paths:
        try:
            msgspec.convert(table.options, FLOWS[name].options)
        except msgspec.ValidationError as error:
            yield f"{place}.options: {error}"
    elif table.options:
        yield f"{place}.options: a declared flow has none"


def sentence(error: Any) -> str:
    """Return what one error of pydantic's says, with the nearest key where one is misspelt."""
    place = ".".join(map(str, error["loc"]))
    if error["type"] != "extra_forbidden":
        return f"{place}: {error['msg']}"
    return f"{place}: no such key{_nearest(str(error['loc'][-1]), _keys(error['loc'][:-1]))}"


def _keys(parents: tuple[Any, ...]) -> list[str]:
    table = TABLES.get(str(parents[0])) if parents else Settings
    return list(table.model_fields) if table else []


def _nearest(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""
