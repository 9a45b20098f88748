"""The operations API: what it shows, what it changes, who did it, and that it is described."""

from __future__ import annotations

import json

import pytest

from effects.loop_time import loop_now
from router.config.loader import load_settings
from router.config.watcher import SettingsWatcher
from tests.support.deployment import HELD_S, Deployment
from tests.support.operations_client import Operator

pytestmark = pytest.mark.sockets

HELLO = {"message_id": "m", "content": "Hello"}


async def test_flows_are_shown(place: Deployment, alice: Operator) -> None:
    """Stage, settings in force, breakers, ledger and counts."""
    await place.ask(HELLO)
    await place.settled()
    status, page = await alice.get("/flows")
    assert status == 200
    assert page["version"] == place.watched.settings().version
    assert page["counts"]["requests"] == 1
    assert page["streams"] == {"open": 0}
    flow = next(one for one in page["flows"] if one["flow"] == "chat")
    assert (flow["flow"], flow["path"], flow["stage"]) == ("chat", "/chat/sse", "full")
    assert flow["settings"]["langgraph_percent"] == 100.0
    assert [breaker["state"] for breaker in flow["breakers"]] == ["closed", "closed"]
    assert flow["ledger"] == [{"state": "compared", "reason": "equal", "count": 1}]
    status, alone = await alice.get("/flows/chat")
    assert status == 200
    del flow["share"]["seconds"], alone["share"]["seconds"]  # it goes on
    assert alone == flow


async def test_models_are_shown_without_their_keys(alice: Operator) -> None:
    """Where they are, their limits, and that there is a key."""
    status, page = await alice.get("/models")
    assert status == 200
    (provider,) = page["providers"]
    assert provider["name"] == "simulated"
    assert provider["has_key"]
    assert provider["limits"]["idle"] == HELD_S
    assert [model["id"] for model in page["models"]] == ["gpt-4.1", "slow"]
    assert "sk-planted" not in json.dumps(page)


async def test_the_breakers_of_providers_are_shown_and_reset(
    place: Deployment, alice: Operator
) -> None:
    """As those of stacks: state and seconds; closed again at once, with a name on record."""
    (entry,) = [one for one in place.services.models.entries.values() if one.model_id == "gpt-4.1"]
    breaker = place.services.model.breakers.of(entry)
    now = loop_now()  # which leaves out what a busy machine keeps the loop waiting
    for _ in range(breaker.policy.calls):
        permit = breaker.permit(now)
        assert permit is not None
        breaker.record(permit, "failure", now)
    assert breaker.permit(now) is None
    ((shown,),) = [one["breakers"] for one in (await alice.get("/models"))[1]["providers"]]
    assert 0 < shown.pop("seconds") <= breaker.policy.rest
    failed = {"calls": breaker.policy.calls, "failures": breaker.policy.calls, "refused": 1}
    assert shown == {"model": "sim-chat", "state": "open", **failed}
    status, page = await alice.post("/providers/simulated/reset")
    assert status == 200
    assert page["providers"][0]["breakers"][0]["state"] == "closed"
    (change,) = alice.audited()
    assert (change["who"], change["what"]) == ("alice", "provider breakers reset")
    assert change["before"] == {"simulated/sim-chat": "open"}
    assert change["after"] == {"simulated/sim-chat": "closed"}


async def test_exchanges_are_shown(place: Deployment, alice: Operator) -> None:
    """The latest first: who was assigned, who served, how it ended, and when; not what was said."""
    answers = [await place.ask(body) for body in (HELLO, {"message_id": "unknown"})]
    exchanges = [answer.headers["x-cutover-exchange"] for answer in answers]
    await place.settled()
    status, page = await alice.get("/exchanges")
    assert status == 200
    assert [one["id"] for one in page["exchanges"]] == exchanges[::-1]
    refused, served = page["exchanges"]
    assert (refused["outcome"], refused["first_frame"]) == ("refused", None)
    assert (served["assigned"], served["served"], served["reason"]) == (
        "graph",
        "graph",
        "percent",
    )
    assert served["outcome"] == "completed"
    assert served["shadow"] == "compared(equal)"
    assert 0 < served["first_frame"] <= served["ended"]
    assert "Hello" not in json.dumps(page)
    assert [one["id"] for one in (await alice.get("/exchanges?limit=1"))[1]["exchanges"]] == [
        exchanges[1]
    ]


async def test_a_percentage_is_in_force_at_once(place: Deployment, alice: Operator) -> None:
    """In this process without waiting for the file to be read again; and the file says it too."""
    status, page = await alice.post("/flows/chat/percent", {"percent": 0})
    assert (status, page["settings"]["langgraph_percent"], page["stage"]) == (200, 0.0, "shadow")
    answer = await place.ask(HELLO)
    assert answer.headers["x-cutover-assigned"] == "legacy"
    assert (
        load_settings(place.watched.path, place.services.router.flows) == place.watched.settings()
    )
    assert place.watched.poll_once() == "same"
    status, page = await alice.post("/flows/chat/shadow", {"percent": 12.345})
    assert (status, page["settings"]["shadow_percent"]) == (200, 12.345)
    status, page = await alice.post("/flows/chat/percent", {"percent": 5, "enable": False})
    assert page["stage"] == "off"


async def test_every_router_that_reads_the_file_follows(place: Deployment, alice: Operator) -> None:
    """At its second look, half a second later."""
    other = SettingsWatcher(place.watched.path, place.services.router.flows)
    await alice.post("/flows/chat/rollback")
    assert [other.poll_once(), other.poll_once()] == ["settling", "taken"]
    assert other.settings() == place.watched.settings()


async def test_a_rollback_sends_everybody_to_legacy(place: Deployment, alice: Operator) -> None:
    """Twice is once; the percentage stays for the next attempt."""
    for _ in range(2):
        status, page = await alice.post("/flows/chat/rollback")
        assert (status, page["stage"]) == (200, "off")
        assert page["settings"]["langgraph_percent"] == 100.0
    assert (await place.ask(HELLO)).headers["x-cutover-assigned"] == "legacy"
    assert len(alice.audited()) == 1


async def test_each_change_is_on_record(alice: Operator, place: Deployment) -> None:
    """Who, when, what, before and after."""
    await alice.post("/flows/chat/percent", {"percent": 25.5})
    await Operator(place, "o" * 20).post("/breaker/chat/graph/reset")
    first, second = alice.audited()
    assert (first["who"], first["what"], first["flow"]) == ("alice", "percent", "chat")
    assert (first["before"], first["after"]) == (
        {"langgraph_percent": 100.0},
        {"langgraph_percent": 25.5},
    )
    assert second["who"] == "ops"
    assert (second["what"], second["before"]) == ("breaker reset", {"graph": "closed"})
    assert second["at"] >= first["at"] > 1_700_000_000_000_000


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/flows/chta/percent", {"percent": 1}, (404, "unknown_flow")),
        ("/flows/chta/rollback", None, (404, "unknown_flow")),
        ("/breaker/chat/grahp/reset", None, (404, "unknown_stack")),
        ("/providers/unknown/reset", None, (404, "unknown_provider")),
        ("/flows/chat/percent", None, (400, "empty_body")),
        ("/flows/chat/percent", b"{", (400, "not_json")),
        ("/flows/chat/percent", {}, (422, "invalid_request")),
        ("/flows/chat/percent", {"percent": 100.5}, (422, "invalid_request")),
        ("/flows/chat/percent", {"percent": 0.0005}, (422, "invalid_request")),
        ("/flows/chat/percent", {"percent": "5"}, (422, "invalid_request")),
        ("/flows/chat/percent", {"percent": 5, "enabel": True}, (422, "invalid_request")),
        ("/flows/chat/shadow", {"percent": -1}, (422, "invalid_request")),
        ("/flows/chat/shadow", b"[" * 10_001, (413, "body_too_large")),
    ],
)
async def test_what_makes_no_sense_changes_nothing(
    place: Deployment, alice: Operator, path: str, body: object, expected: tuple[int, str]
) -> None:
    """A problem with its word, the file as it was, nothing on record."""
    before = place.watched.path.read_bytes()
    said, problem = await alice.post(path, body)
    assert (said, problem["code"]) == expected
    assert place.watched.path.read_bytes() == before
    assert alice.audited() == []


async def test_a_file_nobody_follows_is_not_edited(place: Deployment, alice: Operator) -> None:
    """409, with what is wrong with it; the last good settings stay in force."""
    place.edit(place.watched.path.read_text("utf-8") + "[sevrer]\n")
    said, problem = await alice.post("/flows/chat/rollback")
    assert (said, problem["code"]) == (409, "not_written")
    assert "did you mean 'server'?" in problem["detail"]
    assert (await alice.get("/flows"))[1]["fault"] is not None
    assert place.watched.settings().flows["chat"].stage == "full"


@pytest.mark.parametrize("limit", ["0", "1001", "many", ""])
async def test_a_bad_limit_is_a_problem(alice: Operator, limit: str) -> None:
    """As everywhere: a word, and not what was sent."""
    said, problem = await alice.get(f"/exchanges?limit={limit}")
    assert (said, problem["code"]) == (422, "invalid_request")


async def test_the_document_describes_it(place: Deployment) -> None:
    """Every route with its token, its body and its answers."""
    document = await place.get("/openapi.json")
    paths = {path: found for path, found in document["paths"].items() if "/admin" in path}
    assert {path: " ".join(found) for path, found in paths.items()} == {
        "/admin/flows": "get",
        "/admin/flows/{flow}": "get",
        "/admin/models": "get post",
        "/admin/models/{model_id}": "delete",
        "/admin/exchanges": "get",
        "/admin/pins": "get",
        "/admin/flows/{flow}/pins": "delete",
        "/admin/pauses": "get",
        "/admin/pauses/{hitl_id}": "delete",
        "/admin/flows/{flow}/percent": "post",
        "/admin/flows/{flow}/shadow": "post",
        "/admin/flows/{flow}/rollback": "post",
        "/admin/breaker/{flow}/{stack}/reset": "post",
        "/admin/providers/{provider}/reset": "post",
    }
    for operation in (one for found in paths.values() for one in found.values()):
        assert operation["security"] == [{"HTTPBearer": []}]
        assert {"200", "401", "403"} <= set(operation["responses"])
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        assert schema["properties"]
    share = paths["/admin/flows/{flow}/percent"]["post"]["requestBody"]
    assert share["content"]["application/json"]["schema"]["required"] == ["percent"]
