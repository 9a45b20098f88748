"""The model gateway of a deployment: whether it answers here, and who must show what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.errors import CutoverError
from router.config import on_loopback
from router.gateway import Gateway

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cutover.wiring.composition import House
    from router.gateway import Neighbours


class GatewayUnguarded(CutoverError):
    """The gateway has no key, and others can reach it."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"the gateway needs a key on {host!r}, where others can reach it: "
            "name its variable in [gateway] key_env"
        )


class GatewayKeyMissing(CutoverError):
    """The gateway's key is to come from a variable that is not set."""

    def __init__(self, variable: str) -> None:
        super().__init__(f"the gateway needs its key in the variable {variable!r}")


def open_gateway(
    house: House, environ: Mapping[str, str], host: str, neighbours: Neighbours | None = None
) -> Gateway | None:
    """Put the gateway on a house that listens on `host`; None where it is not wanted.

    Raises `GatewayUnguarded` or `GatewayKeyMissing` where it may not be opened so.
    """
    section = house.router.parts.settings().gateway
    if not section.enabled:
        return None
    if not section.key_env and not on_loopback(host):
        raise GatewayUnguarded(host)
    key = environ.get(section.key_env, "")
    if section.key_env and not key:
        raise GatewayKeyMissing(section.key_env)
    return Gateway(
        house.router,
        house.model,
        house.models,
        key.encode(),
        section.max_body_bytes,
        neighbours,
    )
