"""The OpenAPI document held to: whatever is drawn from it gets one of the answers it promises."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pytest
import schemathesis
from hypothesis import given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.deployment import Deployment, Setup, deployed
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from schemathesis.core.result import Ok

Case: TypeAlias = schemathesis.Case[Any]
APIOperation: TypeAlias = schemathesis.APIOperation[Any, Any, Any, Any]

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

TOKENS = "CUTOVER_TEST_TOKENS"
TOKEN = "fuzz:a-token-that-is-long-enough"
KEY = "CUTOVER_TEST_GATEWAY_KEY"
"""Of the gateway: the same token opens both, so that all requests are alike."""
HEADERS = {"authorization": f"Bearer {TOKEN.partition(':')[2]}"}
MORE = f"""
[metrics]
enabled = true
[admin]
token_env = "{TOKENS}"
[gateway]
enabled = true
listen = "users"
key_env = "{KEY}"
[rescue]
attempts = 1
"""
# The first is not for streams: the document calls one a text, the check looks at its events.
CHECKS = [
    response_schema_conformance,
    content_type_conformance,
    response_headers_conformance,
    status_code_conformance,
]
CLOSED = {"required": ["role", "content"], "additionalProperties": False}
LENGTHY = "SessionRequest"
"""The body of which texts are drawn that are too long."""
STREAM = "text/event-stream; charset=utf-8"


# The router draws pauses while a case is drawn in the fuzz's thread, and takes Hypothesis's turn.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
@pytest.mark.parametrize(
    "mode",
    # Both go the same ways: to follow one is enough.
    [
        pytest.param(mode, marks=[pytest.mark.untraced] * (mode is GenerationMode.NEGATIVE))
        for mode in GenerationMode
    ],
)
async def test_whatever_is_sent_is_answered_as_documented(
    tmp_path: Path, mode: GenerationMode
) -> None:
    """What the document allows and what it does not: no 5xx but 503, no status it does not name."""
    setup = Setup(more=MORE, shadow=100, environ={TOKENS: TOKEN, KEY: TOKEN.partition(":")[2]})
    async with deployed(tmp_path, setup) as place:
        document = await place.get("/openapi.json")
        await _let_models_be_reached(place, document)
        _forget_lengths(document, LENGTHY if mode is GenerationMode.NEGATIVE else "")
        await asyncio.to_thread(fuzz, place.url, document, mode)
        await place.settled()
        assert (await place.get("/healthz")) == {"status": "alive"}
        assert not failed(place)


def failed(place: Deployment) -> list[str]:
    """Return the accounts of shadows that the router itself failed."""
    return [line for line in place.books() if line.startswith("failed")]


def fuzz(url: str, document: dict[str, Any], mode: GenerationMode) -> None:
    """Ask every operation for as many cases as the profile's number allows."""
    schema = schemathesis.openapi.from_dict(document)
    examples = settings(max_examples=max(1, settings().max_examples // 10))
    for found in schema.get_all_operations():
        operation = cast("Ok[APIOperation]", found).ok()
        if mode is GenerationMode.NEGATIVE and not _takes_anything(operation):
            continue

        @examples
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Case) -> None:
            response = case.call(base_url=url, headers=HEADERS, timeout=PATIENCE_S)
            assert response.status_code < 500 or response.status_code == 503
            streams = response.headers.get("content-type") == [STREAM]
            case.validate_response(response, checks=CHECKS[streams:])

        ask()


async def _let_models_be_reached(place: Deployment, document: dict[str, Any]) -> None:
    """Draw models there are and messages of text: the document knows neither them nor providers."""
    async with place.session.get(f"{place.url}/v1/models", headers=HEADERS) as response:
        listed = await response.json()
    ids = [model["id"] for model in listed["data"] if model["id"] != "slow"]
    text = {"role": {"const": "user"}, "content": {"type": "string"}}
    for path, operations in document["paths"].items():
        if path.endswith("/v1/chat/completions"):
            body = operations["post"]["requestBody"]["content"]["application/json"]
            asked = body["schema"]["properties"]
            asked["model"] = {"enum": ids}
            asked["messages"] |= {"items": {"type": "object", "properties": text, **CLOSED}}


def _forget_lengths(part: Any, sparing: str) -> None:
    """Let patterns of texts say all, but in one body: to read one with its length takes a second.

    What is drawn to be allowed is a hundred times shorter; what is to be refused may be longer.
    """
    if isinstance(part, list):
        for inner in part:
            _forget_lengths(inner, sparing)
    elif isinstance(part, dict) and (not sparing or part.get("title") != sparing):
        if "pattern" in part:
            part.pop("maxLength", None)
        for inner in part.values():
            _forget_lengths(inner, sparing)


def _takes_anything(operation: APIOperation) -> bool:
    return bool(operation.body or operation.path_parameters or operation.query)
