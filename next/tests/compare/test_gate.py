"""The gate's verdicts on drawn rollouts: each with its reason, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from compare.rollout import Decision, Scope, Verdict, decide
from compare.rows import frame
from tests.compare.drawn import HOUR_US, Drawn


@dataclass(frozen=True)
class Case:
    """Exchanges, and what is to be said of them."""

    name: str
    exchanges: Sequence[Drawn | pd.DataFrame]
    verdict: Verdict
    reason: str
    next: str = ""
    terms: dict[str, Any] = field(default_factory=dict)
    findings: tuple[str, ...] = ()


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
CASES = [
    Case("equal", [EQUAL], "promote", "within its margin: end P95: legacy ", "raise the share"),
    Case(
        "equal, few write most and users differ",
        [Drawn(exchanges=40_000, users=8_000, crowd=2.5, alike=False)],
        "promote",
        "within its margin: failed",
    ),
    Case(
        "20 % slower",
        [Drawn(slower=1.2)],
        "hold",
        "worse: first text P95: legacy 1",
        "more exchanges will not change it",
    ),
    Case("35 % slower, of 23 ms", [Drawn(text_ms=23, spread=0.1, slower=1.35)], "promote", ""),
    Case(
        "1 % fails behind the fallback",
        [Drawn(behind=0.01)],
        "hold",
        "worse: failed: legacy 0.",
    ),
    Case(
        "1 % fails behind the fallback, for longer",
        [Drawn(behind=0.01, exchanges=30_000, users=6_000)],
        "roll_back",
        "graph fails more: ",
        "cutover rollback; failed: crashed (",
    ),
    Case(
        "a small share that fails at once",
        [served(SMALL, end="failed", code="grammar")],
        "roll_back",
        "exchanges of graph failed, 0 of ",
        "failed: grammar (",
    ),
    Case(
        "the breaker sends graph's share to legacy",
        [served(EQUAL, served="legacy")],
        "roll_back",
        "graph fails more",
        "not served by graph (",
    ),
    Case("graph refuses what legacy serves", [Drawn(refuses=0.02)], "hold", "worse: refused: "),
    Case("clients leave graph's streams", [some("left")], "hold", "worse: unanswered: legacy 0."),
    Case(
        "graph says nothing",
        [some("completed", first_text_ms=None)],
        "hold",
        "worse: unanswered: legacy 0.00%, graph 1.86%",
    ),
    Case("worse feedback", [Drawn(dislikes=(0.01, 0.03))], "hold", "worse: disliked: legacy "),
    Case("equal feedback", [Drawn(dislikes=(0.01, 0.01))], "promote", "margin: disliked"),
    Case(
        "a skewed split",
        [Drawn(drawn_by=0.6)],
        "cannot_tell",
        "the split is skewed: graph has ",
        "not captured",
    ),
    Case(
        "no exchange of graph",
        [Drawn(drawn_by=0.0)],
        "cannot_tell",
        "graph has none of ",
        "see that graph is served",
    ),
    Case("no exchange of legacy", [Drawn(drawn_by=1.0)], "cannot_tell", "legacy has none of "),
    Case(
        "more fails while the share rises",
        [OLD, OLD.later(share=0.5, fails=0.05, exchanges=40_000, users=8_000, config="now")],
        "promote",
        "within its margin: failed: legacy ",
        terms={"share": 0.5},
    ),
    Case(
        "an old crash of other code",
        [Drawn(behind=0.5, code="old"), Drawn(behind=0.5).later(code="new", behind=0.0)],
        "promote",
        "",
    ),
    Case(
        "an old crash of services whose code is not seen",
        [Drawn(behind=0.5), Drawn(behind=0.5).later(behind=0.0)],
        "promote",
        "",
        terms={"since": 80 * HOUR_US},
    ),
    Case(
        "nothing under the file's configuration",
        [OLD],
        "cannot_tell",
        "of 8000 exchanges none was drawn under the configuration in force",
        "has taken up the file; wait for ",
    ),
    Case(
        "forced, pinned and asked for",
        [EQUAL.frame(why=why) for why in ("forced", "pinned", "asked", "off")],
        "cannot_tell",
        "of 32000 exchanges none was drawn",
    ),
    Case("another flow", [EQUAL.frame(flow="ops")], "cannot_tell", "of 0 exchanges none was drawn"),
    Case(
        "too few users",
        [Drawn(exchanges=1_000, users=20)],
        "cannot_tell",
        "too few: legacy has ",
        "wait for ",
    ),
    Case(
        "too few exchanges",
        [Drawn(exchanges=300, users=200)],
        "hold",
        "not shown to be within its margin: failed",
        " h at today's rate of 1",
    ),
    Case(
        "everything goes to graph",
        [Drawn(share=1.0)],
        "cannot_tell",
        "at a share of 100% there is nothing to compare with",
    ),
    Case("a cause is not waived", [EQUAL], "hold", "cause 1f", findings=("cause 1f is new",)),
]


def decided(case: Case) -> Decision:
    """Return the decision at the end of the last day of a case's exchanges."""
    frames = [one.frame() if isinstance(one, Drawn) else one for one in case.exchanges]
    rows = pd.concat([frame([]), *frames]) if frames else frame([])
    first = case.exchanges[0] if case.exchanges else EQUAL
    share = first.share if isinstance(first, Drawn) else 0.05 if len(first) == 400 else 0.5
    now = int(rows["at"].max()) if len(rows) else 0
    terms: dict[str, Any] = {"flow": "chat", "share": share, "config": "now", "now": now}
    return decide(rows, Scope(**terms | case.terms), case.findings)


@pytest.mark.filterwarnings("ignore:The behavior of DataFrame concatenation")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_verdict_has_its_reason(case: Case) -> None:
    """And says what to do next."""
    decision = decided(case)
    assert decision.verdict == case.verdict, decision
    assert case.reason in " ".join(decision.reasons)
    assert case.next in decision.next
    assert bool(decision.missing) == ("more exchanges: " in decision.next)
    assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision) == decision


def test_evidence_is_clustered_by_user_where_one_is_known() -> None:
    """Without one, exchanges stand for themselves, and the decision says how many."""
    rows = EQUAL.frame()
    terms = Scope("chat", 0.5, "now", int(rows["at"].max()))
    known, unknown = decide(rows, terms), decide(replace(EQUAL, known=False).frame(), terms)
    assert (known.unit, known.loose, known.arms["graph"].units) == ("user_id", 0, 763)
    assert (unknown.unit, unknown.loose) == ("", 8_000)
    assert unknown.arms["graph"].units == unknown.arms["graph"].exchanges


def test_users_with_exchanges_of_both_stacks_are_no_units() -> None:
    """They were not drawn by user."""
    rows = Drawn(users=1_000_000).frame()
    rows["unit"] = np.arange(len(rows)) // 10
    rows["unit"] = "user " + rows["unit"].astype(str)
    decision = decide(rows, Scope("chat", 0.5, "now", int(rows["at"].max())))
    assert decision.verdict == "promote"
    assert decision.loose >= 7_900


def test_how_long_it_takes_is_said_at_the_rate_of_the_last_day() -> None:
    """100 an hour, and none once nothing has come for a day."""
    rows = Drawn(exchanges=2_400, users=600, share=0.1).frame()
    now = int(rows["at"].max())
    decision = decide(rows, Scope("chat", 0.1, "now", now))
    hours = decision.missing / 100
    assert f"about {hours:.0f} h at today's rate of 100 an hour" in decision.next
    later = decide(rows, Scope("chat", 0.1, "now", now + 25 * HOUR_US))
    assert "none came in the last 24 hours" in later.next


@pytest.mark.nightly
def test_graphs_that_are_worse_are_seldom_promoted_and_equal_ones_often() -> None:
    """At the margin of a rate at most 5 %, up to chance; 200 rollouts of 8 000 exchanges."""
    verdicts = {
        behind: [
            decided(Case("", [replace(EQUAL, behind=behind, seed=seed)], "hold", "")).verdict
            for seed in range(200)
        ]
        for behind in (0.0, 0.005, 0.01)
    }
    assert verdicts[0.0].count("promote") >= 160
    assert verdicts[0.0].count("roll_back") == 0
    assert verdicts[0.005].count("promote") <= 16
    assert verdicts[0.01].count("promote") == 0
