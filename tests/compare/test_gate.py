"""The gate's verdicts on drawn rollouts: each with its reason, and what to do next."""

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from compare.rollout import Decision, Scope, Verdict, decide
from tests.compare.drawn import HOUR_US, Drawn


def served(drawn: Drawn, **changes: Any) -> pd.DataFrame:
    """Return graph's exchanges of a rollout changed."""
    rows = drawn.frame()
    rows.loc[rows["assigned"] == "graph", list(changes)] = list(changes.values())
    return rows


def some(end: str, **changes: Any) -> pd.DataFrame:
    """Return a rollout in which a fiftieth of graph's exchanges ended in another way."""
    rows = Drawn().frame()
    changed = (rows["assigned"] == "graph") & (np.arange(len(rows)) % 50 == 0)
    rows.loc[changed, ["end", *changes]] = [end, *changes.values()]
    return rows


EQUAL = Drawn()
SMALL = Drawn(exchanges=400, users=200, share=0.05, fails=0.0)
OLD = Drawn(exchanges=8_000, share=0.05, fails=0.01, config="old")
GROWN = OLD.later(share=0.5, fails=0.05, exchanges=40_000, users=8_000, config="now")
CRASHED, MENDED = Drawn(behind=0.5), Drawn(behind=0.5).later(behind=0.0)
NOT_DRAWN = [EQUAL.frame(why=why) for why in ("forced", "pinned", "asked", "off")]
DRAWN = tomllib.loads(Path(__file__).with_name("rollouts.toml").read_text("utf-8"))["drawn"]
Rows = Sequence[Drawn | pd.DataFrame]
# fmt: off
CASES: dict[str, tuple[Rows, Verdict, str, str]] = {
    **{name: ([Drawn(**drawn)], *due) for name, (drawn, *due) in DRAWN.items()},
    "a small share that fails at once": (
        [served(SMALL, end="failed", code="grammar")], "roll_back",
        "exchanges of graph failed, 0 of ", "failed: grammar ("),
    "the breaker sends graph's share to legacy": (
        [served(EQUAL, served="legacy")], "roll_back",
        "graph fails more", "not served by graph ("),
    "clients leave graph's streams": ([some("left")], "hold", "worse: unanswered: legacy 0.", ""),
    "graph says nothing": (
        [some("completed", first_text_ms=None)], "hold",
        "worse: unanswered: legacy 0.00%, graph 1.86%", ""),
    "more fails while the share rises": (
        [OLD, GROWN], "promote", "within its margin: failed: legacy ", ""),
    "an old crash of other code": (
        [replace(CRASHED, code="old"), MENDED], "promote", "", ""),
    "an old crash of services whose code is not seen": ([CRASHED, MENDED], "promote", "", ""),
    "nothing under the file's configuration": (
        [OLD], "cannot_tell",
        "of 8000 exchanges none was drawn under the configuration in force",
        "has taken up the file; wait for "),
    "forced, pinned and asked for": (
        NOT_DRAWN, "cannot_tell", "of 32000 exchanges none was drawn", ""),
    "another flow": (
        [EQUAL.frame(flow="ops")], "cannot_tell", "of 0 exchanges none was drawn", ""),
}
# fmt: on
"""Exchanges, the verdict on them, a part of its reasons, and of what to do next."""
ASKED: dict[str, dict[str, Any]] = {
    "more fails while the share rises": {"share": 0.5},
    "an old crash of services whose code is not seen": {"since": 80 * HOUR_US},
}
"""What else is asked of a case."""


def decided(exchanges: Rows, findings: Sequence[str] = (), **asked: Any) -> Decision:
    """Return the decision at the end of the last day of exchanges."""
    rows = pd.concat([one.frame() if isinstance(one, Drawn) else one for one in exchanges])
    share = getattr(exchanges[0], "share", 0.05 if len(rows) == SMALL.exchanges else 0.5)
    now = int(rows["at"].max())
    known: dict[str, Any] = {"flow": "chat", "share": share, "config": "now", "now": now}
    return decide(rows, Scope(**known | asked), findings)


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_has_its_reason(name: str) -> None:
    """And says what to do next."""
    exchanges, verdict, reason, then = CASES[name]
    findings = ("cause 1f is new",) if reason == "cause 1f" else ()
    decision = decided(exchanges, findings, **ASKED.get(name, {}))
    assert decision.verdict == verdict, decision
    assert reason in " ".join(decision.reasons)
    assert then in decision.next
    assert bool(decision.missing) == ("more exchanges: " in decision.next)
    assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision) == decision


def test_evidence_is_clustered_by_user_where_one_is_known() -> None:
    """Without one, exchanges stand for themselves, and the decision says how many."""
    known, unknown = decided([EQUAL]), decided([replace(EQUAL, known=False)])
    assert (known.unit, known.loose, known.arms["graph"].units) == ("user_id", 0, 763)
    assert (unknown.unit, unknown.loose) == ("", 8_000)
    assert unknown.arms["graph"].units == unknown.arms["graph"].exchanges


def test_users_with_exchanges_of_both_stacks_are_no_units() -> None:
    """They were not drawn by user."""
    rows = Drawn(users=1_000_000).frame()
    rows["unit"] = np.arange(len(rows)) // 10
    rows["unit"] = "user " + rows["unit"].astype(str)
    decision = decided([rows])
    assert decision.verdict == "promote"
    assert decision.loose >= 7_900


def test_no_figure_of_fewer_than_twenty_users() -> None:
    """A percentile of three exchanges is none."""
    assert decided([Drawn(exchanges=40, users=30, share=0.2)]).measures == ()


def test_how_long_it_takes_is_said_at_the_rate_of_the_last_day() -> None:
    """100 an hour, and none once nothing has come for a day."""
    drawn = Drawn(exchanges=2_400, users=600, share=0.1)
    decision = decided([drawn])
    days = decision.missing / 100 / 24
    assert f"about {days:.0f} days at today's rate of 100 an hour" in decision.next
    later = decided([drawn], now=int(drawn.frame()["at"].max()) + 25 * HOUR_US)
    assert "none came in the last 24 hours" in later.next
    slow = decided([drawn.frame(at=np.arange(drawn.exchanges) * 5 * HOUR_US)], share=0.1)
    assert f"about {slow.missing / 6:.0f} days at today's rate of 0.25 an hour" in slow.next


@pytest.mark.nightly
def test_graphs_that_are_worse_are_seldom_promoted_and_equal_ones_often() -> None:
    """At the margin of a rate at most 5 %, up to chance; 200 rollouts of 8 000 exchanges."""
    verdicts = {
        behind: [decided([replace(EQUAL, behind=behind, seed=seed)]).verdict for seed in range(200)]
        for behind in (0.0, 0.005, 0.01)
    }
    assert verdicts[0.0].count("promote") >= 160
    assert verdicts[0.0].count("roll_back") == 0
    assert verdicts[0.005].count("promote") <= 16
    assert verdicts[0.01].count("promote") == 0
