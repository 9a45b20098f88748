"""The configuration: one TOML file, read into a frozen value; a misspelt key is refused."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from cutover.errors import CutoverError
from rules.flows import FLOWS

MOST_BYTES = 1 << 20
Percent = Annotated[float, Field(ge=0, le=100)]


def _from_environment(value: str) -> str:
    """Return a value, or that of the variable which "env:NAME" names."""
    scheme, _, name = value.partition(":")
    if scheme != "env":
        return value
    if name not in os.environ:
        message = f"the environment variable {name} is not set"
        raise ValueError(message)
    return os.environ[name]


Secret = Annotated[str, AfterValidator(_from_environment)]
"""Text that may stand in the environment."""


class ConfigRefused(CutoverError):
    """The configuration cannot be used: where, why, and the nearest key where one is misspelt."""

    def __init__(self, path: Path | None, problems: list[str]) -> None:
        super().__init__(f"{path or 'configuration'}: " + "; ".join(problems))


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerTable(_Table):
    """Where the router listens, and how long a stopping one waits for its streams."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    drain_seconds: Annotated[float, Field(ge=0)] = 30.0


class StoresTable(_Table):
    """Where the world is kept: SQLAlchemy and Redis URLs."""

    database: Secret = "sqlite+aiosqlite:///cutover.db"
    redis: Secret | None = None


class RolloutTable(_Table):
    """What the split hashes with, and what a tester's request must know to ask for a stack."""

    salt: str = "cutover"
    qa_key: Secret = ""


class ModelTable(_Table):
    """A model: where it is served. `key` is "env:NAME"."""

    base_url: str = ""
    key: str = "env:OPENAI_API_KEY"
    name: str = ""
    max_tokens: int | None = None


class EmbeddingsTable(_Table):
    """What embeds memories: a model's id, and the length of its vectors."""

    model: str
    dims: Annotated[int, Field(ge=1)]


class LimitsTable(_Table):
    """What a process takes on: streams that are open at the same time."""

    streams: Annotated[int, Field(ge=1)] = 1_000


class BreakerTable(_Table):
    """When a stack is left alone: failures' share of at least so many runs in a window."""

    failures: Annotated[float, Field(gt=0, le=1)] = 0.5
    runs: Annotated[int, Field(ge=1)] = 20
    window_seconds: Annotated[float, Field(gt=0)] = 60.0
    rest_seconds: Annotated[float, Field(gt=0)] = 30.0


class FlowTable(_Table):
    """One flow: the switch, the shares, and the options of the flow itself."""

    enable_langgraph: bool = False
    langgraph_percent: Percent = 0.0
    langgraph_fallback: bool = True
    shadow_percent: Percent = 0.0
    route_key: str = ""
    sticky: str = ""
    force_legacy: list[str] = []
    force_graph: list[str] = []
    options: dict[str, Any] = {}


class Settings(_Table):
    """The whole configuration. Without a file all five flows are served."""

    server: ServerTable = ServerTable()
    stores: StoresTable = StoresTable()
    rollout: RolloutTable = RolloutTable()
    limits: LimitsTable = LimitsTable()
    breaker: BreakerTable = BreakerTable()
    models: dict[str, ModelTable] = {}
    tools: list[str] = []
    workers: dict[str, Any] = {}
    embeddings: EmbeddingsTable | None = None
    timezone: str = "UTC"
    flows: dict[str, FlowTable] = Field(default_factory=lambda: {one: FlowTable() for one in FLOWS})


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
        raise ConfigRefused(path, [_sentence(one) for one in error.errors()]) from error
    unknown = settings.flows.keys() - FLOWS.keys()
    if unknown:
        problems = [f"flows.{one}: no such flow{_nearest(one, FLOWS)}" for one in sorted(unknown)]
        raise ConfigRefused(path, problems)
    keys = [
        f"flows.{name}.{key}: no such route key{_nearest(value, FLOWS[name].route_keys)}"
        for name, table in settings.flows.items()
        for key, value in (("route_key", table.route_key), ("sticky", table.sticky))
        if value and value not in FLOWS[name].route_keys
    ]
    keys += [
        f"flows.{name}.options: {problem}"
        for name, table in settings.flows.items()
        if (problem := _refusal(table.options, FLOWS[name].options))
    ]
    if keys:
        raise ConfigRefused(path, keys)
    return settings


def _refusal(options: Mapping[str, Any], kind: Any) -> str:
    """Return why a flow refuses its options, "" where it takes them."""
    try:
        msgspec.convert(options, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _sentence(error: Any) -> str:
    place = ".".join(map(str, error["loc"]))
    if error["type"] != "extra_forbidden":
        return f"{place}: {error['msg']}"
    return f"{place}: no such key{_nearest(str(error['loc'][-1]), _keys(error['loc'][:-1]))}"


def _keys(parents: tuple[Any, ...]) -> list[str]:
    tables: dict[str, type[BaseModel]] = {
        "server": ServerTable,
        "stores": StoresTable,
        "rollout": RolloutTable,
        "limits": LimitsTable,
        "breaker": BreakerTable,
        "models": ModelTable,
        "embeddings": EmbeddingsTable,
        "flows": FlowTable,
    }
    table = tables.get(str(parents[0])) if parents else Settings
    return list(table.model_fields) if table else []


def _nearest(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""
