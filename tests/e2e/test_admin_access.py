"""Access to the operations API needs a token, and no token leaks out of it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contract.errors import CutoverError
from contract.flows import SPECS
from cutover.application import application
from router.admin.auth import TokensUnusable
from router.admin.pages import bare_address
from router.config.addresses import on_loopback
from router.config.watcher import SettingsWatcher
from tests.e2e.test_secrets import logged, on_disk
from tests.support.deployment import (
    KEY,
    PLANTED_KEY,
    Deployment,
    Setup,
    captured,
    configuration,
)
from tests.support.operations_client import ALICE, ENVIRON, MORE, VARIABLE, Operator, operated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

pytestmark = pytest.mark.sockets

WRONG = "a-wrong-token-0123456789"
HELLO = {"message_id": "m", "content": "Hello"}
SHARE = {"percent": 1, "enable": False}
NAMED = {
    "flow": "chat",
    "stack": "graph",
    "provider": "simulated",
    "hitl_id": "h1",
    "model_id": "m1",
}
BODIES: dict[str, list[object]] = {
    "GET": [None],
    "DELETE": [None],
    "POST": [SHARE, {"percent": ALICE}, b"{", f"[{WRONG}".encode()],
}
EVERYWHERE = "0.0.0.0"  # noqa: S104 - no server listens there: it must not answer


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Deployment]:
    """Deploy with an operations API, everybody on graph."""
    async with operated(tmp_path) as running:
        yield running


async def routes(place: Deployment) -> list[tuple[str, str]]:
    """Return method and path of everything below /admin, from the router's own document."""
    document = await place.get("/openapi.json")
    return [
        (method.upper(), path.removeprefix("/admin").format_map(NAMED))
        for path, found in document["paths"].items()
        if path.startswith("/admin")
        for method in found
    ]


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("token", "scheme", "expected"),
    [
        (None, "", (401, "token_missing")),
        (ALICE, "Basic", (401, "token_missing")),
        ("", "Bearer", (401, "token_missing")),
        (WRONG, "Bearer", (403, "token_wrong")),
        (ALICE[:-1], "Bearer", (403, "token_wrong")),
        (f"alice:{ALICE}", "Bearer", (403, "token_wrong")),
    ],
)
async def test_without_its_token_nothing_is_told_and_nothing_changes(
    place: Deployment, token: str | None, scheme: str, expected: tuple[int, str]
) -> None:
    """Every route; what is asked is not even looked at."""
    text, settings = place.watched.path.read_bytes(), place.watched.settings()
    stranger = Operator(place, token, scheme)
    found = await routes(place)
    assert len(found) == 15
    for method, path in found:
        for body in BODIES[method]:
            said, problem = await stranger.ask(method, path, body)
            assert (said, problem["code"]) == expected, path
            assert set(problem) <= {"title", "status", "code", "detail"}
    assert place.watched.path.read_bytes() == text
    assert place.watched.settings() is settings
    assert stranger.audited() == []
    assert (await place.ask(HELLO)).headers["x-cutover-assigned"] == "graph"


async def test_a_missing_token_is_asked_for(place: Deployment) -> None:
    """As RFC 9110 wants it; a wrong one is not."""
    async with place.session.get(f"{place.url}/admin/flows") as response:
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.headers["content-type"] == "application/problem+json"
    given = {"authorization": f"Bearer {WRONG}"}
    async with place.session.get(f"{place.url}/admin/flows", headers=given) as response:
        assert "www-authenticate" not in response.headers


async def test_no_secret_comes_out(place: Deployment) -> None:
    """Tokens, right and wrong, and providers' keys: in no log, capture, error, page or record."""
    operators = [Operator(place, token) for token in (ALICE, WRONG, None)]
    said: list[object] = []
    environ = ENVIRON | {KEY: PLANTED_KEY}
    with logged(place, environ) as log:
        for method, path in await routes(place):
            for operator in operators:
                said += [await operator.ask(method, path, body) for body in BODIES[method]]
        await place.ask(HELLO)
        await place.settled()
        await place.services.captures.flush()
        said.append(await place.get("/readyz"))
        said.append(await place.get("/openapi.json"))
    answers = json.dumps(said)
    for code in ("token_wrong", "token_missing", "not_json", "invalid_request"):
        assert code in answers
    assert '"has_key": true' in answers
    assert operators[0].audited(), "changes were made"
    told = captured(place.folder) + on_disk(place.folder)
    for secret in (ALICE, "o" * 20, WRONG, PLANTED_KEY):
        assert secret not in answers
        assert secret not in log.getvalue()
        assert secret.encode() not in told
    assert "changed: " in log.getvalue()


async def test_a_log_that_quotes_a_token_is_struck(place: Deployment) -> None:
    """Each of them, from whichever logger."""
    with logged(place, ENVIRON) as log:
        logging.getLogger("somebody").warning("got %s and %s", ALICE, "o" * 20)
    assert "got [secret] and [secret]" in log.getvalue()


def test_an_address_is_shown_without_what_opens_it() -> None:
    """Some providers take their key in the query."""
    assert bare_address("https://u:p@host:1/v1?api-key=k#f") == "https://host:1/v1"


async def admin_routes(folder: Path, environ: Mapping[str, str], more: str, host: str) -> int:
    """Count what answers below /admin in a deployment that would listen on `host`."""
    path = folder / "cutover.toml"
    path.write_text(configuration(folder, "http://127.0.0.1:1/v1", Setup(more=more)), "utf-8")
    async with application(
        SettingsWatcher(path, SPECS), {KEY: PLANTED_KEY, **environ}, host=host
    ) as built:
        return sum(path.startswith("/admin") for path in built.app.openapi()["paths"])


@pytest.mark.parametrize(
    ("host", "more", "expected"),
    [
        ("127.0.0.1", MORE, 14),
        ("::1", MORE, 14),
        ("localhost", MORE, 14),
        (EVERYWHERE, MORE, 0),
        ("::", MORE, 0),
        ("10.0.0.7", MORE, 0),
        ("router.example.org", MORE, 0),
        (EVERYWHERE, f"{MORE}anywhere = true\n", 14),
        ("127.0.0.1", "", 0),
    ],
)
async def test_it_answers_on_loopback_only_unless_told(
    tmp_path: Path, host: str, more: str, expected: int
) -> None:
    """By default an address others reach has no /admin at all; nor has a router without tokens."""
    more = more.replace("FOLDER", str(tmp_path))
    assert await admin_routes(tmp_path, ENVIRON, more, host) == expected


async def test_tokens_that_are_not_there_stop_the_start(tmp_path: Path) -> None:
    """Better no router than one whose operators are locked out, or everybody let in."""
    for environ in ({}, {VARIABLE: ""}, {VARIABLE: "short"}):
        with pytest.raises(TokensUnusable, match=VARIABLE) as caught:
            await admin_routes(tmp_path, environ, MORE.replace("FOLDER", str(tmp_path)), "::1")
        assert isinstance(caught.value, CutoverError)
    assert not (tmp_path / "store.sqlite").exists()


def test_loopback_addresses_are_known() -> None:
    """All of 127/8; and no name but one."""
    assert [host for host in ("127.8.8.8", "localhost", "::1") if not on_loopback(host)] == []
    assert [
        host for host in ("", EVERYWHERE, "localhost.example", "::ffff") if on_loopback(host)
    ] == []
