"""Whether a deployment opens its gateway."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import FastAPI

from contract.errors import CutoverError
from contract.flows import SPECS
from cutover.application import GatewayKeyMissing, GatewayUnguarded, application
from router.config.watcher import SettingsWatcher
from tests.support.deployment import KEY, PLANTED_KEY, Setup, configuration, deployed

OPEN = "[gateway]\nenabled = true\n"
KEYED = f'{OPEN}key_env = "GATEWAY_KEY"\n'
USERS = 'listen = "users"\n'
SHOP = '[tools.mcp.shop]\nurl = "http://127.0.0.1:9/mcp"\n'
WITH_KEY = {"GATEWAY_KEY": "secret"}
EVERYWHERE = "0.0.0.0"  # noqa: S104 - no server listens there: it is what needs a key


async def opened(
    folder: Path, more: str, environ: dict[str, str], host: str = "127.0.0.1"
) -> tuple[int, int]:
    """Count the gateway's routes on its own listener, and those that let in on the users'."""
    path = folder / "cutover.toml"
    path.write_text(configuration(folder, "http://127.0.0.1:1/v1", Setup(more=more)), "utf-8")
    known = {KEY: PLANTED_KEY, **environ}
    async with application(SettingsWatcher(path, SPECS), known, host=host) as built:
        return routes(built.gateway), routes(built.app)


def routes(app: FastAPI | None) -> int:
    """Count the routes of the gateway that are documented: those that only refuse are not."""
    documented = [] if app is None else app.openapi()["paths"]
    return len([one for one in documented if "/v1/" in one and "/api/" not in one])


@pytest.mark.parametrize(
    ("more", "host", "environ", "expected"),
    [
        ("", "127.0.0.1", {}, (0, 0)),
        (OPEN, "127.0.0.1", {}, (4, 0)),
        (OPEN, EVERYWHERE, {}, (4, 0)),
        (f'{KEYED}listen = "0.0.0.0:8081"', "127.0.0.1", WITH_KEY, (4, 0)),
        (f"{OPEN}{USERS}", "127.0.0.1", {}, (0, 4)),
        (f"{KEYED}{USERS}", EVERYWHERE, WITH_KEY, (0, 4)),
    ],
)
async def test_it_is_opened_where_it_is_wanted(
    tmp_path: Path, more: str, host: str, environ: dict[str, str], expected: tuple[int, int]
) -> None:
    """Off by default; then on an address of its own, on the users' where that is asked for."""
    assert await opened(tmp_path, more, environ, host) == expected


@pytest.mark.parametrize(
    ("more", "host", "why"),
    [
        (f"{OPEN}{USERS}", EVERYWHERE, GatewayUnguarded),
        (KEYED, "127.0.0.1", GatewayKeyMissing),
    ],
)
async def test_it_is_not_opened_without_its_key(
    tmp_path: Path, more: str, host: str, why: type[CutoverError]
) -> None:
    """Whatever the command line says of the address."""
    with pytest.raises(why):
        await opened(tmp_path, more, {}, host)


@pytest.mark.sockets
@pytest.mark.slow
async def test_the_users_listener_lets_no_call_of_the_gateway_in(tmp_path: Path) -> None:
    """Neither with its key nor for an open exchange; the refusal says where to look."""
    more = f'{KEYED}effects = true\ntool_servers = ["shop"]\n{SHOP}'
    paths = ("/v1/chat/completions", "/effects", "/effects/lease", "/mcp/shop")
    said, headers = set(), {"authorization": "Bearer secret"}
    async with deployed(tmp_path, Setup(more=more, environ=WITH_KEY)) as place:
        for path in (*paths, *(f"/exchanges/one{path}" for path in paths)):
            url = f"{place.url}{path}"
            async with place.session.post(url, data=b"{}", headers=headers) as response:
                said.add((response.status, (await response.json())["error"]["code"]))
        models = f"{place.gateway}/v1/models"
        async with place.session.get(models, headers=headers) as response:
            assert response.status == 200
        async with place.session.get(f"{place.gateway}/chat/sse") as response:
            assert response.status == 404, "no flow is served there"
    assert said == {(404, "other_address")}
