"""`cutover doctor`: what it says of a set-up, and what works in it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from harness.cli import cli
from harness.config import parse
from harness.setup.doctor import CHECKS, judge, page
from harness.setup.survey import Captured, Survey, survey
from harness.setup.trial import Trial
from tests.support.origin import Origin, Reply

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


def tables(**changes: Any) -> dict[str, Any]:
    """Return a configuration in which everything works, but for some tables."""
    return {
        "stacks": {"legacy": STACK, "graph": STACK},
        "flows": {"mine": FLOW},
        "captures": {"url": "memory://captures", "key": "k" * 16},
        "gateway": {},
        **changes,
    }


def flow(**changes: Any) -> dict[str, Any]:
    """Return tables whose flow is changed."""
    return tables(flows={"mine": {**FLOW, **changes}})


def stack(**changes: Any) -> dict[str, Any]:
    """Return tables whose graph is changed."""
    return tables(stacks={"legacy": STACK, "graph": {**STACK, **changes}})


def healthy(settings: Mapping[str, Any]) -> Survey:
    """Return the survey of a set-up in which everything answers."""
    found = Survey(parse(settings))
    for name in found.settings.stacks:
        trial = Trial(200, "text/event-stream", STREAM, total=1.0, whole=True)
        found.trials["mine", name] = trial
    runs = Counter({"legacy": 9, "graph": 3})
    found.captured["mine"] = Captured(12, runs=runs, recorded=Counter(runs))
    found.status = {"shadows": {"equal": 12}, "uncorrelated": {}}
    return found


def set_trial(**changes: Any) -> Callable[[Survey], None]:
    """Return a change of how graph answers."""

    def change(found: Survey) -> None:
        for name, value in changes.items():
            setattr(found.trials["mine", "graph"], name, value)

    return change


def set_captured(**changes: Any) -> Callable[[Survey], None]:
    """Return a change of what captures show."""

    def change(found: Survey) -> None:
        for name, value in changes.items():
            setattr(found.captured["mine"], name, value)

    return change


def set_survey(**changes: Any) -> Callable[[Survey], None]:
    """Return a change of what was found."""

    def change(found: Survey) -> None:
        for name, value in changes.items():
            setattr(found, name, value)

    return change


def nothing(_: Survey) -> None:
    """Change nothing."""


ROWS: Mapping[str, tuple[dict[str, Any], Callable[[Survey], None], str, str, str]] = {
    # tables, what is found; the check, its state, what is said
    "refused": (
        tables(),
        set_survey(status={"configuration_refused": "flows.x"}),
        *("configuration", "fail", "flows.x"),
    ),
    "graph rests": (
        flow(enable_langgraph=True, langgraph_percent=50.0),
        set_survey(status={"flows": {"mine": {"effective_percent": 0.0}}}),
        *("configuration", "warn", "50 % to graph, of which 0 %"),
    ),
    "away": (
        tables(),
        set_survey(services={"graph": "http://x does not answer"}),
        *("services", "fail", "http://x does not answer"),
    ),
    "one stack": (tables(stacks={"legacy": STACK}), nothing, "services", "warn", "only legacy"),
    "another dialect": (
        flow(dialect="anthropic"),
        nothing,
        "streams",
        "fail",
        "flows.mine.dialect",
    ),
    "cut": (tables(), set_trial(raw=STREAM[:90]), "streams", "fail", "truncated"),
    "refuses": (tables(), set_trial(status=401), "streams", "fail", "--header"),
    "no example": (tables(), set_survey(trials={}), "streams", "warn", "flows.mine.example"),
    "no stream": (tables(), set_trial(media="application/json"), "streams", "ok", "no stream"),
    "no keys": (flow(keys={}, sticky=""), nothing, "keys", "warn", "may go to different services"),
    "no sticky": (flow(sticky=""), nothing, "keys", "warn", "may go to different services"),
    "not in the example": (
        flow(keys={"user": "body.who"}, sticky=""),
        nothing,
        *("keys", "warn", "nothing at body.who in example"),
    ),
    "not in requests": (
        tables(),
        set_captured(without_key=Counter(user=4)),
        *("keys", "warn", "in 4 of the last 12 requests"),
    ),
    "silence above total": (
        stack(silence_seconds=900),
        nothing,
        "limits",
        "warn",
        "never in force",
    ),
    "slow": (tables(), set_trial(gap=30.0), "limits", "warn", "raise stacks.graph.silence_seconds"),
    "long": (tables(), set_trial(total=45.0), "limits", "warn", "raise server.drain_seconds"),
    "no gateway": (tables(gateway=None), nothing, "gateway", "warn", "traceparent"),
    "gateway away": (tables(), set_survey(gateway="refused"), "gateway", "fail", "gateway.url"),
    "router not running": (
        tables(),
        set_survey(gateway="refused", status=None),
        *("gateway", "warn", "while `cutover serve` runs"),
    ),
    "uncorrelated": (
        tables(),
        set_survey(status={"uncorrelated": {"no_run": 7}}),
        *("gateway", "warn", 'OpenAI(base_url="http://127.0.0.1:8081/v1")'),
    ),
    "one service asks past it": (
        tables(),
        set_captured(recorded=Counter(legacy=9)),
        *("gateway", "warn", "graph (0 of 3 runs)"),
    ),
    "database": (tables(), set_survey(database="away"), "database", "fail", "stores.database"),
    "redis": (tables(), set_survey(redis="away"), "redis", "fail", "stores.redis"),
    "no captures": (tables(captures=None), nothing, "captures", "warn", "[captures]"),
    "not writable": (tables(), set_survey(captures="denied"), "captures", "fail", "captures.url"),
    "not safe": (stack(shadow_safe=False), nothing, "shadows", "warn", "stacks.graph.shadow_safe"),
    "legacy plays none": (
        tables(stacks={"legacy": {**STACK, "shadow_safe": False}, "graph": STACK}),
        nothing,
        *("shadows", "ok", "12 equal"),
    ),
    "legacy plays some": (
        {
            **flow(enable_langgraph=True, langgraph_percent=5.0),
            "stacks": {"legacy": {**STACK, "shadow_safe": False}, "graph": STACK},
        },
        nothing,
        *("shadows", "warn", "stacks.legacy.shadow_safe"),
    ),
    "not mirrored": (flow(shadow_percent=0.0), nothing, "shadows", "warn", "shadow_percent"),
    "tools in shadows": (
        tables(),
        set_captured(escaped=Counter({"tool search": 6})),
        *("shadows", "warn", "tool search 6 times"),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_is_wrong_is_one_line_with_what_to_do(name: str) -> None:
    """The check that it belongs to says it, and no other one complains."""
    settings, change, check, state, words = ROWS[name]
    found = healthy(settings)
    change(found)
    result = judge(found)
    mine = next(one for one in result.checks if one.name == check)
    line = next(one for one in page(result).splitlines() if one[6:].startswith(check))
    assert (mine.state, words in line) == (state, True), line
    assert [one.name for one in result.checks if one.state == "fail"] == [check] * (state == "fail")
    assert bool(mine.todo) is (state != "ok")
    assert result.healthy is (state != "fail")


def test_a_set_up_in_which_all_works_says_so() -> None:
    """Ten lines that are ok, and a row of yes."""
    result = judge(healthy(tables()))
    shown = page(result).splitlines()
    assert len(CHECKS) == 10
    assert [one.split()[0] for one in shown[:10]] == ["ok"] * 10
    assert shown[11].split() == ["works", "fallback", "mirror", "takeover", "replay"]
    assert shown[12].split() == ["mine", "yes", "yes", "yes", "yes"]
    assert len(shown) == 13


USES: Mapping[str, tuple[dict[str, Any], Callable[[Survey], None], str, str]] = {
    "no gateway": (tables(gateway=None), nothing, "yes partly partly no", "no [gateway]"),
    "uncorrelated": (
        tables(),
        set_survey(status={"uncorrelated": {"no_run": 7}}),
        *("yes partly partly no", "7 calls at the gateway name no run"),
    ),
    "not safe": (stack(shadow_safe=False), nothing, "yes no yes yes", "shadow_safe is false"),
    "no share": (flow(shadow_percent=0), nothing, "yes no yes yes", "shadow_percent is 0"),
    "no fallback": (flow(langgraph_fallback=False), nothing, "no yes no yes", "_fallback is off"),
    "one stack": (tables(stacks={"legacy": STACK}), nothing, "no no no yes", "one stack only"),
    "no captures": (tables(captures=None), nothing, "yes yes yes no", "no [captures]"),
    "nothing seen": (
        tables(),
        set_survey(captured={}),
        *("yes partly partly no", "no request is captured yet"),
    ),
    "built in": (
        {"flows": {"chat": {"shadow_percent": 1.0}}},
        set_survey(trials={}, captured={}),
        *("yes yes yes no", "no [captures]"),
    ),
}


@pytest.mark.parametrize("name", USES)
def test_what_works_is_said_with_why_not(name: str) -> None:
    """Fallback, mirror, takeover, replay."""
    settings, change, works, why = USES[name]
    found = healthy(settings)
    change(found)
    result = judge(found)
    assert " ".join(one.works for one in result.uses) == works
    assert all(one.why for one in result.uses if one.works != "yes")
    assert why in page(result)


@pytest.mark.sockets
async def test_services_and_stores_are_asked(tmp_path: Path) -> None:
    """Each service once, with the example and the headers given; stores are opened."""
    async with Origin() as one, Origin() as other:
        settings = tables(
            stacks={"legacy": {"url": one.url}, "graph": {"url": other.url}},
            captures={"url": str(tmp_path / "captures"), "key": "k" * 16},
            stores={"database": f"sqlite+aiosqlite:///{tmp_path}/world.db"},
            server={"port": 1},
            gateway={"port": 2},
        )
        for origin in (one, other):
            origin.script(Reply([STREAM], "text/event-stream"))
        found = await survey(parse(settings), {"authorization": "Bearer k"})
        assert [len(origin.asked) for origin in (one, other)] == [1, 1]
        assert one.asked[0].headers["authorization"] == "Bearer k"
        assert one.asked[0].target == "/ask"
    assert (found.status, found.database, found.captures) == (None, "", "")
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
