"""A worker's shadow of an exchange says what that of the router's own process says."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from compare.comparison import FlowComparers
from contract.flows import SPECS
from contract.records import RunRecord
from cutover.selftest.cases import case
from cutover.shadow_worker.candidates import Candidates, CannotRun, ShadowPair
from graph_impl import FLOWS as GRAPH
from legacy import FLOWS as LEGACY
from router.serving.stack import LocalStack
from router.shadow.workers import decode_handed, encode_handed
from router.stack import StackName
from tests.support.router_world import House, Rules

pytestmark = [pytest.mark.virtual, pytest.mark.untraced]

STACKS: dict[StackName, LocalStack] = {
    "legacy": LocalStack("legacy", LEGACY, "l1"),
    "graph": LocalStack("graph", GRAPH, "g1"),
}
SEEDS = 60


def candidates(stacks: dict[StackName, LocalStack] | None = None) -> Candidates:
    """Return the candidates of a worker."""
    judge = FlowComparers(SPECS).judge
    return Candidates(
        cast("Any", STACKS if stacks is None else stacks),
        SPECS,
        judge,
        cast("Any", None),
        lambda *_: None,
        60.0,
        4 << 20,
    )


async def shadowed(runs: list[RunRecord]) -> ShadowPair:
    """Let a worker run the shadow of an exchange as it comes over the stream."""
    served = [run for run in runs if run.role != "shadow"]
    return await candidates().pair(decode_handed(encode_handed("r", served)).runs)


def as_it_comes(body: Any) -> Any:
    """Return a body as a client's JSON gives it: where a float may stand, a whole number is one."""
    return msgspec.json.decode(msgspec.json.encode(body), type=type(body))


def timeless(run: RunRecord) -> dict[str, Any]:
    """Return a record without its times."""
    plain = msgspec.structs.replace(
        run,
        run_us=0,
        nodes=dict.fromkeys(run.nodes, 0),
        frames=tuple((0, text) for _, text in run.frames),
        plays=tuple(msgspec.structs.replace(play, at=0) for play in run.plays),
    )
    return msgspec.structs.asdict(plain)


@pytest.mark.parametrize("assigned", STACKS)
async def test_it_is_the_same_record_but_for_its_times(assigned: StackName) -> None:
    """Whatever was asked, answered or failed; and the router's judgement of it."""
    compared = 0
    for seed in range(SEEDS):
        made = House(case(seed), Rules(assigned=assigned, shadow=100))
        async with made:
            await made.ask(as_it_comes(made.case.body))
        [state] = made.states
        if not state.startswith("compared"):
            continue
        compared += 1
        pair = await shadowed(made.runs)
        (here,) = [run for run in made.runs if run.role == "shadow"]
        assert timeless(pair.shadow) == timeless(here), seed
        assert f"compared({pair.judgement})" == state
        assert [run.shadow for run in pair.runs if run.role == "serving"] == ["due"]
    assert compared > SEEDS / 2


async def test_a_flow_that_is_not_here_cannot_be_run() -> None:
    """The worker's configuration is another one than its router's."""
    made = House(case(0), Rules(shadow=100))
    async with made:
        await made.ask()
    stacks: dict[StackName, LocalStack] = {"graph": LocalStack("graph", {}, "g1")}
    with pytest.raises(CannotRun, match="'graph' has no flow 'chat' in this process"):
        await candidates(stacks).pair((made.runs[0],))
