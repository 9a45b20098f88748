"""Whether a deployment opens its gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.errors import CutoverError
from contract.flows import SPECS
from cutover.application import GatewayKeyMissing, GatewayUnguarded, application
from router.config.watcher import SettingsWatcher
from tests.support.deployment import KEY, PLANTED_KEY, Setup, configuration

OPEN = "[gateway]\nenabled = true\n"
KEYED = f'{OPEN}key_env = "GATEWAY_KEY"\n'
WITH_KEY = {"GATEWAY_KEY": "secret"}
EVERYWHERE = "0.0.0.0"  # noqa: S104 - no server listens there: it is what needs a key


async def paths(folder: Path, more: str, host: str, environ: dict[str, str]) -> int:
    """Count the gateway's routes in a deployment that would listen on `host`."""
    path = folder / "cutover.toml"
    path.write_text(configuration(folder, "http://127.0.0.1:1/v1", Setup(more=more)), "utf-8")
    known = {KEY: PLANTED_KEY, **environ}
    async with application(SettingsWatcher(path, SPECS), known, host=host) as built:
        routes = [getattr(route, "path", "") for route in built.app.router.routes]
        return len([one for one in routes if "/v1/" in one and "/api/" not in one])


@pytest.mark.parametrize(
    ("more", "host", "environ", "expected"),
    [
        ("", "127.0.0.1", {}, 0),
        (OPEN, "127.0.0.1", {}, 4),
        (KEYED, "127.0.0.1", WITH_KEY, 4),
        (KEYED, EVERYWHERE, WITH_KEY, 4),
    ],
)
async def test_it_is_opened_where_it_is_wanted(
    tmp_path: Path, more: str, host: str, environ: dict[str, str], expected: int
) -> None:
    """Off by default; beyond loopback with a key."""
    assert await paths(tmp_path, more, host, environ) == expected


@pytest.mark.parametrize(
    ("more", "host", "why"),
    [(OPEN, EVERYWHERE, GatewayUnguarded), (KEYED, "127.0.0.1", GatewayKeyMissing)],
)
async def test_it_is_not_opened_without_its_key(
    tmp_path: Path, more: str, host: str, why: type[CutoverError]
) -> None:
    """Whatever the command line says of the address."""
    with pytest.raises(why):
        await paths(tmp_path, more, host, {})
