"""Code in force: what counts as evidence before, during and after a deployment."""

from __future__ import annotations

from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from evidence.in_force import CodeInForce, PairRow, RunCode, code_in_force
from evidence.outcomes import ExchangeOutcome
from tests.support.drawn_outcomes import DrawnRollout

[ROW] = DrawnRollout(requests=1).outcomes()


def served(began: int, stack: str, code: str) -> ExchangeOutcome:
    """Return an outcome of a stack with a fingerprint."""
    return msgspec.structs.replace(ROW, began=began, assigned=stack, fingerprint=code)


def pair(began: int, legacy: str, graph: str, *, replays: str = "") -> PairRow:
    """Return a pair; `replays` names the stacks whose run is one."""
    runs = (
        RunCode("legacy", legacy, "legacy" in replays),
        RunCode("graph", graph, "graph" in replays),
    )
    return PairRow(f"x-{began}", began, runs)


def counted(pairs: list[PairRow], code: CodeInForce) -> list[int]:
    """Return when the pairs that count began."""
    return [one.began for one in pairs if code.counts_pair(one)]


def test_pairs_of_the_code_before_a_deployment_do_not_count() -> None:
    """Of either stack, in whatever order they are read."""
    pairs = [pair(4, "L2", "G2"), pair(1, "L1", "G1"), pair(3, "L2", "G2"), pair(2, "L2", "G1")]
    code = code_in_force([], pairs)
    assert code == CodeInForce({"legacy": "L2", "graph": "G2"}, since=2)
    assert counted(pairs, code) == [4, 3]


def test_while_hosts_have_different_code_no_pair_counts() -> None:
    """Those of the newest code are among others to the end."""
    pairs = [pair(began, "L", f"G{began % 2}") for began in range(9)]
    assert counted(pairs, code_in_force([], pairs)) == [8]


def test_outcomes_show_what_is_deployed_before_any_pair_does() -> None:
    """Graph serves with new code; its shadows so far are of the old one."""
    pairs = [pair(1, "L", "G1"), pair(2, "L", "G1")]
    code = code_in_force([served(3, "graph", "G2")], pairs)
    assert counted(pairs, code) == []
    assert not code.counts(served(1, "graph", "G1"))
    assert not code.counts(served(2, "legacy", "L"))
    assert code.counts(served(3, "legacy", ""))


def test_replays_of_the_code_in_force_count_whenever_their_exchange_began() -> None:
    """They ran later; those of other code do not, nor do those beside a recording of other code."""
    both, other = pair(1, "L2", "G2", replays="legacy graph"), pair(1, "L2", "G3", replays="graph")
    beside = pair(1, "L1", "G2", replays="graph")
    pairs = [pair(1, "L1", "G1"), pair(5, "L2", "G2"), both, other, beside]
    code = code_in_force([], pairs)
    assert code.codes == {"legacy": "L2", "graph": "G2"}
    assert [one for one in pairs if code.counts_pair(one)] == [pairs[1], both]


def test_where_graph_was_only_replayed_its_replays_are_the_code() -> None:
    """As in a folder of `cutover replay`; the recordings name legacy's."""
    pairs = [pair(began, "L", "G9", replays="graph") for began in range(3)]
    code = code_in_force([], pairs)
    assert code.codes == {"legacy": "L", "graph": "G9"}
    assert counted(pairs, code) == [0, 1, 2]


CODES = st.sampled_from(["", "1", "2"])


@given(
    st.lists(st.tuples(st.integers(0, 9), CODES, CODES, st.sampled_from(["", "graph"]))),
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["legacy", "graph"]), CODES)),
    st.randoms(use_true_random=False),
)
def test_what_counts_is_of_one_code_in_any_order(
    pairs: list[tuple[int, str, str, str]], rows: list[tuple[int, str, str]], random: Random
) -> None:
    """Whatever ran when, all that counts of a stack has one fingerprint, or an unknown one."""
    made = [pair(began, one, two, replays=replays) for began, one, two, replays in pairs]
    outcomes = [served(*row) for row in rows]
    code = code_in_force(outcomes, made)
    random.shuffle(made)
    assert code == code_in_force(outcomes[::-1], made)
    seen = {(run.stack, run.code) for one in made if code.counts_pair(one) for run in one.runs}
    seen |= {(row.assigned, row.fingerprint) for row in outcomes if code.counts(row)}
    assert all(fingerprint in {"", code.codes.get(stack)} for stack, fingerprint in seen)
