"""Faults of a model's provider: requests of each flow, streams as bytes, and the table of rows."""

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutover.errors import Blame
from loadtests.simulator import (
    Answer,
    Cut,
    ErrorEvent,
    Garbage,
    NeverAnswers,
    Reset,
    Silence,
    SlowFirst,
)

TEXT = "one two three four"
"""What every client gets where the provider's fault costs nothing."""


# The flows: a request that asks the model once, and how its stream ends.


@dataclass(frozen=True, slots=True)
class Ended:
    """What a client has at the end: the text, and the code of a failure; None: it succeeded."""

    text: str
    code: str | None


def _chat(events: list[tuple[str, Any]]) -> Ended:
    texts = [data["content"] for _, data in events if "content" in data]
    failed = [data["code"] for _, data in events if data["step"] == "FAILED"]
    succeeded = [data for _, data in events if data["step"] == "SUCCESS"]
    assert len(failed) + len(succeeded) == 1
    return Ended(texts[-1] if texts else "", *(failed or [None]))


def _companion(events: list[tuple[str, Any]]) -> Ended:
    text = "".join(data["content"] for name, data in events if name == "text")
    failed = [data["code"] for name, data in events if name == "error"]
    assert events[-1] == ("done", {"status": "failed" if failed else "completed"})
    return Ended(text, *(failed or [None]))


def _session(events: list[tuple[str, Any]]) -> Ended:
    text = "".join(data["data"]["content"] for _, data in events if data["type"] == "text")
    last = events[-1][1]
    assert last["type"] in {"done", "error"}
    if last["type"] == "done":
        assert last["data"]["final_message"]["content"] == text
    return Ended(text, last["data"].get("code"))


def _pipeline(events: list[tuple[str, Any]]) -> Ended:
    text = "".join(data["content"] for name, data in events if name == "token")
    name, last = events[-1]
    assert name == "message"
    assert last["message"] == (text if last["success"] else None)
    assert last["success"] is not bool(last["errors"])
    return Ended(text, last["errors"][-1]["code"] if last["errors"] else None)


def _ops(events: list[tuple[str, Any]]) -> Ended:
    text = "".join(data["message"] for name, data in events if name == "final")
    failed = [data["code"] for name, data in events if name == "error"]
    assert events[-1] == ("done", {"status": "failed" if failed else "completed"})
    return Ended(text, *(failed or [None]))


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of a flow; `answer` is the model's text of which the client gets `TEXT`.

    `streams`: the text reaches the client piece by piece. `opens`: events come before the model's.
    """

    body: Mapping[str, Any]
    ended: Callable[[list[tuple[str, Any]]], Ended]
    options: Mapping[str, Any] = field(default_factory=dict)
    answer: str = TEXT
    streams: bool = True
    opens: bool = True
    tools: bool = True


FLOWS = {
    "chat": Asked(
        {"message_id": "m", "content": "hello", "chat_id": "c"},
        _chat,
        {"wire": "extended", "yield_interval": 0.0},
    ),
    "companion": Asked({"session_id": "s", "message": "hello"}, _companion),
    "session": Asked({"session_id": "s", "message": "hello"}, _session),
    "pipeline": Asked(
        {"session_id": "s", "message": "hello", "user_id": "u"}, _pipeline, tools=False
    ),
    "ops": Asked(
        {"session_id": "s", "input": "hello"},
        _ops,
        answer=json.dumps({"final": TEXT}),
        streams=False,
        opens=False,
        tools=False,
    ),
}


# Streams as bytes, for what the simulator does not write.


def chunk(delta: Any, finish: str | None = None, **choice: Any) -> str:
    """Return one event of a stream."""
    one = {"index": 0, "delta": delta, "finish_reason": finish} | choice
    return event({"choices": [one]})


def event(body: Any) -> str:
    """Return an event; NaN is written as servers in Python write it."""
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return f"data: {json.dumps(head | body)}\n\n"


DONE = "data: [DONE]\n\n"
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def pieces(text: str, count: int = 4) -> list[str]:
    """Cut a text into pieces."""
    size = -(-len(text) // count)
    return [text[at : at + size] for at in range(0, len(text), size)]


def raw(*events: str) -> Answer:
    """Return an answer of these events."""
    return Answer(raw="".join(events))


def early_finish(text: str) -> Answer:
    """Return an answer whose first piece has a finish reason, and whose last has one again."""
    first, *rest = pieces(text)
    more = [chunk({"content": one}) for one in rest]
    usage = event({"choices": [], "usage": USAGE})
    return raw(chunk({"content": first}, "stop"), *more, chunk({}, "stop"), usage, DONE)


def finish_each(text: str) -> Answer:
    """Return an answer whose every piece has a finish reason."""
    return raw(*(chunk({"content": one}, "stop") for one in pieces(text)), DONE)


def choice_at(index: Callable[[int], int]) -> Callable[[str], Answer]:
    """Return answers whose lone choice has these indices, by the number of the piece."""

    def answer(text: str) -> Answer:
        said = [chunk({"content": p}, index=index(n)) for n, p in enumerate(pieces(text))]
        return raw(*said, chunk({}, "stop", index=index(9)), DONE)

    return answer


def logprob(value: float) -> Callable[[str], Answer]:
    """Return answers whose pieces have a logprob that is no JSON."""

    def answer(text: str) -> Answer:
        held = {"content": [{"token": "a", "logprob": value, "bytes": None, "top_logprobs": []}]}
        said = [chunk({"content": one}, logprobs=held) for one in pieces(text)]
        return raw(*said, chunk({}, "stop"), DONE)

    return answer


def in_field(name: str) -> Callable[[str], Answer]:
    """Return answers whose text stands in another field of the delta."""

    def answer(text: str) -> Answer:
        return raw(*(chunk({name: one}) for one in pieces(text)), chunk({}, "stop"), DONE)

    return answer


def unknown_shape(name: str) -> Callable[[str], Answer]:
    """Return answers that hold the text beside where a delta is due."""

    def answer(text: str) -> Answer:
        value = {"role": "assistant", "content": text} if name == "message" else text
        one = {"index": 0, name: value, "finish_reason": "stop"}
        return raw(event({"choices": [one]}), DONE)

    return answer


def usage_each(text: str) -> Answer:
    """Return an answer with the usage so far on each piece."""
    said = [chunk({"content": one}) for one in pieces(text)]
    counted = [one.replace('"choices"', f'"usage": {json.dumps(USAGE)}, "choices"') for one in said]
    return raw(*counted, chunk({}, "stop"), DONE)


def commented(text: str) -> Answer:
    """Return an answer with comments between its pieces, and a chunk without choices."""
    said = [f": OPENROUTER PROCESSING\n\n{chunk({'content': one})}" for one in pieces(text)]
    return raw(*said, event({"choices": [], "prompt_filter_results": []}), chunk({}, "stop"), DONE)


def nulls(text: str) -> Answer:
    """Return an answer that begins with the role, and names every field it does not use."""
    fields = ("content", "refusal", "tool_calls", "function_call", "reasoning_content", "audio")
    unused = chunk(dict.fromkeys(fields), None, logprobs=None)
    said = [chunk({"role": "assistant", "content": one}) for one in pieces(text)]
    return raw(
        chunk({"role": "assistant", "content": None}), unused, *said, chunk({}, "stop"), DONE
    )


def framed(line_end: str, before: str = "") -> Callable[[str], Answer]:
    """Return answers whose lines end otherwise."""

    def answer(text: str) -> Answer:
        said = [*(chunk({"content": one}) for one in pieces(text)), chunk({}, "stop"), DONE]
        return raw(before, *(one.replace("\n", line_end) for one in said))

    return answer


def between(extra: str) -> Callable[[str], Answer]:
    """Return answers with another event behind their first piece."""

    def answer(text: str) -> Answer:
        first, *rest = (chunk({"content": one}) for one in pieces(text))
        return raw(first, extra, *rest, chunk({}, "stop"), DONE)

    return answer


def inserted(body: Any) -> Callable[[str], Answer]:
    """Return answers with another chunk behind their first piece."""
    return between(f"data: {json.dumps(body)}\n\n")


def ending(body: Any) -> Callable[[str], Answer]:
    """Return answers that end with an event behind their first piece."""
    last = f"data: {json.dumps(body)}\n\n"
    return lambda text: raw(chunk({"content": pieces(text)[0]}), last, DONE)


_MESSAGE = {"choices": [{"index": 0, "message": {"content": "SECRET"}}]}
_TEXT = {"choices": [{"index": 0, "text": "SECRET"}]}
_BROKEN = tomllib.loads(Path(__file__).with_name("broken_chunks.toml").read_text("utf-8"))


# The table.


@dataclass(frozen=True, slots=True)
class Row:
    """A fault: the provider's answers to the calls of one run, the last one ever again.

    `code` and `blame` are those of the failure; without, the client gets the whole text. `said`:
    pieces that went out before. `asked`: how often the model is, retries of the SDK with it.
    """

    answers: Callable[[str], Answer | tuple[Answer, ...]]
    code: str | None = None
    blame: Blame = "world"
    said: bool = False
    asked: int = 1


def fails(status: int, *headers: tuple[str, str]) -> Callable[[str], Answer]:
    """Return answers with a status."""
    return lambda _: Answer(status=status, headers=headers)


def once(first: Answer) -> Callable[[str], tuple[Answer, ...]]:
    """Return answers of which the first one fails."""
    return lambda text: (first, Answer(text=text))


def faulty(fault: Any, **more: Any) -> Callable[[str], Answer]:
    """Return answers with a fault of the connection or the stream."""
    return lambda text: Answer(pieces=tuple(pieces(text)), fault=fault, **more)


def plain(**more: Any) -> Callable[[str], Answer]:
    """Return answers that the simulator writes."""
    return lambda text: Answer(pieces=tuple(pieces(text)), **more)


LIMITED = Answer(status=429, headers=(("retry-after", "7"),))
"""An answer that names the seconds to wait."""

ROWS: dict[str, Row] = {
    "429": Row(fails(429), "model_rate_limited", asked=3),
    "429 once, with a time to wait": Row(once(LIMITED), asked=2),
    "500": Row(fails(500), "model_unavailable", asked=3),
    "500 once": Row(once(Answer(status=500)), asked=2),
    "503": Row(fails(503), "model_unavailable", asked=3),
    "400": Row(fails(400), "model_bad_request", "stack"),
    "401": Row(fails(401), "model_auth", "configuration"),
    "reset before the headers": Row(faulty(Reset()), "model_unavailable", asked=3),
    "reset once": Row(once(Answer(fault=Reset())), asked=2),
    "never answers": Row(faulty(NeverAnswers()), "model_timeout", asked=3),
    "never answers once": Row(once(Answer(fault=NeverAnswers())), asked=2),
    "late headers": Row(faulty(SlowFirst(30.0, headers=False))),
    "late first piece": Row(faulty(SlowFirst(50.0))),
    "silence before the first piece": Row(faulty(Silence(0)), "model_timeout"),
    "silence in the middle": Row(faulty(Silence(2)), "model_timeout", said=True),
    "cut before the first piece": Row(faulty(Cut(0)), "model_unavailable"),
    "cut in the middle": Row(faulty(Cut(2)), "model_unavailable", said=True),
    "garbage first": Row(faulty(Garbage(0)), "model_error"),
    "garbage in the middle": Row(faulty(Garbage(2)), "model_error", said=True),
    "an error first": Row(faulty(ErrorEvent(0)), "model_error"),
    "an error in the middle": Row(faulty(ErrorEvent(2)), "model_error", said=True),
    "no [DONE]": Row(plain(done=False)),
    "no finish reason": Row(plain(finish=None), "model_truncated", said=True),
    "neither": Row(plain(finish=None, done=False), "model_truncated", said=True),
    "[DONE] alone": Row(lambda _: raw(DONE), "model_truncated"),
    "nothing at all": Row(lambda _: raw(": hello\n\n"), "model_truncated"),
    "a reason early, then more": Row(early_finish),
    "a reason with each piece": Row(finish_each),
    "late usage": Row(plain(usage="late")),
    "usage with each piece": Row(usage_each),
    "no usage": Row(plain(usage="none")),
    "an empty answer": Row(lambda _: Answer(text=""), "model_empty"),
    "a lone choice with index 1": Row(choice_at(lambda _: 1)),
    "a counting index": Row(choice_at(lambda n: n)),
    "NaN": Row(logprob(float("nan"))),
    "-Infinity": Row(logprob(float("-inf"))),
    "reasoning_content": Row(plain(reasoning="let me think")),
    "reasoning": Row(plain(reasoning="let me think", reasoning_field="reasoning")),
    "refusal": Row(in_field("refusal")),
    "message instead of delta": Row(unknown_shape("message"), "model_error"),
    "text instead of delta": Row(unknown_shape("text"), "model_error"),
    "comments, and a chunk without choices": Row(commented),
    "a role first, and fields that are null": Row(nulls),
    "a choice without a delta": Row(inserted({"choices": [{"index": 0, "delta": None}]})),
    "an event of another kind": Row(inserted({"type": "ping"})),
    "usage in odd fields": Row(inserted({"choices": [], "usage": {"cost": 1}})),
    "CRLF": Row(framed("\r\n")),
    "CR": Row(framed("\r")),
    "a byte order mark": Row(framed("\n", before="\ufeff")),
    "message in the middle": Row(inserted(_MESSAGE), "model_error", said=True),
    "output instead of delta": Row(unknown_shape("output"), "model_empty"),
    "an answer in another API's words": Row(
        lambda text: raw(event({"candidates": [{"content": {"parts": [{"text": text}]}}]})),
        "model_truncated",
    ),
    "text in the middle": Row(inserted(_TEXT), "model_error", said=True),
    "an error as a sentence": Row(ending({"error": "SECRET"}), "model_error", said=True),
    "an error beside choices": Row(
        ending({"error": {"code": 502, "message": "SECRET"}, "choices": []}),
        "model_error",
        said=True,
    ),
    "an error without that name": Row(
        ending({"object": "error", "message": "SECRET"}), "model_truncated", said=True
    ),
    "the reason is an error": Row(plain(finish="error"), "model_error", said=True),
    "the reason is a lack of resources": Row(
        plain(finish="insufficient_system_resource"), "model_error", said=True
    ),
    **{
        name: Row(between(f"data: {chunk}\n\n"), "model_error", said=True)
        for name, chunk in _BROKEN.items()
    },
    "a call of the old kind": Row(
        lambda _: raw(chunk({"function_call": {"name": "calculate"}}, "function_call"), DONE),
        "model_empty",
    ),
    "calls announced, none made": Row(lambda _: raw(chunk({}, "tool_calls"), DONE), "model_empty"),
    "a whole answer where a stream is due": Row(
        lambda text: Answer(raw=json.dumps({"choices": [{"message": {"content": text}}]})),
        "model_truncated",
    ),
    "a page of a gateway": Row(lambda _: raw("<html>gateway</html>"), "model_truncated"),
}
