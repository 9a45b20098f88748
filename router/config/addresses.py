"""Addresses and names of secrets in a configuration: what may stand there, and reading them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from router.config.toml_table import ConfigRefused

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ATTRIBUTE = re.compile(r"header:[a-z0-9-]+|body:[A-Za-z_][A-Za-z0-9_]*")
_URL = re.compile(r"[!-~]*")
_PATH = re.compile(r"/[!-~]*")
_FROM_ENVIRONMENT = "env:"
_HERE = "environment"

PROCESS = "process"
"""The address of what one process keeps for itself."""
AUTO = "auto"
"""As few as the workers need: `PROCESS`, or a file they share. Of checkpoints: beside the turns."""


def variable_fault(value: str) -> str | None:
    """Say why `value` is no name of an environment variable; "" means none is wanted."""
    if not value or _VARIABLE.fullmatch(value):
        return None
    return "the name of an environment variable is due (never the secret itself)"


def store_fault(value: str) -> str | None:
    """Say why `value` is no address of a store."""
    if value.startswith(_FROM_ENVIRONMENT):
        return variable_fault(value.removeprefix(_FROM_ENVIRONMENT))
    return _secret_fault(value) or _scheme_fault(
        value, ("sqlite", "postgresql", "http", "https", "memory")
    )


def pauses_fault(value: str) -> str | None:
    """Say why `value` is no address where pauses can be kept."""
    if value.startswith(_FROM_ENVIRONMENT):
        return variable_fault(value.removeprefix(_FROM_ENVIRONMENT))
    return _secret_fault(value) or _scheme_fault(value, ("sqlite", "postgresql", "memory"))


def checkpoints_fault(value: str) -> str | None:
    """Say why `value` is no address where stacks can keep something; "" is nowhere."""
    return None if value in ("", AUTO) else pauses_fault(value)


def coordination_fault(value: str) -> str | None:
    """Say why `value` is no address where routers find each other: for locks and pins."""
    if value in (AUTO, PROCESS):
        return None
    if value.startswith(_FROM_ENVIRONMENT):
        return variable_fault(value.removeprefix(_FROM_ENVIRONMENT))
    schemes = ("sqlite", "redis", "rediss")
    return _secret_fault(value) or _scheme_fault(value, schemes, repr(AUTO), repr(PROCESS))


def endpoint_fault(value: str) -> str | None:
    """Say why `value` is no base URL of a provider."""
    return _secret_fault(value) or _scheme_fault(value, ("http", "https"))


def service_fault(value: str) -> str | None:
    """Say why `value` is no address of a stack."""
    why = endpoint_fault(value)
    if why is not None or (_URL.fullmatch(value) and _names_a_host(value)):
        return why
    return "a URL is due: http://host:port/path"


def _names_a_host(url: str) -> bool:
    parts = urlsplit(url)
    try:
        _ = parts.port
    except ValueError:
        return False  # none that anybody could listen on
    return bool(parts.hostname)


def on_loopback(host: str) -> bool:
    """Whether a host is reached from its own machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def network_fault(value: str) -> str | None:
    """Say why `value` is neither an address nor a network."""
    try:
        ip_network(value)
    except ValueError:
        return "an address or a network is due: 10.1.2.3, 10.0.0.0/8"
    return None


def path_fault(value: str) -> str | None:
    """Say why `value` is no path below a host."""
    return None if _PATH.fullmatch(value) else "a path is due: /v1/answer"


def resolve_address(value: str, environ: Mapping[str, str]) -> str:
    """Give the address itself, `env:NAME` looked up; raises `ConfigRefused` if that holds none."""
    if not value.startswith(_FROM_ENVIRONMENT):
        return value
    name = value.removeprefix(_FROM_ENVIRONMENT)
    if not (found := environ.get(name)):
        raise ConfigRefused(_HERE, name, "not set, and a store's address is due")
    if "://" not in found and found not in (AUTO, PROCESS):
        # Not what it holds: that may be the password itself.
        raise ConfigRefused(_HERE, name, "no address: one begins with its kind, as sqlite:///…")
    return found


def resolve_value(value: str, environ: Mapping[str, str]) -> str:
    """Give a value itself, `env:NAME` looked up; raises `ConfigRefused` when it is not set."""
    if not value.startswith(_FROM_ENVIRONMENT):
        return value
    return read_secret(value.removeprefix(_FROM_ENVIRONMENT), environ).decode()


def attribute_fault(value: str) -> str | None:
    """Say why `value` is no place in a request; "" means none is wanted."""
    if not value or _ATTRIBUTE.fullmatch(value):
        return None
    return "allowed: 'header:NAME', 'body:FIELD', or nothing"


def read_secret(name: str, environ: Mapping[str, str]) -> bytes:
    """Give the secret in a variable, empty where none is named; raises `ConfigRefused` if unset."""
    if not name:
        return b""
    if not environ.get(name):
        raise ConfigRefused(_HERE, name, "not set, and the configuration names it for a secret")
    return environ[name].encode()


def history_fault(value: str) -> str | None:
    """Say why `value` is no address of a history; "" means none is wanted."""
    if not value:
        return None
    if value.startswith(_FROM_ENVIRONMENT):
        return variable_fault(value.removeprefix(_FROM_ENVIRONMENT))
    return _scheme_fault(value, ("sqlite",), "''")


def place_fault(value: str) -> str | None:
    """Say why `value` is no folder or fsspec URL to write to."""
    return _secret_fault(value, "leave it to the variables or files its store reads by itself")


def _secret_fault(
    value: str, instead: str = "put the address into a variable, write 'env:NAME'"
) -> str | None:
    try:
        parts = urlsplit(value)
    except ValueError:
        return "an address is due"
    if parts.password is None:
        return None
    return f"a password may not stand in the file: {instead}"


def _scheme_fault(value: str, schemes: tuple[str, ...], *others: str) -> str | None:
    scheme, colon, _ = value.partition("://")
    if colon and scheme in schemes:
        return None
    return "allowed: " + ", ".join([*others, *(f"{name}://…" for name in schemes), "env:NAME"])


STORES: Mapping[str, Callable[[str], str | None]] = {
    "conversations": store_fault,
    "memory": store_fault,
    "pauses": pauses_fault,
    "locks": coordination_fault,
    "pins": coordination_fault,
    "board": coordination_fault,
    "history": history_fault,
    "checkpoints": checkpoints_fault,
}
"""What is wrong with an address, by what is kept there."""
