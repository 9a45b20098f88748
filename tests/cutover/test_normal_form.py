"""Normal form: spelling never changes what a request is, anything else does."""

import json
import tomllib
from base64 import b64encode
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutover.normal_form import NormalRequest, fold, read

CHAT = "/v1/chat/completions"


def chat(body: Any) -> NormalRequest:
    """Read a chat completion."""
    return read("POST", CHAT, "application/json", json.dumps(body).encode())


def asked(*messages: Any, **more: Any) -> NormalRequest:
    """Read a chat completion of these messages."""
    return chat({"model": "m", "messages": messages, **more})


USER = {"role": "user", "content": "hi"}
PIXEL = b64encode(b"\x89PNG" + bytes(80)).decode()
IMAGE: dict[str, Any] = {
    "type": "image_url",
    "image_url": {"url": f"data:image/png;base64,{PIXEL}"},
}
TEXT = {"type": "text", "text": "hi"}


def said(content: Any) -> dict[str, Any]:
    """Return a user's message."""
    return {"role": "user", "content": content}


ASSISTANT = {"role": "assistant"}
OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
BODIES = tomllib.loads(Path(__file__).with_name("spellings.toml").read_text("utf-8"))


def keyed(body: str) -> NormalRequest:
    """Read a body of the tables."""
    return chat({"model": "m", "messages": [USER]} | json.loads(body.replace("PIXEL", PIXEL)))


@pytest.mark.parametrize("bodies", BODIES["same"].values(), ids=BODIES["same"])
def test_spellings_of_one_request_have_one_canonical_form(bodies: list[str]) -> None:
    """Canonical form and key are the same."""
    read_ones = [keyed(body) for body in bodies]
    assert len({(one.canonical, one.key) for one in read_ones}) == 1


@pytest.mark.parametrize("bodies", BODIES["different"].values(), ids=BODIES["different"])
def test_what_is_no_spelling_counts(bodies: list[str]) -> None:
    """Each has a key of its own."""
    assert len({keyed(body).key for body in bodies}) == len(bodies)


def test_what_sdks_drop_does_not_count() -> None:
    """A tool message's name, and reasoning that is passed back."""
    messages = [
        {**ASSISTANT, "content": "hi", "reasoning_content": "hm", "reasoning": ""},
        {"role": "tool", "tool_call_id": "1", "content": "x", "name": "f"},
    ]
    bare = [{**ASSISTANT, "content": "hi"}, {"role": "tool", "tool_call_id": "1", "content": "x"}]
    assert asked(*messages).canonical == asked(*bare).canonical
    assert asked({**USER, "name": "Ada"}).key != asked(USER).key


def test_a_picture_is_its_digest_with_its_media_type() -> None:
    """Captures of a conversation with pictures stay small; any other picture is another request."""
    canonical = asked(said([IMAGE])).canonical
    assert b"data:image/png;blake2b=" in canonical
    assert PIXEL.encode() not in canonical
    other = deepcopy(IMAGE)
    other["image_url"]["url"] += "AA"
    assert asked(said([other])).canonical != canonical
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL * 9}
    anthropic = {"model": "m", "messages": [said([{"type": "image", "source": source}])]}
    request = read("POST", "/v1/messages", "application/json", json.dumps(anthropic).encode())
    assert PIXEL.encode() not in request.canonical


# --- Names and other APIs

NAMES = tomllib.loads(Path(__file__).with_name("names.toml").read_text("utf-8"))["names"]


@pytest.mark.parametrize(("method", "path", "body", "name"), NAMES)
def test_a_request_is_named_after_its_api(method: str, path: str, body: str, name: str) -> None:
    """Paths that merely end like a model's are a service's own."""
    request = read(method, path, "application/json", body.encode())
    assert request.name == name
    assert request.model == name.startswith("model.")


@pytest.mark.parametrize(
    "name",
    ["key", "api_key", "apiKey", "x-api-key", "access_token", "X-Amz-Signature", "sig", "password"],
)
def test_secrets_in_the_query_are_left_out(name: str) -> None:
    """Neither name, canonical form nor key knows them."""
    with_it = read("GET", f"/a?q=1&{name}=s3cret", "", b"")
    assert with_it == read("GET", "/a?q=1", "", b"")
    assert b"s3cret" not in with_it.canonical


@pytest.mark.parametrize("name", ["keyword", "monkey", "page_token", "max_tokens", "sort_key", "q"])
def test_other_parameters_count(name: str) -> None:
    """Also those whose names resemble a secret's; their order does not."""
    assert read("GET", f"/a?{name}=1", "", b"").key != read("GET", f"/a?{name}=2", "", b"").key
    assert read("GET", f"/a?b=1&{name}=2", "", b"") == read("GET", f"/a?{name}=2&b=1", "", b"")


def test_credentials_in_a_body_are_left_out() -> None:
    """Some search services take their key there; a schema's property of that name stays."""
    body = {"query": "x", "api_key": "s3cret", "properties": {"api_key": {"type": "string"}}}
    request = read("POST", "/search", "application/json", json.dumps(body).encode())
    assert b"s3cret" not in request.canonical
    assert b'"api_key":{"type":"string"}' in request.canonical


def test_other_json_counts_with_its_nulls_and_without_the_order_of_keys() -> None:
    """What a field that is null means is known for chat completions alone."""
    bodies = (b'{"a":1,"b":null}', b'{ "b":null, "a":1.0}', b'{"a":1}')
    one, same, other = (read("POST", "/x", "application/json", body) for body in bodies)
    assert one == same
    assert one.canonical == b'{"a":1,"b":null}'
    assert one.key != other.key


def form(boundary: str, *, text: str = "whisper-1", file: bytes = b"RIFF\x00\xff") -> NormalRequest:
    """Read a form with a text and a file."""
    mark = f"--{boundary}\r\n".encode()
    body = (
        mark
        + f'Content-Disposition: form-data; name="model"\r\n\r\n{text}\r\n'.encode()
        + mark
        + b'content-disposition: form-data; name="file"; filename="a.wav"\r\n'
        + b"Content-Type: audio/wav\r\n\r\n"
        + file
        + f"\r\n--{boundary}--\r\n".encode()
    )
    return read("POST", "/v1/audio", f'multipart/form-data; boundary="{boundary}"', body)


def test_a_form_counts_by_its_digest_without_its_boundary() -> None:
    """Clients draw a new boundary for each request."""
    assert form("abc") == form("f00d")
    keys = {form("abc").key, form("abc", text="other").key, form("abc", file=b"RIFF").key}
    assert len(keys) == 3


ODD = [
    ("application/json", b"\xff\xfe{"),
    ("application/json", b'{"a":"\xff"}'),
    ("application/json", b'{"a":NaN,"b":-Infinity}'),
    ("application/json", b'{"a":"\\ud800"}'),
    ("application/json", b'{"a":' + b"9" * 5000 + b"}"),
    ("application/json", b'{"a":1e999}'),
    ("application/json", b"[" * 100_000),
    ("application/json", b"[" * 300 + b"]" * 300),
    ("application/json", b'{"model":"m","messages":' + b"[" * 300 + b"]" * 300 + b"}"),
    ("multipart/form-data", b"--a\r\n\r\n--a--"),
    ("multipart/form-data; boundary=a", b"--a\r\nno end"),
    ("application/x-www-form-urlencoded", b"a=1"),
    ("application/octet-stream", bytes(range(256))),
    ("", b"{"),
    ("\ud800", b"{}"),
]


@pytest.mark.parametrize("path", [CHAT, "/x", "/\ud800?\ud800=[", "//[?a=1", "/x?" + "a&" * 99])
@pytest.mark.parametrize(("kind", "body"), ODD, ids=range(len(ODD)))
def test_nothing_raises_and_every_byte_of_the_unreadable_counts(
    path: str, kind: str, body: bytes
) -> None:
    """The canonical form is UTF-8 in each case."""
    request = read("POST", path, kind, body)
    request.canonical.decode()
    assert request == read("POST", path, kind, body)
    assert request.key != read("POST", path, kind, body + b"x").key


FIELDS = [
    *("role", "content", "tool_calls", "function", "arguments", "parameters", "text", "type"),
    *("name", "$ref", "$defs", "properties", "required", "image_url", "id", "json_schema"),
]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["messages", "tools", "stop", "tool_choice", "response_format", "n"]),
        JUNK | st.lists(st.fixed_dictionaries({"role": JUNK, "tool_calls": JUNK, "content": JUNK})),
    )
)
def test_no_shape_of_a_chat_completion_raises(body: dict[str, Any]) -> None:
    """Requests are what their senders make them."""
    chat(body)


# --- Dates, times and uuids


@pytest.mark.parametrize(("one", "other"), BODIES["folded"])
def test_moments_and_uuids_are_folded_in_keys_alone(one: str, other: str) -> None:
    """The key is the same; the canonical forms differ."""
    first, second = asked(said(one)), asked(said(other))
    assert first.key == second.key
    assert first.canonical != second.canonical


@pytest.mark.parametrize(("one", "other"), BODIES["not_folded"])
def test_other_numbers_are_not_folded(one: str, other: str) -> None:
    """Nor are two values taken for one that stands twice, or a date for a time."""
    assert asked(said(one)).key != asked(said(other)).key


def test_marks_are_numbered_in_order_of_appearance() -> None:
    """Equal values have equal marks."""
    folded = b'"\x01day0\x01 x \x01clock1\x01 x \x01day0\x01"'
    assert fold(b'"2026-11-28 x 10:30 x 2026-11-28"') == folded


# --- Properties

WORD = st.text(st.characters(categories=["L"]), min_size=1, max_size=6)
VALUES = st.recursive(
    st.integers(-1000, 1000) | WORD | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORD, inner, max_size=2),
    max_leaves=4,
)


@st.composite
def conversations(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a chat completion: a system's message, turns, calls of tools and their results."""
    words = st.lists(WORD, min_size=1, max_size=4).map(" ".join)
    messages: list[dict[str, Any]] = [{"role": "system", "content": draw(words)}]
    for number in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(words)})
        if draw(st.booleans()):
            messages.append({"role": "assistant", "content": draw(words)})
            continue
        arguments = draw(
            st.lists(st.dictionaries(WORD, VALUES, max_size=3), min_size=1, max_size=2)
        )
        calls = [
            {
                "id": f"c{number}{place}",
                "type": "function",
                "function": {"name": draw(WORD), "arguments": json.dumps(one)},
            }
            for place, one in enumerate(arguments)
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [
            {"role": "tool", "tool_call_id": one["id"], "content": draw(words)} for one in calls
        ]
    tools = [
        {"type": "function", "function": {"name": name, "parameters": OBJECT}}
        for name in draw(st.lists(WORD, max_size=2))
    ]
    return {
        "model": draw(WORD),
        "messages": messages,
        "temperature": draw(st.sampled_from([0, 0.7, 1])),
        "max_tokens": draw(st.integers(1, 99)),
        **({"tools": tools} if tools else {}),
    }


@st.composite
def respelt(draw: st.DrawFn, body: dict[str, Any]) -> bytes:
    """Draw another spelling of a chat completion."""
    flip = st.booleans()
    body = deepcopy(body)
    if draw(flip):
        body["max_completion_tokens"] = body.pop("max_tokens")
    if "tools" in body and draw(flip):
        body |= {"tool_choice": "auto", "parallel_tool_calls": True}
    for one in body.get("tools", ()):
        if draw(flip):
            one["function"] |= {"strict": False, "parameters": OBJECT | {"title": "F"}}
    for message in body["messages"]:
        if message["role"] == "system" and draw(flip):
            message["role"] = "developer"
        if message["content"] and draw(flip):
            message["content"] = [{"type": "text", "text": message["content"]}]
        if message["content"] is None and draw(flip):
            message["content"] = ""
        if "tool_call_id" in message:
            message["tool_call_id"] = "x" + message["tool_call_id"]
        for index, one in enumerate(message.get("tool_calls", ())):
            one.update({"id": "x" + one["id"]} | ({"index": index} if draw(flip) else {}))
            arguments = json.loads(one["function"]["arguments"])
            one["function"]["arguments"] = json.dumps(
                dict(reversed(arguments.items())),
                ensure_ascii=draw(flip),
                indent=draw(st.none() | st.just(1)),
            )
    if draw(flip):
        body |= {"n": 1, "user": None, "stream": False, "stream_options": None}
    fields = draw(st.permutations([*body.items()]))
    return json.dumps(dict(fields), ensure_ascii=draw(flip)).encode()


@given(st.data(), conversations())
def test_spelling_never_changes_the_key(data: st.DataObject, body: dict[str, Any]) -> None:
    """Any spelling of any conversation has its canonical form."""
    request = read("POST", CHAT, "application/json", data.draw(respelt(body)))
    assert request.canonical == chat(body).canonical
    assert request.key == chat(body).key


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the places of all words and numbers in JSON."""
    if isinstance(value, dict):
        pairs = [pair for pair in value.items() if pair[0] not in {"id", "tool_call_id"}]
    elif isinstance(value, list):
        pairs = [*enumerate(value)]
    else:
        return [] if value is None else [place]
    return [found for key, one in pairs for found in _places(one, (*place, key))]


def _changed(value: Any) -> Any:
    """Return another word, number or JSON text."""
    if isinstance(value, str) and value.startswith("{"):
        arguments = json.loads(value)
        name = next(iter(arguments), "new")
        return json.dumps(arguments | {name: [arguments.get(name)]})
    return value + "z" if isinstance(value, str) else not value if value is True else value + 1


@given(st.data(), conversations())
def test_any_other_word_number_or_argument_changes_the_key(
    data: st.DataObject, body: dict[str, Any]
) -> None:
    """Wherever it stands, whatever the spelling."""
    other = deepcopy(body)
    *path, last = data.draw(st.sampled_from(_places(body)))
    holder: Any = other
    for step in path:
        holder = holder[step]
    holder[last] = _changed(holder[last])
    request = read("POST", CHAT, "application/json", data.draw(respelt(body)))
    assert chat(other).key != request.key


@given(st.data(), conversations())
def test_another_order_of_messages_changes_the_key(
    data: st.DataObject, body: dict[str, Any]
) -> None:
    """Unless the two are the same."""
    messages = body["messages"]
    at = data.draw(st.integers(0, len(messages) - 2))
    swapped = [*messages]
    swapped[at : at + 2] = reversed(messages[at : at + 2])
    without_ids = [{k: v for k, v in one.items() if k != "tool_call_id"} for one in messages]
    if without_ids[at] != without_ids[at + 1]:
        assert chat(body | {"messages": swapped}).key != chat(body).key
