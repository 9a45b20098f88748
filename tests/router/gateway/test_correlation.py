"""Which run a call names, where a path leads, what is sent on, and how calls are refused."""

import tomllib
from pathlib import Path

import httpx
import msgspec
import pytest

from cutover.errors import Fenced, Paused, Refused, TapeMiss, WriteDiffers
from router.gateway.app import arrived
from router.gateway.providers import Provider, outgoing_headers, target_of
from router.gateway.refusals import answer_of, form_of, refusal_of

RUN = "4f" * 16
TRACE = f"00-{RUN}-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        ("/v1/chat/completions", {}, ("", "")),
        (f"/runs/{RUN}/v1/embeddings", {}, (RUN, "path")),
        (f"/runs/{RUN}/v1/embeddings", {"x-cutover-run": "other"}, (RUN, "path")),
        (f"/runs/{RUN}", {}, ("", "")),
        ("/v1/models", {"x-cutover-run": RUN, "traceparent": TRACE}, (RUN, "header")),
        ("/v1/models", {"traceparent": TRACE}, (RUN, "trace")),
        ("/v1/models", {"traceparent": f"{TRACE}-more"}, (RUN, "trace")),
        ("/v1/models", {"traceparent": TRACE.upper()}, ("", "")),
        ("/v1/models", {"traceparent": "00-short-1-01"}, ("", "")),
    ],
)
def test_a_call_names_its_run_by_path_header_or_trace(
    path: str, headers: dict[str, str], expected: tuple[str, str]
) -> None:
    """The first of the three counts."""
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    found = arrived({"method": "GET", "path": path, "query_string": b"", "headers": raw})
    assert (found.run, found.how) == expected


PROVIDERS = [
    Provider("openai", "https://api.openai.com/v1"),
    Provider("anthropic", "https://api.anthropic.com"),
    Provider("azure", "https://x.example:8443/openai/"),
]


PATHS = tomllib.loads(Path(__file__).with_name("paths.toml").read_text("utf-8"))["paths"]


@pytest.mark.parametrize(("path", "origin", "url"), PATHS)
def test_a_path_leads_to_a_declared_provider(path: str, origin: str, url: str) -> None:
    """By its name, by default, or by the origin that a service's transport meant."""
    found = target_of(PROVIDERS, path, "", origin)
    assert (str(found[1]) if found else "") == url


def test_a_query_goes_on() -> None:
    """As it came."""
    found = target_of(PROVIDERS, "/azure/x", "api-version=1&a=%20", "")
    assert found is not None
    assert str(found[1]).endswith("/openai/x?api-version=1&a=%20")


@pytest.mark.parametrize(
    ("headers", "gateway", "provider", "sent"),
    [
        ({"authorization": "Bearer own"}, "", "", {"authorization": "Bearer own"}),
        ({"authorization": "Bearer gate"}, "gate", "real", {"authorization": "Bearer real"}),
        ({"x-api-key": "gate"}, "gate", "real", {"x-api-key": "real"}),
        ({"api-key": "gate"}, "gate", "", {}),
        (
            {"x-cutover-key": "gate", "authorization": "Bearer own"},
            "gate",
            "real",
            {"authorization": "Bearer own"},
        ),
        ({"x-cutover-run": RUN, "host": "here", "connection": "close", "te": "gzip"}, "", "", {}),
        ({"accept-encoding": "gzip", "openai-beta": "x"}, "", "", {"openai-beta": "x"}),
        ({"x_cutover_key": "gate"}, "gate", "real", {}),
    ],
)
def test_a_provider_gets_its_own_key_and_never_the_gateways(
    headers: dict[str, str], gateway: str, provider: str, sent: dict[str, str]
) -> None:
    """What a caller sends as the gateway's key is replaced in its place."""
    to = Provider("openai", "https://api.openai.com/v1", provider)
    found = dict(outgoing_headers(headers.items(), gateway, to))
    assert found == sent | {"accept-encoding": "identity"}


@pytest.mark.parametrize(
    ("refusal", "status", "code", "tried_again"),
    [
        (refusal_of(Fenced("run")), 410, "fenced", False),
        (refusal_of(TapeMiss("model.chat")), 410, "tape_miss", False),
        (refusal_of(Paused("question")), 410, "paused", False),
        (refusal_of(WriteDiffers("orders")), 410, "write_differs", False),
        (refusal_of(httpx.ConnectError("")), 502, "provider_unreachable", True),
        (refusal_of(httpx.ReadTimeout("")), 504, "provider_timeout", True),
        (refusal_of(TimeoutError()), 504, "provider_timeout", True),
        (Refused(401, "wrong_key", "no"), 401, "wrong_key", False),
    ],
)
def test_a_refusal_says_whether_to_try_again(
    refusal: Refused, status: int, code: str, tried_again: bool
) -> None:
    """Each in all three forms; what a client would do wrong by repeating says so."""
    assert (refusal.status, refusal.code) == (status, code)
    openai = answer_of(refusal, "openai")
    assert msgspec.json.decode(openai.body)["error"]["code"] == code
    anthropic = msgspec.json.decode(answer_of(refusal, "anthropic").body)
    assert anthropic["type"] == "error"
    assert code in anthropic["error"]["message"]
    problem = msgspec.json.decode(answer_of(refusal, "problem").body)
    assert (problem["status"], problem["code"]) == (status, code)
    assert (openai.headers.get("x-should-retry") != "false") is tried_again


@pytest.mark.parametrize(
    ("path", "headers", "form"),
    [
        ("/anthropic/v1/messages", {}, "anthropic"),
        ("/x/y", {"anthropic-version": "2023-06-01"}, "anthropic"),
        ("/v1/chat/completions", {}, "openai"),
        ("/openai/embeddings", {}, "openai"),
        ("/openai/files", {}, "problem"),
    ],
)
def test_errors_have_the_form_that_the_caller_reads(
    path: str, headers: dict[str, str], form: str
) -> None:
    """By the path, and by what Anthropic's SDK sends."""
    assert form_of(path, headers) == form
