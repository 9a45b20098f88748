"""What is sent under load: requests that each flow takes, under ids that were never used."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from cutover.errors import CutoverError
from cutover.flow import ClientRequest
from loadtests.meter import Asked, Meter
from loadtests.plan import LoadFlow, load_flows
from loadtests.rows import Row
from rules.flows import FLOWS
from tests.compare.exchanges import CASES, run

HOST = "http://127.0.0.1:8080/"


def received(asked: Asked) -> ClientRequest:
    """Return a request as a router gets it."""
    path = asked.url.removeprefix(HOST.rstrip("/"))
    return ClientRequest(asked.method, path, path, list(asked.headers.items()), asked.body)


def asked(flow: LoadFlow, number: int, turn: int = 0, **ids: str) -> Asked:
    """Return the request of a turn, with what stands for a conversation's id, if it is given."""
    message = flow.conversations[number % len(flow.conversations)][turn]
    return flow.request(HOST, message, {"authorization": "k"}, {"id": f"c{number}", **ids})


@pytest.mark.parametrize("think", [0.0, 1.0])
@pytest.mark.parametrize("name", FLOWS)
def test_each_message_is_a_request_of_its_flow(name: str, think: float) -> None:
    """All are taken, those of a conversation under its id; the first one opens a session."""
    flow, spec = load_flows(think=think)[name], FLOWS[name]
    assert (max(map(len, flow.conversations)) > 1) == (think > 0)
    for number, talk in enumerate(flow.conversations):
        known: list[dict[str, str]] = [{}, *[{"session": f"c{number}"}] * (len(talk) - 1)]
        turns = [asked(flow, number, turn, **ids) for turn, ids in enumerate(known)]
        bodies: list[Any] = [spec.body(received(one)) for one in turns]
        assert name != "chat" or len({body.message_id for body in bodies}) == len(bodies)
        ids = [getattr(body, "chat_id" if name == "chat" else "session_id") for body in bodies]
        assert ids == [None if name == "session" else f"c{number}", *[f"c{number}"] * len(ids[1:])]


def measured(flow: str, frames: list[bytes]) -> Row:
    """Return the row of a stream that is cut behind some frames."""
    row = Row(flow=flow, due=0.0)
    meter = Meter(load_flows()[flow].dialect, row, 0.0)
    meter.begin(200, {})
    for frame in frames:
        meter.feed(frame)
    meter.end()
    return row


@pytest.mark.virtual
@pytest.mark.parametrize("exchange", [one for one in CASES if one.endswith((" plain", " asks"))])
async def test_streams_of_the_flows_are_whole_with_their_last_event_alone(exchange: str) -> None:
    """Cut anywhere before, each is truncated; its text is read where the flow has it."""
    flow, _, kind = exchange.partition(", ")
    frames = [one.data for one in (await run(exchange)).pair.served.frames]
    row = measured(flow, frames)
    assert (row.ending, row.code) == ("complete", "")
    assert bool(row.pieces) == (kind == "plain")
    for cut in range(len(frames)):
        assert measured(flow, frames[:cut]).ending == "truncated"


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("begun", [0, 1])
def test_the_flows_own_failures_are_read_as_such(name: str, begun: int) -> None:
    """The events by which a stream honestly ends are a failure, with its code where they say it."""
    spec = FLOWS[name]
    framer = spec.framer()
    events = spec.failure(spec.options(), "model_silent", None)
    frames = [framer.frame(event).raw for event in events]
    row = measured(name, [b": keep\n\n"] * begun + frames)
    assert row.ending == "failed"
    assert "model_silent" in row.code or name == "chat"


EXAMPLE = (
    'POST /threads/t-1/runs?x=1\nX-User: ada\ncontent-type: application/json\n\n{"a":{"b":"t"}}'
)


@pytest.mark.parametrize(
    ("keys", "sticky", "fresh"),
    [
        ({}, "", ""),
        ({"thread": "path.thread"}, "thread", "path"),
        ({"user": "header.x-user", "thread": "body.a.b"}, "thread", "body"),
        ({"user": "header.X-User"}, "user", "header"),
        ({"gone": "body.c.d"}, "gone", ""),
        ({"thread": "path.thread"}, "", ""),
    ],
)
def test_a_declared_flow_sends_its_example_in_new_conversations(
    tmp_path: Path, keys: Mapping[str, str], sticky: str, fresh: str
) -> None:
    """Its conversation's id is new each time; the rest is as the example has it."""
    flow = declared(tmp_path, example=EXAMPLE, keys=keys, sticky=sticky)
    first, second = (asked(flow, n) for n in range(2))
    changed = {
        "path": first.url != second.url,
        "body": first.body != second.body,
        "header": first.headers["x-user"] != second.headers["x-user"],
    }
    assert [name for name, new in changed.items() if new] == ([fresh] if fresh else [])
    assert first.headers["authorization"] == "k"
    assert first.url.startswith("http://127.0.0.1:8080/threads/")
    assert first.url.endswith("/runs?x=1")
    assert "{" not in first.url
    assert list(json.loads(first.body)["a"]) == ["b"]


def declared(folder: Path, messages: Path | None = None, **fields: Any) -> LoadFlow:
    """Return the only flow of a configuration."""
    keys = fields.pop("keys", {})
    table = {"paths": ["/threads/{thread}/runs"], "dialect": "langgraph", **fields, "keys": keys}
    config = folder / "cutover.toml"
    config.write_text(tomlkit.dumps({"flows": {"mine": table}}))
    return load_flows(config, messages=messages)["mine"]


def test_messages_are_texts_or_whole_bodies(tmp_path: Path) -> None:
    """Each gets a fresh id where it has `{id}`."""
    path = tmp_path / "messages.jsonl"
    path.write_text('"Say \\"hi\\"."\n{"message_id":"{id}","content":"x"}\n')
    flow = load_flows(None, "chat", path)["chat"]
    text, body = (json.loads(asked(flow, n).body) for n in range(2))
    assert text["content"] == 'Say "hi".'
    assert body == {"message_id": "c1", "content": "x"}
    path.write_text('["Hi.",{"after":"{answer.message}","turn":"{turn}","in":"{id}"}]\n')
    flow = load_flows(None, "chat", path)["chat"]
    assert json.loads(asked(flow, 0).body)["content"] == "Hi."
    first, again = (json.loads(asked(flow, 0, 1, message='m"1').body) for _ in range(2))
    assert first == {"after": 'm"1', "in": "c0", "turn": first["turn"]}
    assert first["turn"] != again["turn"]
    assert json.loads(asked(flow, 0, 1).body)["after"] is None
    path.write_text('{"input":1}\n')
    own = declared(tmp_path, path)
    assert json.loads(asked(own, 0).body) == {"input": 1}
    assert asked(own, 0).headers["content-type"] == "application/json"


GET = '[flows.mine]\npaths = ["/x"]\nexample = "GET /x"'


@pytest.mark.parametrize(
    ("config", "name", "messages", "said"),
    [
        ("", "nope", "", "no flow 'nope': there are chat, companion"),
        ("[flows.chat]", "ops", "", "no flow 'ops': there are chat"),
        ("[flows", "", "", "Expected"),
        ("[flows.mine]", "", "", "has no example"),
        ('[flows.mine]\npaths = ["/x"]', "", "", "has no example"),
        (GET, "", '"hi"', "needs a body in each line"),
        (GET, "", '[{"a":1},"hi"]', "needs a body in each line"),
        ("", "chat", "[]", "needs a body in each line"),
        ("", "chat", '[["hi"]]', "Expected `str"),
        (f'{GET}\ndialect = "sung"', "", "", "no such"),
        (f'{GET}\ndialect = "a.toml"', "", "", "No such file"),
        ("", "chat", "\n", "needs a body in each line"),
        ("", "chat", "12", "Expected `str"),
        ("", "chat", "{", "truncated"),
    ],
)
def test_a_plan_that_cannot_be_meant_is_refused(
    tmp_path: Path, config: str, name: str, messages: str, said: str
) -> None:
    """With what to do."""
    written = tmp_path / "cutover.toml"
    written.write_text(config)
    own = tmp_path / "messages.jsonl"
    own.write_text(messages)
    with pytest.raises(CutoverError, match=said):
        load_flows(written if config else None, name, own if messages else None)
    with pytest.raises(CutoverError, match="No such file"):
        load_flows(None, "chat", tmp_path / "away.jsonl")
