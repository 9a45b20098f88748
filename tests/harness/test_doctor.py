"""`cutover doctor`: what it says of a set-up, and what works in it."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cutover.wire import find_dialect, read_dialect
from harness.cli import cli
from harness.config import parse
from harness.setup.doctor import CHECKS, judge, page
from harness.setup.survey import Captured, Survey, survey
from harness.setup.trial import Trial, contradiction
from router.gateway.runs import TRIAL
from tests.support.origin import Origin, Reply
from tests.support.processes import ROOT

STREAM = (
    b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
EXAMPLE = 'POST /ask\ncontent-type: application/json\n\n{"user": "u", "thread": "t"}'
FLOW: Mapping[str, Any] = {
    "paths": ["/ask"],
    "keys": {"user": "body.user", "conversation": "body.thread"},
    "sticky": "conversation",
    "shadow_percent": 100.0,
    "example": EXAMPLE,
}
STACK: Mapping[str, Any] = {"url": "http://127.0.0.1:1", "shadow_safe": True}


WHOLE: Mapping[str, Any] = {
    "stacks": {"legacy": STACK, "graph": STACK},
    "flows": {"mine": FLOW},
    "captures": {"url": "memory://captures", "key": "k" * 16},
    "gateway": {},
}
"""A configuration in which everything works."""


def flow(**changes: Any) -> dict[str, Any]:
    """Return the table of a flow that is changed."""
    return {"flows": {"mine": {**FLOW, **changes}}}


def stacks(name: str, **changes: Any) -> dict[str, Any]:
    """Return the table of both stacks, of which one is changed."""
    return {"stacks": {"legacy": STACK, "graph": STACK, name: {**STACK, **changes}}}


def surveyed(tables: Mapping[str, Any], changes: Mapping[str, Any]) -> Survey:
    """Return the survey of a set-up in which everything answers, but for some changes.

    A change is one of the survey, or, with `graph.` or `captured.` before its name, of graph's
    answer or of what captures show.
    """
    found = Survey(parse({**WHOLE, **tables}))
    for stack in found.settings.stacks:
        trial = Trial(200, "text/event-stream", STREAM, total=1.0, whole=True)
        found.trials["mine", stack] = trial
    runs = Counter({"legacy": 9, "graph": 3})
    found.captured["mine"] = Captured(runs=runs, recorded=Counter(runs))
    found.status = {"shadows": {"equal": 12}, "uncorrelated": {}}
    for name, value in changes.items():
        holder, _, field = name.rpartition(".")
        parts = {"": found, "captured": found.captured["mine"]}
        setattr(found.trials["mine", "graph"] if holder == "graph" else parts[holder], field, value)
    return found


ONE: Mapping[str, Any] = {"stacks": {"legacy": STACK}}
SHARE: Mapping[str, Any] = {"enable_langgraph": True, "langgraph_percent": 50.0}
NO_RUN: Mapping[str, Any] = {"status": {"uncorrelated": {"no_run": 7}}}
TWO_LINES = 'OpenAI(base_url="http://127.0.0.1:8081/v1")'
TURNS = "may go to different services"
ROWS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any], str, str]] = {
    # what differs in the tables, and in the survey; the check and its state, and what is said
    "refused": ({}, {"status": {"configuration_refused": "x.y"}}, "configuration fail", "x.y"),
    "graph rests": (
        *(flow(**SHARE), {"status": {"flows": {"mine": {"effective_percent": 0.0}}}}),
        *("configuration warn", "50 % to graph, of which 0 %"),
    ),
    "away": ({}, {"services": {"graph": "http://x is away"}}, "services fail", "http://x is away"),
    "one stack": (ONE, {}, "services warn", "only legacy"),
    "another dialect": (flow(dialect="anthropic"), {}, "streams fail", "flows.mine.dialect"),
    "cut": ({}, {"graph.raw": STREAM[:90]}, "streams fail", "truncated"),
    "refuses": ({}, {"graph.status": 401}, "streams fail", "--header"),
    "fails": ({}, {"graph.status": 500}, "streams fail", "look into its log"),
    "asks its model where nothing is": (
        *({}, {"graph.status": 500, "faults": {"gateway": "refused"}, "status": None}),
        *("streams fail", "start `cutover serve` first"),
    ),
    "no example": ({}, {"trials": {}}, "streams warn", "flows.mine.example"),
    "no stream": ({}, {"graph.media": "application/json"}, "streams ok", "no stream"),
    "no keys": (flow(keys={}, sticky=""), {}, "keys warn", TURNS),
    "no keys, by GET": (flow(keys={}, sticky="", methods=["GET"]), {}, "keys warn", "query.thread"),
    "no sticky": (flow(sticky=""), {}, "keys warn", TURNS),
    "not in the example": (
        *(flow(keys={"user": "body.who"}, sticky=""), {}),
        *("keys warn", "nothing at body.who in example"),
    ),
    "not in requests": (
        *({}, {"captured.without_key": Counter(user=4)}),
        *("keys warn", "in 4 of the last 12 requests"),
    ),
    "slow": ({}, {"graph.gap": 30.0}, "limits warn", "raise stacks.graph.silence_seconds"),
    "long": ({}, {"graph.total": 45.0}, "limits warn", "raise server.drain_seconds"),
    "no gateway": ({"gateway": None}, {}, "gateway warn", "traceparent"),
    "gateway away": ({}, {"faults": {"gateway": "refused"}}, "gateway fail", "gateway.url"),
    "router not running": (
        *({}, {"faults": {"gateway": "refused"}, "status": None}),
        *("gateway warn", "while `cutover serve` runs"),
    ),
    "uncorrelated": ({}, NO_RUN, "gateway warn", TWO_LINES),
    "traces of their own": (
        *({}, {"status": {"uncorrelated": {"unknown_trace": 5, "run_over": 2}}}),
        *("gateway warn", 'extra_headers={"x-cutover-run": request.headers.get("x-cutover-run"'),
    ),
    "calls behind the end": ({}, {"status": {"uncorrelated": {"run_over": 7}}}, "gateway ok", "9"),
    "one asks past it": (
        *({}, {"captured.recorded": Counter(legacy=9)}),
        *("gateway warn", "graph (0 of 3 runs)"),
    ),
    "database": ({}, {"faults": {"database": "away"}}, "database fail", "stores.database"),
    "redis": ({}, {"faults": {"redis": "away"}}, "redis fail", "stores.redis"),
    "no captures": ({"captures": None}, {}, "captures warn", "[captures]"),
    "not writable": ({}, {"faults": {"captures": "denied"}}, "captures fail", "captures.url"),
    "not safe": (
        *(stacks("graph", shadow_safe=False), {}),
        *("shadows warn", "stacks.graph.shadow_safe"),
    ),
    "legacy plays none": (stacks("legacy", shadow_safe=False), {}, "shadows ok", "12 equal"),
    "legacy plays some": (
        *(flow(**SHARE) | stacks("legacy", shadow_safe=False), {}),
        *("shadows warn", "stacks.legacy.shadow_safe"),
    ),
    "not mirrored": (flow(shadow_percent=0.0), {}, "shadows warn", "shadow_percent"),
    "tools in shadows": (
        *({}, {"captured.escaped": Counter({"tool search": 6})}),
        *("shadows warn", "tool search 6 times"),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_is_wrong_is_one_line_with_what_to_do(name: str) -> None:
    """The check that it belongs to says it, and no other one complains."""
    tables, changes, line, words = ROWS[name]
    check, state = line.split()
    result = judge(surveyed(tables, changes))
    mine = next(one for one in result.checks if one.name == check)
    line = next(one for one in page(result).splitlines() if one[6:].startswith(check))
    assert (mine.state, words in line) == (state, True), line
    assert [one.name for one in result.checks if one.state == "fail"] == [check] * (state == "fail")
    assert bool(mine.todo) is (state != "ok")
    assert result.healthy is (state != "fail")


def test_a_file_without_flows_is_no_fault() -> None:
    """It serves the built-in ones."""
    assert "chat " in page(judge(Survey(parse({}))))


def test_a_set_up_in_which_all_works_says_so() -> None:
    """Ten lines that are ok, and a row of yes."""
    result = judge(surveyed({}, {}))
    shown = page(result).splitlines()
    assert len(CHECKS) == 10
    assert [one.split()[0] for one in shown[:10]] == ["ok"] * 10
    assert shown[11].split() == ["works", "fallback", "mirror", "takeover", "replay"]
    assert shown[12].split() == ["mine", "yes", "yes", "yes", "yes"]
    assert shown[13:] == ["next: ask the router, and then cutover diff"]
    assert page(judge(surveyed({}, {"status": None}))).endswith("next: cutover serve")


BUILT_IN: Mapping[str, Any] = {
    "flows": {"chat": {"shadow_percent": 1.0}},
    "stacks": {},
    "captures": None,
    "gateway": None,
}
TEXT = (
    b'data: {"type":"text-start","id":"0"}\n\ndata: {"type":"text-delta","id":"0","delta":"hi"}\n\n'
)
SOURCE = b'data: {"type":"start","messageId":"m"}\n\ndata: {"type":"source-url","url":"u"}\n\n'
UI, UI_MORE = (Trial(200, "text/event-stream", raw, whole=True) for raw in (TEXT, SOURCE + TEXT))
USES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any], str, str]] = {
    "no gateway": ({"gateway": None}, {}, "yes partly partly no", "no [gateway]"),
    "uncorrelated": ({}, NO_RUN, "yes partly partly no", "7 calls at the gateway name no run"),
    "not safe": (stacks("graph", shadow_safe=False), {}, "yes no yes yes", "shadow_safe is false"),
    "no share": (flow(shadow_percent=0), {}, "yes no yes yes", "shadow_percent is 0"),
    "no fallback": (flow(langgraph_fallback=False), {}, "no yes no yes", "_fallback is off"),
    "one stack": (ONE, {}, "no no no yes", "one stack only"),
    "no captures": ({"captures": None}, {}, "yes yes yes no", "no [captures]"),
    "nothing seen": ({}, {"captured": {}}, "yes partly partly no", "no request is captured yet"),
    "another event before the text": (
        *(flow(dialect="ai-sdk"), {"trials": {("mine", "legacy"): UI, ("mine", "graph"): UI_MORE}}),
        *("yes yes no yes", "graph cannot go on for legacy (docs/services.md): text-start"),
    ),
    "another text": ({}, {"graph.raw": STREAM.replace(b"hi", b"ho")}, "yes yes yes yes", ""),
    "built in": (BUILT_IN, {"trials": {}, "captured": {}}, "yes yes yes no", "no [captures]"),
}


@pytest.mark.parametrize("name", USES)
def test_what_works_is_said_with_why_not(name: str) -> None:
    """Fallback, mirror, takeover, replay."""
    tables, changes, works, why = USES[name]
    result = judge(surveyed(tables, changes))
    assert " ".join(one.works for one in result.uses) == works
    assert all(one.why for one in result.uses if one.works != "yes")
    assert why in page(result)


def test_events_that_the_page_says_not_to_await_keep_no_service_from_going_on() -> None:
    """Its rules, before those of the AI SDK's dialect; without them, either way is barred."""
    page = (ROOT / "docs" / "services.md").read_text("utf-8")
    (rules,) = re.findall(r"```toml\n(\[\[events]] +# in a copy.*?)```", page, re.DOTALL)
    text = (ROOT / "cutover" / "wire" / "dialects" / "ai-sdk.toml").read_text("utf-8")
    own = read_dialect(text.replace("[[events]]", f"{rules}[[events]]", 1), "own.toml")
    for one, other in ((UI, UI_MORE), (UI_MORE, UI)):
        assert contradiction(one, other, find_dialect("ai-sdk"))
        assert not contradiction(one, other, own)


@pytest.mark.sockets
async def test_services_and_stores_are_asked(tmp_path: Path) -> None:
    """Each service once, with the example and the headers given; stores are opened."""
    async with Origin() as one, Origin() as other:
        settings = {
            **WHOLE,
            "stacks": {"legacy": {"url": one.url}, "graph": {"url": other.url}},
            "captures": {"url": str(tmp_path / "captures"), "key": "k" * 16},
            "stores": {"database": f"sqlite+aiosqlite:///{tmp_path}/world.db"},
            "server": {"port": 1},
            "gateway": {"port": 2},
        }
        for origin in (one, other):
            origin.script(Reply([STREAM], "text/event-stream"))
        found = await survey(parse(settings), {"authorization": "Bearer k"})
        assert [len(origin.asked) for origin in (one, other)] == [1, 1]
        assert one.asked[0].headers["authorization"] == "Bearer k"
        assert one.asked[0].target == "/ask"
        assert one.asked[0].headers["traceparent"].split("-")[1] == TRIAL
    assert (found.status, found.faults["database"], found.faults["captures"]) == (None, "", "")
    assert judge(found).healthy
    assert not list((tmp_path / "captures").rglob("*.zst"))


@pytest.mark.sockets
@pytest.mark.parametrize("as_json", [False, True])
def test_the_status_says_whether_something_fails(tmp_path: Path, *, as_json: bool) -> None:
    """0 or 1; a file that cannot be used is a check that fails, too."""
    config = tmp_path / "cutover.toml"
    config.write_text("[flows.main]\npath = 1", "utf-8")
    arguments = ["doctor", "--config", str(config), *(["--json"] if as_json else [])]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 1
    if as_json:
        assert json.loads(done.output)["checks"][0]["state"] == "fail"
    else:
        assert "did you mean 'paths'?" in done.output
