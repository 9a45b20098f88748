"""Models through the operations API: in force with the next request, lasting, on record."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from contract.flows import SPECS
from cutover.application import application
from router.admin.history import History
from router.admin.pages import NewModel, NewProvider
from router.config.loader import load_settings
from router.config.schema import ModelSettings, ProviderSettings
from router.config.watcher import SettingsWatcher
from tests.support.deployment import KEY, PLANTED_KEY, Deployment, Setup, deployed
from tests.support.operations_client import ALICE, ENVIRON, MORE, Operator

pytestmark = pytest.mark.sockets

FAST = "acme/fast-1.5:free"


@asynccontextmanager
async def operated(folder: Path) -> AsyncIterator[Deployment]:
    """Deploy with an operations API and a history."""
    history = f"sqlite:///{folder}/history.sqlite"
    more = MORE.replace("FOLDER", str(folder))
    async with deployed(folder, Setup(more=more, environ=ENVIRON, history=history)) as running:
        yield running


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Deployment]:
    """Return a deployment."""
    async with operated(tmp_path) as running:
        yield running


def fast(place: Deployment, **more: Any) -> dict[str, Any]:
    """Describe a new model of a new provider, which is the simulated one once more."""
    base_url = place.watched.settings().providers["simulated"].base_url
    provider = {"name": "acme", "base_url": base_url, "key_env": KEY, "idle_seconds": 7}
    return {"id": FAST, "provider": provider, "model": "sim-chat", "fallbacks": ["slow"], **more}


async def asked(place: Deployment, model_id: str, message_id: str = "m") -> list[str]:
    """Ask a model; returns the steps, or the code of the refusal."""
    config = {"model_id": model_id}
    body = {"message_id": message_id, "content": "Hello", "model_config": config}
    answer = await place.ask(body)
    return answer.steps if answer.status == 200 else [answer.problem["code"]]


async def test_a_model_serves_the_next_request(place: Deployment, alice: Operator) -> None:
    """Added with its provider, shown, changed and removed, without a restart; the file says so."""
    assert await asked(place, FAST) == ["unknown_model"]
    status, page = await alice.post("/models", fast(place))
    assert status == 200
    assert (await alice.get("/models"))[1] == page
    (model,) = [one for one in page["models"] if one["id"] == FAST]
    assert (model["provider"], model["model"], model["fallbacks"]) == ("acme", "sim-chat", ["slow"])
    (provider,) = [one for one in page["providers"] if one["name"] == "acme"]
    assert (provider["key_env"], provider["has_key"], provider["limits"]["idle"]) == (KEY, True, 7)
    assert (await asked(place, FAST))[-2:] == ["SUCCESS", "END"]
    assert FAST in load_settings(place.watched.path, place.services.router.flows).models
    changed = {"id": FAST, "provider": "acme", "model": "sim-chat?fail=500", "fallbacks": []}
    assert (await alice.post("/models", changed))[0] == 200
    assert "FAILED" in await asked(place, FAST, "m2")
    status, page = await alice.ask("DELETE", f"/models/{FAST}")
    assert (status, [one["id"] for one in page["models"]]) == (200, ["gpt-4.1", "slow"])
    assert await asked(place, FAST, "m3") == ["unknown_model"]


async def test_it_is_lasting_and_reaches_every_router_of_the_file(
    place: Deployment, alice: Operator
) -> None:
    """At their second look, half a second later; and those that start later read it."""
    path, environ = place.watched.path, {KEY: PLANTED_KEY, **ENVIRON}
    watched = SettingsWatcher(path, SPECS)
    async with application(watched, environ) as other:
        assert (await alice.post("/models", fast(place)))[0] == 200
        assert [watched.poll_once(), watched.poll_once()] == ["settling", "taken"]
        mine = place.services.models.entry(FAST)
        assert other.services.models.entry(FAST) == mine
        assert (await alice.ask("DELETE", f"/models/{FAST}"))[0] == 200
        assert [watched.poll_once(), watched.poll_once()] == ["settling", "taken"]
        assert FAST not in other.services.models.entries
        await alice.post("/models", fast(place))
    async with application(SettingsWatcher(path, SPECS), environ) as restarted:
        assert restarted.services.models.entry(FAST) == mine


async def test_each_change_is_on_record(tmp_path: Path) -> None:
    """Who, when, what, before and after, once; in the audit and in the history."""
    async with operated(tmp_path) as place:
        alice = Operator(place, ALICE)
        await alice.post("/models", fast(place))
        await alice.post("/models", fast(place))  # nothing changes
        await alice.post("/models", fast(place, fallbacks=["gpt-4.1"]))
        await alice.ask("DELETE", f"/models/{FAST}")
        added, changed, removed = alice.audited()
    key = f"models.{FAST}."
    assert [(one["who"], one["what"], one["flow"]) for one in (added, changed, removed)] == [
        ("alice", "model added", ""),
        ("alice", "model changed", ""),
        ("alice", "model removed", ""),
    ]
    assert added["before"][f"{key}provider"] is None
    assert added["after"][f"{key}provider"] == "acme"
    assert "providers.acme.base_url" in added["after"]
    assert (changed["before"], changed["after"]) == (
        {f"{key}fallbacks": ["slow"]},
        {f"{key}fallbacks": ["gpt-4.1"]},
    )
    assert removed["after"][f"{key}provider"] is None
    async with History.open(tmp_path / "history.sqlite") as history:
        entries = await history.entries()
    told = [(one.who, bytes(one.after)) for one in entries if one.what == f"{key}fallbacks"]
    assert told == [("alice", b"null"), ("alice", b'["gpt-4.1"]'), ("alice", b'["slow"]')]
    assert {one.who for one in entries} == {"alice"}


@pytest.mark.parametrize(
    ("change", "expected", "why"),
    [
        ({"provider": "absent"}, (422, "invalid_request"), "unknown provider"),
        ({"fallbacks": ["absent"]}, (422, "invalid_request"), "unknown model"),
        ({"fallbacks": [FAST]}, (422, "invalid_request"), "its own fallback"),
        ({"input_price": -1}, (422, "invalid_request"), "input_price"),
        ({"key": "sk-secret"}, (422, "invalid_request"), ""),
        ({"id": 'a"b'}, (422, "invalid_request"), ""),
        ({"id": ""}, (422, "invalid_request"), ""),
        (
            {"provider": {"name": "acme", "base_url": "http://h/v1", "key_env": "NOT_SET"}},
            (422, "invalid_request"),
            "needs its key in the variable 'NOT_SET'",
        ),
        (
            {"provider": {"name": "acme", "base_url": "http://h/v1", "key_env": "sk-sec.ret"}},
            (422, "invalid_request"),
            "must be the name of an environment variable",
        ),
        (
            {"provider": {"name": "acme", "base_url": "http://u:sk-secret@h/v1"}},
            (422, "invalid_request"),
            "provider.base_url",
        ),
        (
            {"provider": {"name": "acme", "base_url": "http://h/v1?key=sk-secret"}},
            (422, "invalid_request"),
            "provider.base_url",
        ),
    ],
)
async def test_what_cannot_be_used_changes_nothing(
    place: Deployment,
    alice: Operator,
    change: dict[str, Any],
    expected: tuple[int, str],
    why: str,
) -> None:
    """A problem that says why, and no secret; the file as it was, nothing on record."""
    before = place.watched.path.read_bytes()
    status, problem = await alice.post("/models", fast(place) | change)
    assert (status, problem["code"]) == expected
    assert why in problem.get("detail", "")
    assert "sk-sec" not in str(problem)
    assert place.watched.path.read_bytes() == before
    assert alice.audited() == []


@pytest.mark.parametrize(
    ("model_id", "expected", "why"),
    [
        ("absent", (404, "unknown_model"), "no model of that id"),
        ("slow", (409, "model_in_use"), f"models.{FAST}.fallbacks: change that first"),
        ("gpt-4.1", (409, "model_in_use"), "flows.chat.options.model_id, flows.companion"),
    ],
)
async def test_a_model_in_use_stays(
    place: Deployment, alice: Operator, model_id: str, expected: tuple[int, str], why: str
) -> None:
    """While another one falls back to it, or a flow uses it by default."""
    await alice.post("/models", fast(place))
    before = place.watched.path.read_bytes()
    status, problem = await alice.ask("DELETE", f"/models/{model_id}")
    assert (status, problem["code"]) == expected
    assert why in problem["detail"]
    assert place.watched.path.read_bytes() == before
    assert len(alice.audited()) == 1


async def test_models_of_the_environment_are_not_lost(tmp_path: Path) -> None:
    """Without models in the file they come from OPENAI_API_KEY: one that is added hides these."""
    variables = {**ENVIRON, "OPENAI_API_KEY": "sk-of-the-environment"}
    more = MORE.replace("FOLDER", str(tmp_path))
    async with deployed(tmp_path, Setup(more=more, environ=variables)) as place:
        text = place.watched.path.read_text("utf-8")
        place.edit(text[: text.index("[providers")] + text[text.index("[admin]") :])
        alice = Operator(place, ALICE)
        assert [one["id"] for one in (await alice.get("/models"))[1]["models"]] == ["gpt-4.1"]
        provider = {"name": "acme", "base_url": "http://127.0.0.1:1/v1"}
        new = {"id": FAST, "provider": provider}
        status, problem = await alice.post("/models", new)
        assert (status, problem["code"]) == (422, "invalid_request")
        assert "'gpt-4.1' would be none of the models: add that one first" in problem["detail"]
        status, problem = await alice.ask("DELETE", "/models/gpt-4.1")
        assert (status, problem["code"]) == (409, "not_in_file")
        assert (await alice.post("/models", new | {"id": "gpt-4.1"}))[0] == 200
        assert (await alice.post("/models", new))[0] == 200


def test_a_body_has_the_keys_of_the_configuration() -> None:
    """All of them, and its id or name besides."""
    pairs = ((NewModel, ModelSettings, {"id"}), (NewProvider, ProviderSettings, {"name"}))
    for body, section, more in pairs:
        assert set(body.__struct_fields__) == {*section.model_fields, *more}
