"""What clients send: read, known by its bytes without blocking the loop, and refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import EffectFailed, Fault, FaultCode, Fenced, TapeCut, TapeMiss
from contract.model import PassedCall
from effects.tape import canonical
from router.gateway import requests
from router.gateway.refusals import GatewayRefused, refusal_of
from router.gateway.requests import PIECE, call_key, read_request
from tests.support.clocks import counted_turns

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda more: st.lists(more) | st.dictionaries(st.text("aé€𝄞z"), more),
    max_leaves=30,
)
LARGE: dict[str, Any] = {
    "one text": [{"role": "user", "content": "x" * 4 * PIECE}],
    "many messages": [{"role": "user", "content": f"text {n}"} for n in range(20_000)],
    "many parts": [{"content": [{"b": n, "a": [n]} for n in range(20_000)], "role": "user"}],
    "texts among others": [{"a": 1}, {"content": "y" * 2 * PIECE}, {"b": 2}, {}],
    "deep": [[[[{"z": "z" * PIECE, "a": ["a" * PIECE, 1]}]]]],
}


def body(messages: Any, **more: Any) -> bytes:
    """Write a request as many do, with a blank here and there."""
    return json.dumps({"model": "m", "messages": messages, **more}, ensure_ascii=False).encode()


def whole(messages: Any, **more: Any) -> bytes:
    """Return the key of a call that was decoded whole."""
    return canonical(PassedCall(model_id="m", messages=messages, more=more))


@pytest.mark.parametrize("shape", LARGE)
async def test_a_large_call_has_the_key_it_had(shape: str) -> None:
    """Tapes that were written with the body decoded whole are found again."""
    tools = [{"type": "function", "function": {"name": f"f{n}", "a": {}}} for n in range(3_000)]
    asked = read_request(body(LARGE[shape], tools=tools, temperature=0.5))
    assert await call_key(asked.call) == whole(LARGE[shape], tools=tools, temperature=0.5)


@pytest.mark.untraced
@given(st.lists(values, min_size=1), st.dictionaries(st.text("ab€"), values), st.integers(1, 40))
def test_any_call_has_the_key_it_had(messages: Any, more: Any, piece: int) -> None:
    """However small the pieces are."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(requests, "PIECE", piece)
        key = asyncio.run(call_key(read_request(body(messages, **more)).call))
    assert key == whole(messages, **more)


@pytest.mark.parametrize("shape", sorted(LARGE.keys() - {"one text"}))
async def test_others_have_their_turn_meanwhile(shape: str) -> None:
    """At least once for every few pieces: no task waits for a large body as a whole."""
    data = body(LARGE[shape])
    async with counted_turns() as turns:
        await call_key(read_request(data).call)
    assert turns.count > len(data) // PIECE // 3


def test_what_nobody_reads_is_passed_on_as_it_was_written() -> None:
    """The order of keys, blanks, numbers of any size."""
    written = (
        b'{"stream_options":{"x":1,"include_usage":true},"model":"m","z": {"b":1, "a":1e999}, '
    )
    asked = read_request(written + b'"messages":[ {"role":"user", "content":"a"} ],"n":1}')
    assert bytes(asked.call.messages) == b'[ {"role":"user", "content":"a"} ]'
    more = {name: bytes(raw) for name, raw in asked.call.more.items()}
    assert more == {"z": b'{"b":1, "a":1e999}', "n": b"1", "stream_options": b'{"x":1}'}
    assert asked.usage


HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        (b'{"model":"m","messages":[{"content":"\xff"}]}', None),
        (b'{"model":"m","messages":[{"content":"\\ud83d"}]}', None),
        (b'{"model":"m","messages":[{"content":tru}]}', None),
        (b'{"model":"m","messages":[' + b"[" * 9_999 + b"]" * 9_999 + b"]}", None),
        (b'{"model":"m","messages":[ ]}', "messages"),
        (b'{"model":"m","messages":{"a":1}}', "messages"),
        (b'{"model":"m","messages":null}', "messages"),
        (b'{"model":"m"}', "messages"),
        (b'{"model":1e999,"messages":[1]}', None),
        (b"[]", None),
        (b"[1]", None),
        (b"", None),
        (b'{"model":"\xff"}', None),
        (b'{"a":' * 2_000, None),
        ({"messages": []}, "model"),
        ({**HELLO, "model": ""}, "model"),
        ({**HELLO, "messages": []}, "messages"),
        ({**HELLO, "messages": "Hello"}, "messages"),
        ({**HELLO, "n": 2}, "n"),
        ({**HELLO, "n": 2, "stream": True}, "n"),
        ({**HELLO, "n": 0}, "n"),
        ({**HELLO, "n": "1"}, "n"),
        ({**HELLO, "n": True}, "n"),
        ({**HELLO, "stream": "yes"}, "stream"),
        ({**HELLO, "stream_options": [1]}, "stream_options"),
    ],
)
def test_what_is_no_call_is_refused_unread(wrong: object, param: str | None) -> None:
    """With the field at fault; also where the fault is in a field that is passed on unread."""
    with pytest.raises(GatewayRefused) as refused:
        read_request(wrong if isinstance(wrong, bytes) else json.dumps(wrong).encode())
    assert (refused.value.status, refused.value.code) == (400, "invalid_request")
    assert refused.value.param == param


async def test_a_number_that_is_none_has_no_key() -> None:
    """It is the provider's to refuse; on a tape it cannot stand."""
    asked = read_request(b'{"model":"m","messages":[1e999]}')
    with pytest.raises(GatewayRefused) as refused:
        await call_key(asked.call)
    assert refused.value.status == 400


@pytest.mark.parametrize("code", get_args(FaultCode))
def test_every_fault_is_an_error_with_our_code(code: FaultCode) -> None:
    """Whatever it is, clients learn that asking again is done already."""
    error = refusal_of(EffectFailed(Fault(code, data={"status": 418, "retry_after": 1.2})))
    assert 400 <= error.status < 600
    assert json.loads(error.body())["error"]["code"] == code
    assert (b"x-should-retry", b"false") in error.headers()
    assert (b"retry-after", b"2") in error.headers()
    assert error.message.endswith("(status 418)")


@pytest.mark.parametrize(("status", "kind"), [(429, "rate_limit_error"), (503, "server_error")])
def test_the_type_is_openais(status: int, kind: str) -> None:
    """By status."""
    codes: dict[int, FaultCode] = {429: "model_rate_limited", 503: "model_unavailable"}
    error = refusal_of(EffectFailed(Fault(codes[status])))
    assert error.status == status
    assert json.loads(error.body())["error"]["type"] == kind


def test_runs_that_are_over() -> None:
    """One that was replaced, an exchange that ended, a tape without the call."""
    errors = Fenced("r"), TapeCut("c"), TapeMiss("w", None)
    assert [refusal_of(error).status for error in errors] == [410, 410, 422]
