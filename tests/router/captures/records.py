"""Lines for the tests of captures, and places in which a value may stand in one."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cutover.errors import Completed, Failed, Refusal
from cutover.records import (
    EntryRecord,
    ErrorRecord,
    FrameRecord,
    ItemRecord,
    PlayRecord,
    RunRecord,
    TapeRecord,
)

FILL = "Q7w2Er9tY4uI1oP6aS3dF8gH5jK0lZxCvBnM" * 2
SEEDS = {
    "email": "john.doe@example.com",
    "phone": "+44 20 7946 0958",
    "mobile": "13812345678",
    "card": "4111 1111 1111 1111",
    "iban": "DE89370400440532013000",
    "person": "11010519491231002X",
    "key": f"sk-{FILL[:32]}",
    "token": f"gsk_{FILL[:30]}",
}
"""Values that are personal, or secret."""


def line(**fields: Any) -> RunRecord:
    """Return a line of an exchange that is complete; `frames` are bytes."""
    frames = fields.pop("frames", ())
    known: dict[str, Any] = {
        "exchange": "e1",
        "flow": "chat",
        "path": "/chat/sse",
        "role": "serving",
        "policy": "live",
        "stack": "legacy",
        "assigned": "legacy",
        "served": "legacy",
        "at": 1_790_000_000_000_000,
        "outcome": Completed(),
        "request": "{}",
        "options": "{}",
        "frames": tuple(FrameRecord.of(at, raw) for at, raw in enumerate(frames)),
    }
    return RunRecord(**known | fields)


def entry(**fields: Any) -> EntryRecord:
    """Return a call on the tape; `items` are bytes."""
    items = fields.pop("items", ())
    known: dict[str, Any] = {"name": "tool", "key": "00", "canonical": "{}", "at": 0}
    known["items"] = tuple(ItemRecord.of(at, raw) for at, raw in enumerate(items))
    return EntryRecord(**known | fields)


def sse(*events: Any, name: str = "", end: str = "\n") -> list[bytes]:
    """Return events as blocks."""
    head = f"event: {name}{end}" if name else ""
    return [
        f"{head}data: {json.dumps(one, ensure_ascii=False)}{end}{end}".encode() for one in events
    ]


def stream(*events: Any) -> RunRecord:
    """Return a line whose frames are events."""
    return line(frames=sse(*events))


def on_tape(**fields: Any) -> RunRecord:
    """Return a line whose tape has one entry."""
    return line(tape=TapeRecord((entry(**fields),)))


def delta(**fields: Any) -> dict[str, Any]:
    """Return a chunk of chat completions."""
    return {"id": "c-1", "choices": [{"index": 0, "delta": fields}]}


def _call(index: int, arguments: str) -> dict[str, Any]:
    return delta(tool_calls=[{"index": index, "function": {"arguments": arguments}}])


def _request(value: Any) -> RunRecord:
    return line(request=json.dumps(value, ensure_ascii=False))


def _lines(*texts: str) -> list[bytes]:
    return [text.encode() for text in texts]


def _percent(text: str) -> str:
    return "".join(f"%{ord(one):02X}" if not one.isalnum() else one for one in text)


def _u(text: str) -> str:
    return "".join(one if one.isalnum() or one in " \n" else f"\\u{ord(one):04x}" for one in text)


_WIDE = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}


def _in_events(events: Sequence[str], a: str, b: str) -> RunRecord:
    """Return a line whose frames are events of the table, with a value's two pieces in them."""
    halves = {"A": json.dumps(a)[1:-1], "B": json.dumps(b)[1:-1]}
    filled = (re.sub(r"\bA\b|\bB\b", lambda one: halves[one[0]], event) for event in events)
    frames = [one if "data:" in one else f"data: {one}" for one in filled]
    return line(frames=[f"{one}\n\n".encode() for one in frames])


PLACES: Mapping[str, Callable[[str, str], RunRecord]] = {
    "the request": lambda a, b: _request({"message": f"see {a}{b} !"}),
    "deep in the request": lambda a, b: _request({"a": [{"b": [1, {"c": f"{a}{b}"}]}]}),
    "a name in the request": lambda a, b: _request({"seen": {f"{a}{b}": 1}}),
    "JSON in a string": lambda a, b: _request({"args": json.dumps({"v": f"{a}{b}"})}),
    "JSON in JSON in a string": lambda a, b: _request(
        {"args": json.dumps({"inner": json.dumps({"v": f"{a}{b}"})})}
    ),
    "escaped in JSON in a string": lambda a, b: _request({"args": f'{{"v":"{_u(a + b)}"}}'}),
    "a URL's query": lambda a, b: _request({"u": f"https://x.example/?q={_percent(a + b)}&r=1"}),
    "nested arrays": lambda a, b: _request({"rows": [[["x", [f"{a}{b}"]]], [[]]]}),
    "headers as text": lambda a, b: _request(
        {"log": f"GET / HTTP/1.1\r\nX-User: {a}{b}\r\nAccept: */*\r\n"}
    ),
    "a form's body": lambda a, b: line(request=f"n=1&to={_percent(a + b)}&r=1"),
    "an attribute of HTML": lambda a, b: _request({"m": f'<a href="mailto:{a}{b}">me</a>'}),
    "columns": lambda a, b: _request({"m": f"id;to;n\n1;{a}{b};3\n"}),
    "full-width characters": lambda a, b: _request({"m": f"见{(a + b).translate(_WIDE)}。"}),
    "invisible characters within": lambda a, b: _request({"m": f"see {a}\u200b{b} !"}),
    "tool calls of a history": lambda a, b: _request(
        {"messages": [{"tool_calls": [{"function": {"arguments": json.dumps({"to": a + b})}}]}]}
    ),
    "the options": lambda a, b: line(options=json.dumps({"text": f"{a}{b}"})),
    "the address": lambda a, b: line(path=f"/users/{a}{b}/x"),
    "a failure's detail": lambda a, b: line(outcome=Failed("x", "stack", f"of {a}{b} !")),
    "a refusal's detail": lambda a, b: line(outcome=Refusal(422, "x", f"of {a}{b} !")),
    "no JSON": lambda a, b: line(request=f"{{broken {a}{b} !"),
    "a name given twice": lambda a, b: line(
        request=f'{{"v":{json.dumps(f"{a}{b}")},"v":"second"}}'
    ),
    "a frame": lambda a, b: stream(delta(content=f"see {a}{b} !")),
    "a piece a character": lambda a, b: stream(*(delta(content=one) for one in f"see {a}{b} !")),
    "events in one frame": lambda a, b: line(
        frames=[b"".join(sse(delta(content=f"see {a}"), delta(content=f"{b} !"), end="\r\n"))]
    ),
    "lines in one frame": lambda a, b: line(
        frames=["".join(f"{json.dumps(delta(content=c))}\n" for c in (f"ü {a}", b, "!")).encode()]
    ),
    "delta.function_call.arguments": lambda a, b: stream(
        delta(function_call={"arguments": f'{{"v":"{json.dumps(a)[1:-1]}'}),
        delta(function_call={"arguments": f'{json.dumps(b)[1:-1]}"}}'}),
    ),
    "totals so far": lambda a, b: stream(
        {"text": "see "}, {"text": f"see {a}"}, {"text": f"see {a}{b}"}, {"text": f"see {a}{b} !"}
    ),
    "messages so far beside pieces": lambda a, b: stream(
        {"choices": [{"delta": {"content": a}, "message": {"content": a}}]},
        {"choices": [{"delta": {"content": b}, "message": {"content": f"{a}{b}"}}]},
        {"choices": [{"delta": {"content": " !"}, "message": {"content": f"{a}{b} !"}}]},
    ),
    "tokens of logprobs": lambda a, b: stream(
        *({"choices": [{"logprobs": {"content": [{"token": one, "logprob": -0.1}]}}]} for one in a),
        {"choices": [{"logprobs": {"content": [{"token": b, "logprob": -0.1}]}}]},
    ),
    "a chunk with NaN": lambda a, b: line(
        frames=_lines(
            f'data: {{"p":NaN,"text":{json.dumps(a)}}}\n\n',
            f'data: {{"p":-Infinity,"text":{json.dumps(b)}}}\n\n',
        )
    ),
    "lone surrogates beside it": lambda a, b: line(
        frames=_lines(f'data: {{"v":{json.dumps(a + b)},"w":"\\ud800"}}\n\n')
    ),
    "CRLF": lambda a, b: line(frames=sse(delta(content=a), delta(content=b), end="\r\n")),
    "JSON over two data lines": lambda a, b: line(
        frames=_lines(f'data: {{"text":\ndata: {json.dumps(a + b)}}}\n\n')
    ),
    "plain text": lambda a, b: line(frames=_lines(f"see {a}", f"{b} !")),
    "NDJSON": lambda a, b: line(
        frames=_lines(json.dumps({"text": a}) + "\n", json.dumps({"text": b}) + "\n")
    ),
    "plain text, a character cut": lambda a, b: line(
        frames=[f"见{a}".encode()[:1], f"见{a}".encode()[1:], f"{b}！".encode()]
    ),
    "a comment": lambda a, b: line(frames=_lines(f": see {a}{b} !\n\n")),
    "an event's id": lambda a, b: line(frames=_lines(f"id: {a}{b}\ndata: {{}}\n\n")),
    "an effect's arguments": lambda a, b: on_tape(canonical=json.dumps({"to": f"{a}{b}"})),
    "a model's answer": lambda a, b: on_tape(
        name="model.chat", items=[b'{"status":200}', *sse(delta(content=a), delta(content=b))]
    ),
    "a result": lambda a, b: on_tape(items=[json.dumps({"found": [f"{a}{b}"]}).encode()]),
    "results that are pieces": lambda a, b: on_tape(
        items=[json.dumps(a).encode(), json.dumps(f"{b} !").encode()]
    ),
    "an error's message": lambda a, b: on_tape(
        end="failed", error=ErrorRecord("X", f"no {a}{b} !", "[]")
    ),
    "an error's arguments": lambda a, b: on_tape(
        end="failed", error=ErrorRecord("X", "", json.dumps([f"{a}{b}"]))
    ),
    "the path of a request": lambda a, b: on_tape(name=f"http GET /users/{a}{b} "),
    "the question of a pause": lambda a, b: line(tape=TapeRecord(question=f"send to {a}{b} ?")),
    "what a shadow asked": lambda a, b: line(
        role="shadow", plays=(PlayRecord("tool", "nearest", 0, json.dumps({"to": f"{a}{b}"})),)
    ),
} | {
    name: partial(_in_events, events)
    for name, events in tomllib.loads(
        Path(__file__).with_name("places.toml").read_text("utf-8")
    ).items()
}
"""Where a value may stand, as a line of its two halves."""


def texts(record: RunRecord) -> Sequence[str]:
    """Return the streams of a line as a reader would join them: every string, by its place."""
    joined: dict[tuple[str, ...], str] = {}

    def walk(value: Any, path: tuple[str, ...]) -> None:
        if isinstance(value, str):
            joined[path] = joined.get(path, "") + value
        elif isinstance(value, dict):
            for name, one in value.items():
                walk(one, (*path, name))
        elif isinstance(value, list):
            for one in value:
                walk(one, path)

    items = [item for one in (record.tape.entries if record.tape else ()) for item in one.items]
    for item in (*record.frames, *items):
        raw = item.data.decode("utf-8", "replace")
        data = "\n".join(
            part[5:].removeprefix(" ") for part in raw.splitlines() if part.startswith("data:")
        )
        try:
            walk(json.loads(data or raw), ("json",))
        except ValueError:
            walk(data or raw, ("text",))
    return list(joined.values())
