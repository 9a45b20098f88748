"""Which API a request is for, the normal form by which a tape finds it, and what its answer cost.

Two services that ask a model the same write it differently: one SDK sends `content: null` beside
tool calls and the other `""`, one names a limit `max_tokens` and the other `max_completion_tokens`.
`read` undoes what is spelling, and nothing else: what is left (`canonical`) is compared. A request
is found on the tape by its `key`, which also does without dates, times and uuids, since services
write those of the moment into their prompts.
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from cutover.chat_form import JSON, ChatForm, NotJson, decode, encode

_KEY_BYTES: Final = 16
_DEEPEST: Final = 100
"""Levels of JSON that are read. A deeper body is known by its bytes, like one that is no JSON."""
_LONG_DATA: Final = 512
"""Characters of a field `data` for which a digest stands from this length on."""

_MODEL_PATHS: Final = (
    ("/chat/completions", "model.chat"),
    ("/completions", "model.completions"),
    ("/embeddings", "model.embeddings"),
    ("/responses", "model.responses"),
    ("/v1/messages", "model.messages"),
)
"""Ends of a path, and the effect that a POST there is; the first that fits counts."""


class NormalRequest(msgspec.Struct, frozen=True):
    """A request as the tape knows it.

    `name` is its effect's: `model.chat`, or `http GET /orders`. `model` is whether it asks a model,
    by a known API. `canonical` is sorted, compact JSON in UTF-8; a digest stands for a body that is
    no JSON. `key` is a hash of 16 bytes: of the name, and of `canonical` as `fold` returns it.
    """

    name: str
    model: bool
    canonical: bytes
    key: bytes


def read(method: str, path_and_query: str, content_type: str, body: bytes) -> NormalRequest:
    """Return a request in normal form; one that cannot be read counts by its bytes. Never raises.

    Query parameters named like keys, tokens, passwords and signatures are left out.
    """
    path, query = _address(path_and_query)
    name = _model_name(method, path)
    try:
        content = _content(content_type, body, model=bool(name))
        if name and not (
            isinstance(content, dict) and ("model" in content or name == "model.chat")
        ):
            name = ""  # a service's own path that ends like a model's
        if name == "model.chat":
            content = ChatForm().read(content)
        value = content if name or not query else {"body": content, "query": query}
        canonical = encode(_plain(value, ""))
    except (NotJson, RecursionError):
        canonical = encode(_digest(content_type, body) | ({"query": query} if query else {}))
    label = name or f"http {method.upper()} {path}"
    hashed = label.encode("utf-8", "backslashreplace") + b"\0" + fold(canonical)
    key = blake2b(hashed, digest_size=_KEY_BYTES).digest()
    return NormalRequest(label, bool(name), canonical, key)


# --- Addresses


def _model_name(method: str, path: str) -> str:
    """Return the effect's name for a path like those of model APIs, "" for any other."""
    if method.upper() != "POST":
        return ""
    path = path.rstrip("/")
    return next((name for end, name in _MODEL_PATHS if path.endswith(end)), "")


_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SECRET_WORDS: Final = frozenset(
    {"key", "apikey", "token", "accesstoken", "secret", "sig", "signature", "password", "passwd"}
    | {"pwd", "auth", "authorization", "credential", "credentials", "jwt"}
)
# Beside one of these a key or token is a position in a list: `page_token`, `sort_key`.
_LISTING: Final = frozenset({"page", "next", "continuation", "sync", "sort", "order", "partition"})


def _address(path_and_query: str) -> tuple[str, list[list[str]]]:
    """Return the path and the parameters that are no secrets, sorted."""
    try:
        parts = urlsplit(path_and_query)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:  # brackets, or more parameters than the library reads
        path, _, query = path_and_query.partition("?")
        return path, [["", _hash(query)]]
    return parts.path or "/", sorted([name, value] for name, value in pairs if not _secret(name))


def _secret(parameter: str) -> bool:
    words = {word.lower() for word in _WORDS.findall(parameter)}
    return bool(words & _SECRET_WORDS) and not words & _LISTING


# --- Bodies


def _content(content_type: str, body: bytes, *, model: bool) -> Any:
    """Return a body's content as JSON; raises `NotJson`."""
    media = content_type.partition(";")[0].strip().lower()
    if not body:
        return None
    if model or not media or media.endswith(("/json", "+json")):
        return decode(body)
    raise NotJson


_BOUNDARY: Final = re.compile(r'boundary="?([^";]+)"?', re.IGNORECASE)


def _digest(content_type: str, body: bytes) -> JSON:
    """Return what stands for a body; a form's boundary, new in each request, does not count."""
    media, _, parameters = content_type.partition(";")
    if found := _BOUNDARY.search(parameters):
        body = body.replace(b"--" + found[1].strip().encode("utf-8", "replace"), b"--")
    return {"bytes": len(body), "digest": _hash(body), "type": media.strip().lower()}


def _hash(data: bytes | str) -> str:
    data = data.encode("utf-8", "replace") if isinstance(data, str) else data
    return blake2b(data, digest_size=_KEY_BYTES).hexdigest()


_DATA_URL: Final = re.compile(r"data:([^,;]*)[^,]*,", re.IGNORECASE)
_CREDENTIALS: Final = frozenset(
    {"api_key", "apikey", "apiKey", "access_token", "client_secret", "authorization"}
)


def _plain(value: Any, field: str, depth: int = 0) -> Any:
    """Return the JSON of a field, with digests for large data such as pictures, no credentials."""
    if isinstance(value, str):
        return _text(value, field)
    if depth > _DEEPEST:
        raise NotJson
    if isinstance(value, dict):
        return {
            key: _plain(one, key, depth + 1)
            for key, one in value.items()
            if key not in _CREDENTIALS or not isinstance(one, str)
        }
    if isinstance(value, list):
        return [_plain(one, "", depth + 1) for one in value]
    return value


def _text(value: str, field: str) -> str:
    if found := _DATA_URL.match(value):
        return f"data:{found[1].lower()};blake2b={_hash(value[found.end() :])}"
    if field == "data" and len(value) >= _LONG_DATA and " " not in value:
        return f"blake2b={_hash(value)}"
    return value


# --- Dates, times and uuids

_DAY: Final = rb"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_CLOCK: Final = rb"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:[.,]\d{1,9})?)?"
_ZONE: Final = rb"(?:Z|[+-]\d\d:?\d\d)?"
_HEX: Final = rb"[0-9a-fA-F]"
_UUID: Final = _HEX + rb"{8}(?:-" + _HEX + rb"{4}){3}-" + _HEX + rb"{12}"
# No part of a longer word or number; a line end before it is two characters in JSON, such as \n.
_FOLDED: Final = re.compile(
    rb"(?:(?<![\w.:-])|(?<=\\[nrtbf]))"
    rb"(?:(?P<moment>%b[T ]%b%b)|(?P<day>%b)|(?P<clock>%b)|(?P<uuid>%b))"
    rb"(?![\w-]|[.:]\d)" % (_DAY, _CLOCK, _ZONE, _DAY, _CLOCK, _UUID)
)
# `_FOLDED` is slow where it fails. So it is only tried around rare parts of what it finds; the
# number is how many characters of a day, a time, a uuid stand before such a part.
_ANCHORS: Final = (
    (re.compile(rb"-\d\d-\d\d"), len("2026")),
    (re.compile(rb":[0-5]\d"), len("10")),
    (re.compile(rb"-(?:" + _HEX + rb"{4}-){3}"), len("00000000")),
)


def fold(canonical: bytes) -> bytes:
    """Replace ISO dates, clock times, moments and uuids by marks.

    Equal values become equal marks, numbered in order of appearance, so that a date which stands
    twice is told from two dates. A mark has control characters around it: no JSON has them.
    """
    marks: dict[bytes, bytes] = {}
    pieces: list[bytes] = []
    done = 0
    starts = {
        found.start() - back for anchor, back in _ANCHORS for found in anchor.finditer(canonical)
    }
    for start in sorted(starts):
        if start >= done and (found := _FOLDED.match(canonical, start)) is not None:
            mark = b"\x01%b%d\x01" % ((found.lastgroup or "").encode(), len(marks))
            pieces += (canonical[done:start], marks.setdefault(found[0].lower(), mark))
            done = found.end()
    return b"".join((*pieces, canonical[done:]))


# --- What an answer cost

_USAGE: Final = re.compile(rb'"usage"\s*:\s*\{')


class TokenUsage(msgspec.Struct, frozen=True):
    """Tokens read and written; None where the provider counts none."""

    input: int | None = None
    output: int | None = None


def usage(items: Iterable[bytes]) -> TokenUsage:
    """Return the tokens of an answer, of which `items` are the events or the body.

    Of several counts the last one holds. Field names are those of chat completions, of Anthropic's
    messages and of OpenAI's responses.
    """
    tokens_in = tokens_out = None
    for counts in (one for item in items if _USAGE.search(item) for one in _counts(item)):
        prompt = counts.get("input_tokens") or counts.get("prompt_tokens")
        if prompt is not None:  # Anthropic counts the cache apart
            cached = counts.get("cache_creation_input_tokens", 0)
            tokens_in = prompt + cached + counts.get("cache_read_input_tokens", 0)
        answer = counts.get("output_tokens") or counts.get("completion_tokens")
        tokens_out = tokens_out if answer is None else answer
    return TokenUsage(tokens_in, tokens_out)


def _counts(item: bytes) -> Iterator[dict[str, int]]:
    """Yield the counts in an event or a body, by name."""
    lines = [line[5:] for line in item.splitlines() if line.startswith(b"data:")]
    for answer in map(_object, lines or [item]):
        for holder in (answer, answer.get("response"), answer.get("message")):
            counts = holder.get("usage") if isinstance(holder, dict) else None
            if isinstance(counts, dict):
                yield {name: one for name, one in counts.items() if type(one) is int}


def model_of(canonical: bytes) -> str:
    """Return the model that a request in normal form asks for, "" where it names none."""
    model = _object(canonical).get("model")
    return model if isinstance(model, str) else ""


def _object(raw: bytes) -> dict[str, Any]:
    """Return the object in JSON, an empty one where there is none."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
