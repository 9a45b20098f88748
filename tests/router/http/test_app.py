"""The HTTP application beside the flows: health, feedback, and the document of it all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastapi.openapi.models import OpenAPI

from contract.records import FeedbackRecord
from tests.support.deployment import Deployment, Setup, captured, deployed

pytestmark = pytest.mark.sockets

HELLO = {"message_id": "m", "content": "Hello"}
ROUTES = {
    "/chat/sse": "post",
    "/chat": "post",
    "/chat/image": "post",
    "/hitl/respond": "post",
    "/hitl/continue": "post",
    "/ops/react": "post",
    "/ops/resume": "post",
    "/ops/sessions/{session_id}": "get",
    "/api/chat": "post",
    "/api/v1/chat": "post",
    "/api/v1/sessions/{session_id}": "delete",
    "/api/v1/sessions/{session_id}/messages": "get",
    "/feedback": "post",
    "/healthz": "get",
    "/readyz": "get",
}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Deployment]:
    """Deploy with everything shadowed."""
    async with deployed(tmp_path, Setup(stack="graph", shadow=100)) as running:
        yield running


async def send(place: Deployment, data: bytes) -> tuple[int, Any]:
    """Send feedback; gives status and answer."""
    async with place.session.post(f"{place.url}/feedback", data=data) as response:
        body = await response.read()
    return response.status, msgspec.json.decode(body) if body else None


async def kept(place: Deployment) -> list[FeedbackRecord]:
    """Return the feedback written down so far."""
    await place.services.captures.flush()
    lines = captured(place.folder, "feedback").splitlines()
    return [msgspec.json.decode(line, type=FeedbackRecord) for line in lines]


async def test_feedback_is_joined_to_the_assigned_stack(place: Deployment) -> None:
    """The exchange's id is in a response header."""
    exchange = (await place.ask(HELLO)).headers["x-cutover-exchange"]
    body = {"exchange_id": exchange, "score": 1, "comment": "字 🍅"}
    assert await send(place, msgspec.json.encode(body)) == (202, None)
    [joined] = await kept(place)
    assert (joined.exchange, joined.flow, joined.assigned) == (exchange, "chat", "graph")
    assert (joined.score, joined.comment) == (1, "字 🍅")


async def test_feedback_on_an_exchange_nobody_served_is_refused(place: Deployment) -> None:
    """An id that was made up, or changed in one digit, is no receipt."""
    exchange = (await place.ask(HELLO)).headers["x-cutover-exchange"]
    changed = ("1" if exchange[0] == "0" else "0") + exchange[1:]
    for forged in ("0" * 40, "0" * 32, changed, "made-up", "字" * 40):
        body = {"exchange_id": forged, "score": 1}
        status, problem = await send(place, msgspec.json.encode(body))
        assert (status, problem["code"]) == (404, "unknown_exchange")
        assert "x-cutover-exchange" in problem["detail"]
    assert await kept(place) == []


OLD, NEW = "the old key of all hosts", "the new key of all hosts"


@pytest.mark.parametrize(
    ("more", "before", "after"),
    [
        ("", {}, {}),
        ("", {"PSEUDONYMS": OLD}, {"PSEUDONYMS": OLD}),
        ('receipt_key_env = "RECEIPTS"', {"RECEIPTS": OLD}, {"RECEIPTS": f"{NEW},{OLD}"}),
    ],
    ids=["stored", "derived", "rotated"],
)
async def test_feedback_is_taken_by_any_router_with_the_key(
    tmp_path: Path, more: str, before: dict[str, str], after: dict[str, str]
) -> None:
    """Of a worker beside it, or started again: with these captures or with a configured key."""
    named = "PSEUDONYMS" if "PSEUDONYMS" in before else ""
    first_setup, second_setup = (
        Setup(environ=keys, pseudonym_key_env=named, server=more, stack="graph")
        for keys in (before, after)
    )
    async with deployed(tmp_path, first_setup) as first:
        exchange = (await first.ask(HELLO)).headers["x-cutover-exchange"]
    other = tmp_path / "other" if before else tmp_path
    other.mkdir(exist_ok=True)
    async with deployed(other, second_setup) as second:
        body = {"exchange_id": exchange, "score": -1}
        assert await send(second, msgspec.json.encode(body)) == (202, None)
        [found] = await kept(second)
    assert (found.exchange, found.flow, found.assigned) == (exchange, "chat", "graph")


async def test_feedback_beyond_the_rate_is_refused(tmp_path: Path) -> None:
    """On one exchange; what is sent on another is taken, and each is counted as sent."""
    rate = "[rate]\nper_minute = 0.001\nburst = 2\n"
    async with deployed(tmp_path, Setup(stack="graph", more=rate)) as place:
        first, second = [
            (await place.ask({**HELLO, "message_id": name})).headers["x-cutover-exchange"]
            for name in ("first", "second")
        ]
        answers = [
            await send(place, msgspec.json.encode({"exchange_id": exchange, "score": score}))
            for exchange, score in ((first, 1), (first, -1), (first, -1), (second, 1))
        ]
        assert [status for status, _ in answers] == [202, 202, 429, 202]
        assert answers[2][1]["code"] == "rate_limited"
        assert [(one.exchange, one.score) for one in await kept(place)] == [
            (first, 1),
            (first, -1),
            (second, 1),
        ]
        assert place.services.router.feedbacks == {
            ("chat", "graph", 1): 2,
            ("chat", "graph", -1): 1,
        }


BAD_FEEDBACK = [
    (b"", 400, "empty_body"),
    (b"score=1", 400, "not_json"),
    (b'{"exchange_id":"e","score":1,"comment":"\\ud800"}', 400, "not_json"),
    (
        b'{"exchange_id":"e","score":1,"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        400,
        "too_deep",
    ),
    (b'{"exchange_id":"e"}', 422, "invalid_request"),
    (b'{"score":1}', 422, "invalid_request"),
    (b'{"exchange_id":"","score":1}', 422, "invalid_request"),
    (b'{"exchange_id":"e","score":2}', 422, "invalid_request"),
    (b'{"exchange_id":"e","score":0.5}', 422, "invalid_request"),
    (b'{"exchange_id":"e","score":true}', 422, "invalid_request"),
    (b'{"exchange_id":"e","score":"1"}', 422, "invalid_request"),
    (b'{"exchange_id":"e","score":1,"comment":"a\\u0000b"}', 422, "invalid_request"),
    (b'{"exchange_id":"e","score":1,"comment":"%s"}' % (b"x" * 8_193), 422, "invalid_request"),
    (b'{"exchange_id":"%s","score":1}' % (b"x" * 129), 422, "invalid_request"),
    (b"[]", 422, "invalid_request"),
]


async def test_bad_feedback_is_refused(place: Deployment) -> None:
    """As a problem, and nothing is kept."""
    for body, status, code in BAD_FEEDBACK:
        said, problem = await send(place, body)
        assert (said, problem["code"]) == (status, code), body[:80]
    assert await kept(place) == []


async def test_health_needs_nothing(place: Deployment) -> None:
    """The process lives."""
    assert await place.get("/healthz") == {"status": "alive"}


async def test_readiness_tells_stages_and_books(place: Deployment) -> None:
    """What is served, what was done, where shadows ended; nothing is wrong."""
    await place.ask(HELLO)
    await place.ask({"message_id": "unknown"})
    await place.settled()
    ready = await place.get("/readyz")
    assert (ready["status"], ready["faults"]) == ("ready", {})
    off = dict.fromkeys(("companion", "ops", "pipeline", "session"), "off")
    assert ready["stages"] == {"chat": "full", **off}
    assert ready["counts"]["requests"] == 2
    assert ready["ledger"] == {
        "open": 0,
        "waiting": 0,
        "lines": [{"flow": "chat", "state": "compared", "reason": "equal", "count": 2}],
    }


async def test_readiness_is_told_while_captures_are_dropped(place: Deployment) -> None:
    """Who has lost records must still hear it."""
    await place.services.captures.aclose()
    body = {"exchange_id": place.services.router.exchange_ids.new("chat", "graph"), "score": 1}
    assert await send(place, msgspec.json.encode(body)) == (202, None)
    ready = await place.get("/readyz")
    assert ready["captures"]["dropped"] == {"closed": 1}
    assert ready["status"] == "degraded"
    assert ready["faults"]["captures"].endswith("; since the start: 1 closed")


async def test_no_model_is_a_fault_from_the_start(tmp_path: Path) -> None:
    """The router starts all the same: models may come with an edit."""
    async with deployed(tmp_path) as place:
        text = place.watched.path.read_text("utf-8")
        place.edit(text[: text.index("[providers")])
        ready = await place.get("/readyz")
        assert ready["status"] == "degraded"
        assert "OPENAI_API_KEY" in ready["faults"]["models"]
        place.edit(text)
        assert (await place.get("/readyz"))["status"] == "ready"


async def test_a_default_model_nobody_registered_is_a_fault(tmp_path: Path) -> None:
    """Every request that names no model would be refused."""
    async with deployed(tmp_path) as place:
        text = place.watched.path.read_text("utf-8")
        place.edit(text.replace("[flows.chat.options]", '[flows.chat.options]\nmodel_id = "other"'))
        ready = await place.get("/readyz")
        assert ready["status"] == "degraded"
        assert "is none of them" in ready["faults"]["models"]
        place.edit(text)
        assert (await place.get("/readyz"))["status"] == "ready"


async def test_the_document_is_valid_and_lists_every_route(place: Deployment) -> None:
    """Every route with its method, and every status it can answer with."""
    document = await place.get("/openapi.json")
    OpenAPI.model_validate(document)
    assert {path: next(iter(found)) for path, found in document["paths"].items()} == ROUTES
    statuses = {
        path: set(document["paths"][path][method]["responses"]) for path, method in ROUTES.items()
    }
    stream = {"200", "400", "404", "408", "409", "413", "422", "429", "500", "503"}
    assert statuses == {
        "/chat/sse": stream,
        "/chat": stream,
        "/chat/image": stream,
        "/hitl/respond": {"200", "400", "404", "408", "409", "410", "413", "422", "500", "503"},
        "/hitl/continue": {*stream, "410"},
        "/ops/react": stream,
        "/ops/resume": {*stream, "410"},
        "/ops/sessions/{session_id}": {"200", "404", "409", "422", "500", "503"},
        "/api/chat": stream,
        "/api/v1/chat": stream,
        "/api/v1/sessions/{session_id}": {"204", "404", "409", "422", "500", "503"},
        "/api/v1/sessions/{session_id}/messages": {"200", "404", "409", "422", "500", "503"},
        "/feedback": {"202", "400", "404", "408", "413", "422", "429", "500", "503"},
        "/healthz": {"200"},
        "/readyz": {"200", "503"},
    }


async def test_the_document_describes_bodies_and_problems(place: Deployment) -> None:
    """Requests with their limits, in JSON Schema's own dialect, and problems as they are."""
    document = await place.get("/openapi.json")
    assert "\\\\Z" not in msgspec.json.encode(document).decode()
    assert "$ref" not in msgspec.json.encode(document["paths"]["/chat/sse"]).decode()
    body = schema(document["paths"]["/chat/sse"]["post"]["requestBody"], "application/json")
    assert body["required"] == ["message_id"]
    assert set(body["properties"]) >= {"message_id", "content", "model_config"}
    comment = schema(document["paths"]["/feedback"]["post"]["requestBody"], "application/json")
    assert comment["properties"]["score"] == {"enum": [-1, 0, 1]}
    for path in ("/chat/sse", "/feedback"):
        answer = document["paths"][path]["post"]["responses"]["422"]
        problem = schema(answer, "application/problem+json")
        assert set(problem["properties"]) == {"title", "status", "code", "detail"}


def schema(described: Any, media_type: str) -> Any:
    """Return the schema under a media type."""
    return described["content"][media_type]["schema"]


PAGE = "https://chat.example.org"


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Deployment]:
    """Deploy for a page of another origin."""
    async with deployed(tmp_path, Setup(cors_origin=PAGE)) as running:
        yield running


async def test_a_page_of_another_origin_may_ask(shared: Deployment) -> None:
    """A browser asks first, then reads the stream and the id that feedback names."""
    wanted = {
        "origin": PAGE,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
    }
    async with shared.session.options(f"{shared.url}/chat/sse", headers=wanted) as allowed:
        assert allowed.status == 200
        assert allowed.headers["access-control-allow-origin"] == PAGE
        assert allowed.headers["access-control-allow-credentials"] == "true"
        assert allowed.headers["access-control-allow-headers"] == "content-type"
    answered = await shared.ask(HELLO, headers={"origin": PAGE})
    assert answered.status == 200
    assert answered.headers["access-control-allow-origin"] == PAGE
    assert "x-cutover-exchange" in answered.headers["access-control-expose-headers"]
    assert answered.body.endswith(b'{"step":"END"}\n\n')


@pytest.mark.parametrize(
    ("path", "origin"),
    [
        pytest.param("/chat/sse", "https://elsewhere.example.org", id="another page"),
        pytest.param("/metrics", PAGE, id="the metrics"),
        pytest.param("/admin/flows", PAGE, id="the operations"),
    ],
)
async def test_what_is_not_shared_stays_so(shared: Deployment, path: str, origin: str) -> None:
    """A browser refuses to read what does not name its page."""
    async with shared.session.get(shared.url + path, headers={"origin": origin}) as answer:
        assert "access-control-allow-origin" not in answer.headers


async def test_nothing_is_shared_unless_so_configured(place: Deployment) -> None:
    """As before: same-origin pages and servers alone."""
    answered = await place.ask(HELLO, headers={"origin": PAGE})
    assert "access-control-allow-origin" not in answered.headers


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
async def test_no_page_loads_scripts_from_elsewhere(place: Deployment, path: str) -> None:
    """The document is at /openapi.json; a page for it would fetch its scripts from a CDN."""
    async with place.session.get(place.url + path) as answer:
        assert answer.status == 404


async def test_an_unknown_path_is_told_which_are_served(place: Deployment) -> None:
    """A method too; what is below the operations' own paths says nothing of the flows."""
    for method, path, status in (
        ("POST", "/chat/see", 404),
        ("GET", "/chat/sse", 405),
        ("GET", "/", 404),
        ("GET", "/admin/nothing", 404),
    ):
        async with place.session.request(method, place.url + path) as response:
            problem = msgspec.json.decode(await response.read())
        assert (response.status, problem["status"]) == (status, status)
        named = "served are POST /api/chat, POST /api/v1/chat, POST /chat, POST /chat/image, "
        assert problem.get("detail", "").startswith(named) == (not path.startswith("/admin")), path


async def test_a_body_that_does_not_fit_is_told_what_is_due(place: Deployment) -> None:
    """The fields of the flow's requests; those that are optional have a mark."""
    for data, status in ((b'{"content":1}', 422), (b"[]", 422), (b"", 400)):
        answer = await place.ask(data)
        assert answer.status == status
        due = 'flow \'chat\', which is built in, expects {"message_id": string, "content"?: string'
        assert due in answer.problem["detail"]
    async with place.session.post(f"{place.url}/api/v1/chat", data=b"{}") as response:
        problem = msgspec.json.decode(await response.read())
    assert problem["detail"].startswith("Object missing required field `message`")
    assert '{"message": string, "session_id"?: string' in problem["detail"]
