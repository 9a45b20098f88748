"""The gate: what it decides on drawn rollouts, and what it makes of any rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.flows.chat import CHAT
from contract.records import Outcome
from cutover.gate import gate_rules
from evidence.decision import Check, Decision
from evidence.gate import (
    MEASURES,
    GateEvidence,
    PairFindings,
    comparable,
    decision_of,
    share_in_force,
)
from evidence.in_force import code_in_force
from evidence.outcomes import ExchangeOutcome, Fallback, ToolUse, outcome_of
from router.config.schema import GateMargins, GateMeasureName, GateSettings
from router.context import AssignedBy
from tests.support.drawn_captures import runs_of
from tests.support.drawn_outcomes import DrawnRollout

RULES = gate_rules(GateSettings())
EQUAL_PAIRS = PairFindings(pairs=200, due=200)


def decided(outcomes: Sequence[ExchangeOutcome], percent: float = 50.0, **more: Any) -> Decision:
    """Decide on outcomes beside equal pairs, unless other findings are given."""
    facts: dict[str, Any] = {"outcomes": outcomes, "findings": EQUAL_PAIRS} | more
    return decision_of(GateEvidence(flow="chat", percent=percent, to=100.0, **facts), RULES)


def check_of(decision: Decision, name: str) -> Check:
    """Return a check by its name."""
    return next(one for one in decision.checks if one.name == name)


def test_the_configuration_names_every_measure() -> None:
    """Margins, objectives and critical checks are those of the measures, no more and no fewer."""
    assert set(GateMargins.model_fields) == set(get_args(GateMeasureName)) == set(MEASURES)


@pytest.mark.parametrize("seed", range(5))
def test_an_equal_candidate_is_promoted(seed: int) -> None:
    """With every request that was drawn compared."""
    decision = decided(DrawnRollout(seed=seed).outcomes())
    assert decision.verdict == "promote", decision.reasons
    assert decision.compared == 4_000


def test_promotion_also_works_at_a_small_share() -> None:
    """The planned size counts the requests of the smaller side."""
    rollout = DrawnRollout(requests=20_000, percent=10.0)
    assert decided(rollout.outcomes(), percent=10.0).verdict == "promote"


@pytest.mark.parametrize("seed", range(3))
def test_a_slower_candidate_is_rolled_back(seed: int) -> None:
    """By 20 %; the reason names what is slower."""
    decision = decided(DrawnRollout(slower=1.2, seed=seed).outcomes())
    assert decision.verdict == "rollback"
    assert "P95 of time to the end" in " ".join(decision.reasons)


@pytest.mark.parametrize("seed", range(3))
def test_failures_that_a_fallback_hides_roll_back(seed: int) -> None:
    """One request in a hundred: its clients saw nothing but time."""
    decision = decided(DrawnRollout(failing=0.01, seed=seed).outcomes())
    assert decision.verdict == "rollback"
    found = check_of(decision, "failures")
    assert found.verdict == "rollback"
    assert check_of(decision, "errors").verdict == "promote"
    control, candidate = found.figures
    assert (control.value, control.exchanges) == (0.0, ())
    assert candidate.value == pytest.approx(0.01, abs=0.005)
    assert candidate.exchanges
    assert candidate.as_served == 0.0


def test_slightly_slower_is_neither_promoted_nor_rolled_back() -> None:
    """Within its margin by the best estimate, and not shown to be."""
    assert decided(DrawnRollout(slower=1.07).outcomes()).verdict == "hold"


def test_worse_feedback_at_equal_latency_holds() -> None:
    """For that reason alone."""
    decision = decided(DrawnRollout(disliked=0.3).outcomes())
    assert decision.verdict == "hold"
    assert [one.name for one in decision.checks if one.verdict == "hold"] == ["feedback"]
    assert decision.reasons[0].startswith("bad ratings")


def test_an_unwaived_cause_holds() -> None:
    """Also where there is too little data for anything else."""
    found = PairFindings(pairs=200, due=200, unwaived={"ab12": 0.01})
    for requests in (10, 4_000):
        decision = decided(DrawnRollout(requests=requests).outcomes(), findings=found)
        assert decision.verdict == "hold"
        assert "ab12" in decision.reasons[0]


def test_a_cause_within_the_noise_of_the_control_does_not_hold() -> None:
    """Legacy differs from itself as often."""
    found = PairFindings(pairs=200, due=200, unwaived={"ab12": 0.01}, noise=0.02)
    assert decided(DrawnRollout().outcomes(), findings=found).verdict == "promote"


def test_many_causes_within_the_noise_hold_together() -> None:
    """Each is as rare as legacy's difference from itself; graph differs in a fifth of the pairs."""
    causes = {f"c{number}": 0.019 for number in range(10)}
    found = PairFindings(pairs=1_000, due=1_000, unwaived=causes, noise=0.02)
    decision = decided(DrawnRollout().outcomes(), findings=found)
    assert decision.verdict == "hold"
    assert check_of(decision, "findings").value == pytest.approx(0.19)


def test_pairs_are_due_where_shadows_run() -> None:
    """Too few of them, or too many lost, are no pass."""
    for found, verdict in (
        (PairFindings(pairs=10, due=10), "cannot_tell"),
        (PairFindings(expected=False), "promote"),
        (PairFindings(pairs=200, due=220, lost=20), "cannot_tell"),
    ):
        assert decided(DrawnRollout().outcomes(), findings=found).verdict == verdict


def test_answers_without_text_hold() -> None:
    """They complete, and have no time to the first text that could be compared."""
    rows = [
        msgspec.structs.replace(one, first_text=None)
        if one.assigned == "graph" and i % 10 == 0
        else one
        for i, one in enumerate(DrawnRollout().outcomes())
    ]
    decision = decided(rows)
    assert decision.verdict == "hold"
    assert "has no text" in decision.reasons[0]


@pytest.mark.parametrize("critical", [[], ["quality"]])
def test_no_data_passes_where_no_measure_is_critical(critical: list[str]) -> None:
    """Else one request on each side would do."""
    rules = msgspec.structs.replace(RULES, critical=frozenset(critical))
    for requests, verdict in ((100, "cannot_tell"), (4_000, "promote")):
        rows = DrawnRollout(requests=requests).outcomes()
        evidence = GateEvidence(
            flow="chat", percent=50.0, to=100.0, outcomes=rows, findings=EQUAL_PAIRS
        )
        assert decision_of(evidence, rules).verdict == verdict


def test_too_little_data_cannot_tell() -> None:
    """None, one, and too few for a verdict."""
    for requests in (0, 1, 2, 100, 600):
        decision = decided(DrawnRollout(requests=requests).outcomes())
        assert decision.verdict == "cannot_tell"
        assert decision.reasons


@pytest.mark.parametrize("stack", ["legacy", "graph"])
def test_one_side_alone_cannot_tell(stack: str) -> None:
    """There is nothing to compare with."""
    one_side = [one for one in DrawnRollout().outcomes() if one.assigned == stack]
    assert decided(one_side).verdict == "cannot_tell"


def test_a_flow_that_only_mirrors_is_promoted_by_its_pairs() -> None:
    """Nothing is assigned to graph yet: equal pairs are all there can be."""
    legacy = DrawnRollout(percent=0.0).outcomes()
    assert decided(legacy, percent=0.0, live=False).verdict == "promote"
    few = decided(legacy, percent=0.0, live=False, findings=PairFindings(pairs=1, due=1))
    assert few.verdict == "cannot_tell"


@pytest.mark.parametrize("value", [nan, inf, -1.0])
def test_figures_that_are_no_number_cannot_tell(value: float) -> None:
    """Nothing else counts then, not even what would roll back."""
    outcomes = DrawnRollout(slower=2.0).outcomes()
    outcomes[7] = msgspec.structs.replace(outcomes[7], cost=value)
    decision = decided(outcomes)
    assert decision.verdict == "cannot_tell"
    assert "1 of 4,000" in decision.reasons[0]


def test_constant_times_cannot_tell() -> None:
    """A stopped clock is no equal candidate."""
    outcomes = [
        msgspec.structs.replace(one, first_text=200_000, last_frame=900_000)
        for one in DrawnRollout().outcomes()
    ]
    assert decided(outcomes).verdict == "cannot_tell"


def test_a_skewed_split_voids_everything() -> None:
    """Also what would roll back: half of graph's requests are missing, perhaps the good ones."""
    outcomes = DrawnRollout(failing=0.05).outcomes()
    left = [one for i, one in enumerate(outcomes) if one.assigned == "legacy" or i % 10]
    decision = decided(left)
    assert decision.verdict == "cannot_tell"
    assert decision.reasons[0].startswith("the split is skewed")


def test_heavy_users_are_no_skew() -> None:
    """A key is drawn once, however often it asks."""
    outcomes = DrawnRollout().outcomes()
    heavy = next(one for one in outcomes if one.assigned == "graph")
    again = [
        msgspec.structs.replace(one, exchange=f"h{i}", bucket=heavy.bucket, assigned="graph")
        for i, one in enumerate(outcomes[:500])
    ]
    decision = decided([*outcomes, *again])
    assert check_of(decision, "sample_ratio").verdict == "promote"


def test_what_an_earlier_percentage_assigned_is_left_out() -> None:
    """Graph was slow at 5 %, then repaired, and is equal at 50 %."""
    before = DrawnRollout(percent=5.0, slower=3.0, seed=1).outcomes()
    after = [
        msgspec.structs.replace(one, exchange=f"y{i}", began=one.began + 10**10, config="c2")
        for i, one in enumerate(DrawnRollout().outcomes())
    ]
    decision = decided([*before, *after])
    assert decision.verdict == "promote"
    assert decision.compared >= 4_000
    assert decision.left_out["under another percentage"] > 3_900


def test_the_percentage_is_read_off_the_buckets_where_the_file_has_another() -> None:
    """The one that is configured, where the buckets allow it."""
    rows = DrawnRollout(percent=20.0).outcomes()
    assert share_in_force(rows, 20.0) == 20.0
    found = share_in_force(rows, 0.0)
    assert found is not None
    assert found == pytest.approx(20.0, abs=0.1)
    mixed = [*rows, msgspec.structs.replace(rows[0], bucket=99_999, assigned="graph")]
    assert share_in_force(mixed, 20.0) is None
    assert decided(mixed, percent=20.0).verdict == "cannot_tell"


def test_a_percentage_that_routers_do_not_follow_is_no_evidence() -> None:
    """The flags say 25 %, and routers go on at 5 %: from there nobody promotes to 50 %."""
    rows = DrawnRollout(percent=5.0, requests=20_000).outcomes()
    assert decided(rows, percent=5.0, in_force=True).verdict == "promote"
    decision = decided(rows, percent=25.0, in_force=True)
    assert decision.verdict == "cannot_tell"
    assert "25 % is in force" in check_of(decision, "sample_ratio").reason


@pytest.mark.parametrize("stack", ["legacy", "graph"])
def test_what_other_code_did_is_left_out(stack: str) -> None:
    """Graph was equal for long, and is replaced by one that fails: few requests cannot tell."""
    rows = [
        msgspec.structs.replace(one, fingerprint=f"{one.assigned} 1")
        for one in DrawnRollout(requests=5_000).outcomes()
    ]
    assert decided(rows).verdict == "promote"
    changed = [
        msgspec.structs.replace(one, fingerprint=f"{stack} 2") if one.assigned == stack else one
        for one in rows[-200:]
    ]
    decision = decided([*rows[:-200], *changed])
    assert decision.verdict == "cannot_tell"
    assert decision.compared < 220  # with those of the other stack since its last old request
    assert decision.left_out["served by other code"] == 5_000 - decision.compared


def test_forced_and_pinned_requests_are_not_compared() -> None:
    """Nor are conversations that began before."""
    rows = DrawnRollout(requests=10).outcomes()
    rows[0] = msgspec.structs.replace(rows[0], assigned_by="forced_header")
    rows[1] = msgspec.structs.replace(rows[1], assigned_by="pinned")
    for place in (2, 4):
        rows[place] = msgspec.structs.replace(
            rows[place], assigned_by="pinned", conversation=rows[3].conversation
        )
    kept, left = comparable(rows, 50.0, code_in_force(rows))
    assert dict(left) == {"forced or switched off": 1, "of a conversation that began before": 4}
    assert [one.exchange for one in kept] == [one.exchange for one in rows[5:]]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(get_args(AssignedBy)),
            st.integers(0, 99_999),
            st.sampled_from(["legacy", "graph"]),
            st.sampled_from(["", "x", "y"]),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_a_failure_does_not_change_whether_a_request_is_compared(
    drawn: list[tuple[str, int, str, str, bool]],
) -> None:
    """Whatever assigned it: else forced requests would count as soon as they fail."""

    def outcomes(*, failing: bool) -> list[ExchangeOutcome]:
        """Write each request as records, and read it back."""
        found = []
        for i, (cause, bucket, forced, conversation, fails) in enumerate(drawn):
            hashed = "graph" if bucket < 50_000 else "legacy"
            saved = fails and failing
            row = msgspec.structs.replace(
                DrawnRollout(requests=1).outcomes()[0],
                exchange=str(i),
                assigned=hashed if cause == "percent" else forced,
                assigned_by=cause,
                reason="crash" if saved else cause,
                fallback="fallback" if saved else "",
                bucket=bucket,
                conversation=conversation,
            )
            read = outcome_of([*runs_of(row)], CHAT, conversation=conversation)
            assert read is not None
            found.append(read)
        return found

    whole, failed = (
        comparable(rows, 50.0, code_in_force(rows))
        for rows in (outcomes(failing=one) for one in (False, True))
    )
    assert [one.exchange for one in failed[0]] == [one.exchange for one in whole[0]]
    assert failed[1] == whole[1]
    assert {one.assigned_by for one in failed[0]} <= {"percent", "pinned"}


def test_turns_of_one_conversation_are_no_evidence_of_their_own() -> None:
    """One conversation that fails a hundred times is one failure."""
    rows = DrawnRollout(requests=400).outcomes()
    failing = [
        msgspec.structs.replace(one, fallback="fallback", conversation="one")
        if one.assigned == "graph" and i % 4 == 0
        else one
        for i, one in enumerate(rows)
    ]
    assert decided(failing).verdict == "cannot_tell"


def test_a_fault_of_later_turns_is_rolled_back() -> None:
    """Each second request of graph's conversations fails in one of ten; first ones never do."""
    rows = [
        msgspec.structs.replace(one, conversation=f"{one.assigned} {i}", exchange=f"{i} {turn}")
        for turn in (0, 1)
        for i, one in enumerate(DrawnRollout(requests=2_000).outcomes())
    ]
    failing = [
        msgspec.structs.replace(one, end="failed")
        if one.assigned == "graph" and place >= 2_000 and place % 10 == 0
        else one
        for place, one in enumerate(rows)
    ]
    in_order = [msgspec.structs.replace(one, began=i) for i, one in enumerate(failing)]
    assert decided(in_order).verdict == "rollback"


def test_an_objective_that_is_missed_holds() -> None:
    """One that is met does not."""
    rules = msgspec.structs.replace(RULES, objectives={"ttft_p95": 0.3, "failures": 0.1})
    evidence = GateEvidence(
        flow="chat",
        percent=50.0,
        to=100.0,
        outcomes=DrawnRollout().outcomes(),
        findings=EQUAL_PAIRS,
    )
    decision = decision_of(evidence, rules)
    assert decision.verdict == "hold"
    assert [one.name for one in decision.checks if one.verdict == "hold"] == ["objective_ttft_p95"]
    assert check_of(decision, "objective_failures").verdict == "promote"


_NUMBERS = st.none() | st.integers(-1, 10**12)
ROWS = st.builds(
    ExchangeOutcome,
    exchange=st.text(max_size=3),
    flow=st.just("chat"),
    assigned=st.sampled_from(["legacy", "graph", "other"]),
    served=st.sampled_from(["legacy", "graph"]),
    began=st.integers(-1, 10**18),
    end=st.sampled_from(get_args(Outcome)),
    assigned_by=st.sampled_from(["percent", "pinned", "forced_header", "bug", ""]),
    bucket=st.integers(-1, 100_000),
    config=st.sampled_from(["", "a", "b"]),
    conversation=st.sampled_from(["", "x", "y"]),
    fallback=st.sampled_from(get_args(Fallback)),
    client_left=st.booleans(),
    first_frame=_NUMBERS,
    first_text=_NUMBERS,
    longest_gap=_NUMBERS,
    last_frame=_NUMBERS,
    prompt_tokens=st.integers(0, 10**9),
    cost=st.none() | st.floats(),
    tools=st.dictionaries(
        st.sampled_from(["dice", "other"]), st.builds(ToolUse, st.integers(0, 3), st.integers(0, 3))
    ),
    feedback=st.sampled_from([None, -1, 0, 1]),
)


@given(st.lists(ROWS, max_size=80), st.floats(0, 100), st.booleans())
def test_any_rows_get_a_verdict_with_reasons(
    rows: list[ExchangeOutcome], percent: float, live: bool
) -> None:
    """Never an exception, and never a promotion of so few."""
    decision = decided(rows, percent, live=live, findings=PairFindings())
    assert decision.verdict in {"cannot_tell", "hold", "rollback"}
    assert all(decision.reasons)
    assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision) == decision


@settings(max_examples=15)
@given(st.floats(1.0, 3.0), st.floats(1.0, 3.0))
def test_a_slower_candidate_is_never_rolled_back_less(one: float, other: float) -> None:
    """The same draws, slowed down by one factor or another."""
    less, more = (
        decided(DrawnRollout(requests=1_000, slower=slower).outcomes()).verdict == "rollback"
        for slower in sorted((one, other))
    )
    assert more >= less


@settings(max_examples=15)
@given(st.floats(0.0, 0.1), st.floats(0.0, 0.1))
def test_a_candidate_that_fails_more_is_never_rolled_back_less(one: float, other: float) -> None:
    """The same draws: the failures of the better one are among those of the worse one."""
    less, more = (
        decided(DrawnRollout(requests=1_000, failing=failing).outcomes()).verdict == "rollback"
        for failing in sorted((one, other))
    )
    assert more >= less
