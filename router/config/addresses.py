"""Addresses and names of secrets: the types the schema checks them with, and reading them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from itertools import chain
from typing import Annotated, Any, get_args
from urllib.parse import parse_qsl, urlsplit

import msgspec
from pydantic import AfterValidator, BaseModel

from router.config.errors import ConfigRefused

AUTO = "auto"
"""The simplest store that serves all workers: `PROCESS`, or a file they share."""
PROCESS = "process"
"""State that one process keeps for itself."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRINTABLE = re.compile(r"[!-~]*")
_PLAIN_PATH = re.compile(r"/(?:(?![?{}%])[!-~])*")
_OWN_PATHS = re.compile(
    r"/(?:feedback|healthz|readyz|metrics|docs|redoc|openapi\.json|effects"
    r"|(?:admin|docs|effects|exchanges|mcp)/.*|v1/(?:chat/completions|models))"
)
"""Paths the router answers itself."""
_SECRET_OPTION = re.compile(r"(?i)key|secret|token|passw|credential|account|sig")
_FROM_ENVIRONMENT = "env:"
_HERE = "environment"


def matching(expression: str, allowed: str) -> AfterValidator:
    """Accept a text that matches as a whole; `allowed` is the reason of a refusal."""
    pattern = re.compile(expression)

    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(allowed)
        return value

    return AfterValidator(check)


USERS = "users"
"""The listener of the users, in `[gateway] listen`."""
_LAST_PORT = 65_535
_ANY_HOST = frozenset({"0.0.0.0", "::"})  # noqa: S104 - refused
_LISTENER = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^][:/@\s]+)):([0-9]{1,5})")


def read_listener(value: str) -> tuple[str, int] | None:
    """Return host and port of a listener of its own; None for that of the users.

    Raises `ValueError`.
    """
    if value == USERS:
        return None
    found = _LISTENER.fullmatch(value)
    if found is None or int(found[3]) > _LAST_PORT:
        message = f"allowed: 'host:port', '[host]:port', {USERS!r} for the address of [server]"
        raise ValueError(message)
    return found[1] or found[2], int(found[3])


def _check_listener(value: str) -> str:
    read_listener(value)
    return value


Listener = Annotated[str, AfterValidator(_check_listener)]


def check_advertised(value: str) -> str:
    """Return an address at which others reach this process; raises `ValueError`."""
    if value.startswith(_FROM_ENVIRONMENT):
        _check_variable(value.removeprefix(_FROM_ENVIRONMENT))
    elif value:
        found = _LISTENER.fullmatch(value)
        if found is None:
            message = "allowed: 'host:port', '[host]:port', env:NAME, or nothing"
            raise ValueError(message)
        if (found[1] or found[2]) in _ANY_HOST:
            message = "names no host: it must be an address at which others reach this one"
            raise ValueError(message)
    return value


Advertised = Annotated[str, AfterValidator(check_advertised)]
"""The address at which other hosts reach this one, or the variable that holds it."""


def _address(*schemes: str, words: tuple[str, ...] = (), variable: bool = True) -> AfterValidator:
    """Accept an address of one of the schemes, one of the words, and `env:NAME` if `variable`."""
    allowed = [
        *map(repr, words),
        *(f"{scheme}://…" for scheme in schemes),
        *["env:NAME"] * variable,
    ]

    def check(value: str) -> str:
        if value in words:
            return value
        if variable and value.startswith(_FROM_ENVIRONMENT):
            _check_variable(value.removeprefix(_FROM_ENVIRONMENT))
            return value
        _refuse_password(value, "put the address into a variable, write 'env:NAME'")
        scheme, colon, _ = value.partition("://")
        if not colon or scheme not in schemes:
            message = f"allowed: {', '.join(allowed)}"
            raise ValueError(message)
        return value

    return AfterValidator(check)


def _check_variable(value: str) -> str:
    if value and not _VARIABLE.fullmatch(value):
        message = "must be the name of an environment variable, never the secret itself"
        raise ValueError(message)
    return value


def _refuse_password(value: str, instead: str) -> str:
    try:
        password = urlsplit(value).password
    except ValueError as error:
        message = "must be an address"
        raise ValueError(message) from error
    if password is not None:
        message = f"a password may not stand in the file: {instead}"
        raise ValueError(message)
    return value


def _check_url(value: str) -> str:
    message = "must be a URL: http://host:port/path"
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port  # a port out of range raises
    except ValueError as error:
        raise ValueError(message) from error
    if not host or not _PRINTABLE.fullmatch(value):
        raise ValueError(message)
    return value


def _check_loopback(value: str) -> str:
    if value and not on_loopback(urlsplit(value).hostname or ""):
        message = "must be on this machine: http://127.0.0.1:port/path"
        raise ValueError(message)
    return value


def _check_network(value: str) -> str:
    try:
        ip_network(value)
    except ValueError as error:
        message = "must be an address or a network: 10.1.2.3, 10.0.0.0/8"
        raise ValueError(message) from error
    return value


def _check_flow_path(value: str) -> str:
    if not _PLAIN_PATH.fullmatch(value):
        message = "must be a plain path: /api/support"
        raise ValueError(message)
    if _OWN_PATHS.fullmatch(value):
        message = "the router itself answers there"
        raise ValueError(message)
    return value


def _check_example(value: str) -> str:
    try:
        sound = not value or isinstance(msgspec.json.decode(value), dict)
    except (msgspec.DecodeError, RecursionError):
        sound = False
    if not sound:
        message = 'must be a JSON object in quotes: \'{"message": "Hello"}\''
        raise ValueError(message)
    return value


def _check_folder(value: str) -> str:
    instead = "leave it to the variables or files its store reads by itself"
    for url in value.split("::"):  # fsspec writes one address behind another so
        _refuse_password(url, instead)
        query = urlsplit(url).query if "://" in url else ""
        for name, _ in parse_qsl(query, keep_blank_values=True):
            if _SECRET_OPTION.search(name):
                message = f"{name!r} may not stand in the file: {instead}"
                raise ValueError(message)
    return value


_NAMES_VARIABLE = AfterValidator(_check_variable)
Variable = Annotated[str, _NAMES_VARIABLE]
"""The name of an environment variable; "" is none."""
Endpoint = Annotated[str, _address("http", "https", variable=False)]
OptionalEndpoint = Annotated[str, _address("http", "https", variable=False, words=("",))]
Url = Annotated[Endpoint, AfterValidator(_check_url)]
OptionalUrl = Annotated[OptionalEndpoint, AfterValidator(lambda url: url and _check_url(url))]
LoopbackUrl = Annotated[OptionalUrl, AfterValidator(_check_loopback)]
Engine = Annotated[str, _address("unix", "tcp", variable=False, words=("",))]
"""Where a container engine listens."""
UrlPath = Annotated[str, matching(r"/[!-~]*", "must be a path: /v1/answer")]
FlowPath = Annotated[str, AfterValidator(_check_flow_path)]
BodyField = Annotated[
    str,
    matching(
        r"[^.\s]+(?:\.[^.\s]+)*", "must be a field of the body: session_id, or conversation.id"
    ),
]
ExampleBody = Annotated[str, AfterValidator(_check_example)]
"""The JSON text of a request; "" is none."""
Network = Annotated[str, AfterValidator(_check_network)]
Host = Annotated[str, AfterValidator(lambda one: _check_network(one) if "/" in one else one)]
"""A pattern of names, an address or a network."""
Folder = Annotated[str, AfterValidator(_check_folder)]
"""A folder or an fsspec URL."""
RequestAttribute = Annotated[
    str,
    matching(
        r"(?:header:[a-z0-9-]+|body:[A-Za-z_][A-Za-z0-9_]*)?",
        "allowed: 'header:NAME', 'body:FIELD', or nothing",
    ),
]
Store = Annotated[str, _address("sqlite", "postgresql", "http", "https", "memory")]
PauseStore = Annotated[str, _address("sqlite", "postgresql", "memory")]
CheckpointStore = Annotated[str, _address("sqlite", "postgresql", "memory", words=("", AUTO))]
AuditStore = Annotated[str, _address("sqlite", "postgresql", "memory", words=(AUTO,))]
Coordination = Annotated[str, _address("sqlite", "redis", "rediss", words=(AUTO, PROCESS))]
"""Where routers share state: locks, pins, breakers."""
Broker = Annotated[str, _address("redis", "rediss", words=("",))]
"""Where exchanges wait for the workers of shadows; "": there are none."""
HistoryStore = Annotated[str, _address("sqlite", words=("",))]


def variables_of(section: BaseModel) -> Iterator[str]:
    """Yield the environment variables that a configuration names, in whichever section.

    Those of fields whose type is `Variable`, or holds it, and of texts `env:NAME`.
    """
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if any(map(_is_variable, (field.annotation, *field.metadata))):
            yield from _texts(value)
        else:
            for text in _texts(value):
                if text.startswith(_FROM_ENVIRONMENT):
                    yield text.removeprefix(_FROM_ENVIRONMENT)
        for inner in value.values() if isinstance(value, Mapping) else (value,):
            if isinstance(inner, BaseModel):
                yield from variables_of(inner)


def _is_variable(annotation: Any) -> bool:
    return annotation == _NAMES_VARIABLE or any(map(_is_variable, get_args(annotation)))


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            yield from chain.from_iterable(map(_texts, value.values()))
        case tuple() | list():
            yield from chain.from_iterable(map(_texts, value))
        case _:
            pass


def on_loopback(host: str) -> bool:
    """Whether a host is reached from its own machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def resolve_address(value: str, environ: Mapping[str, str]) -> str:
    """Return a store's address, `env:NAME` looked up; raises `ConfigRefused` if it holds none."""
    if not value.startswith(_FROM_ENVIRONMENT):
        return value
    name = value.removeprefix(_FROM_ENVIRONMENT)
    if not (found := environ.get(name)):
        raise ConfigRefused(_HERE, name, "not set, and must hold a store's address")
    if "://" not in found and found not in (AUTO, PROCESS):
        # Without what it holds: that may be the password itself.
        raise ConfigRefused(_HERE, name, "no address: one begins with its kind, as sqlite:///…")
    return found


def resolve_value(value: str, environ: Mapping[str, str]) -> str:
    """Return a value, `env:NAME` looked up; raises `ConfigRefused` when it is not set."""
    if not value.startswith(_FROM_ENVIRONMENT):
        return value
    return read_secret(value.removeprefix(_FROM_ENVIRONMENT), environ).decode()


def read_secret(name: str, environ: Mapping[str, str]) -> bytes:
    """Return the secret in a variable, empty for no name; raises `ConfigRefused` if unset."""
    if not name:
        return b""
    if not environ.get(name):
        raise ConfigRefused(_HERE, name, "not set, and the configuration names it for a secret")
    return environ[name].encode()
