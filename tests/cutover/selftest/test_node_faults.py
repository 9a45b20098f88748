"""A fault in any node of a graph is found once, on its layer."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from compare.findings import Layer
from contract.flow import Flow
from cutover.selftest.deployment import compared
from cutover.selftest.scenes import SCENES
from graph_impl import ops, pipeline
from rules.ops.instructions import ROLLBACK, STAGES
from tests.cutover.selftest.test_selftest import LEGACY

Node = Callable[[Any, Any], Awaitable[Any]]
Spoil = Callable[[Node], Node]
NO_NODES = {"__start__", "__default_error_handler__"}


def _answers(change: Callable[[Any], Any]) -> Spoil:
    """Spoil what a node answers with: its update of the state, or where the graph goes on."""

    def spoil(node: Node) -> Node:
        @wraps(node)  # the engine reads the types of state and `Command` off the signature
        async def spoilt(state: Any, runtime: Any) -> Any:
            return change(await node(state, runtime))

        return spoilt

    return spoil


def _reads(change: Callable[[Any], Any]) -> Spoil:
    """Spoil the state that a node reads."""

    def spoil(node: Node) -> Node:
        @wraps(node)
        async def spoilt(state: Any, runtime: Any) -> Any:
            return await node(change(state), runtime)

        return spoilt

    return spoil


def _with_info(found: Any, **values: Any) -> Any:
    monitored = found["monitored"]
    return {**found, "monitored": {**monitored, "info": {**monitored["info"], **values}}}


PIPELINE: Mapping[str, tuple[Layer, Spoil]] = {
    "input_processor": ("frames", _answers(lambda it: {**it, "end_intent": True})),
    "token_monitor": ("frames", _answers(lambda it: _with_info(it, used=1))),
    "memory_check": ("effects", _answers(lambda it: replace(it, goto="context_builder"))),
    "rag_retriever": (
        "effects",
        _answers(lambda it: {"memories": [{**one, "text": "?"} for one in it["memories"]]}),
    ),
    "context_builder": ("effects", _answers(lambda it: {"messages": it["messages"][:1]})),
    "response_generator": ("text", _answers(lambda it: {"response": it["response"][:-1]})),
    "token_response": ("text", _answers(lambda _: {"notice": "（完）"})),
    "output_formatter": ("frames", _reads(lambda it: {**it, "memories": it["memories"][1:]})),
}
"""By node: the layer where its fault shows, and the fault."""


def _told(found: Any) -> Any:
    """Let the model know something else of what came of an instruction."""
    told = [
        {**one, "result": {**one["result"], "message": "?"}} for one in found.get("outcomes", ())
    ]
    return {**found, "outcomes": told}


def _decided_otherwise(found: Any) -> Any:
    """Remember another answer of the model's than it gave."""
    return {**found, "decision": {**found["decision"], "answer": "?"}} if found else found


def _sent_by(found: Any, by: str) -> Any:
    """Let another person have approved."""
    sent = found.goto
    return replace(found, goto=type(sent)(sent.node, {**sent.arg, "by": by}))


OPS: Mapping[str, tuple[int, Layer, Spoil]] = {
    "preprocess": (0, "effects", _answers(lambda it: {**it, "messages": it["messages"][:1]})),
    "reason": (0, "effects", _answers(_decided_otherwise)),
    "safety": (0, "frames", _reads(lambda it: {**it, "iteration": 7})),
    "approve": (0, "effects", _answers(lambda it: _sent_by(it, "eve"))),
    "execute": (1, "effects", _answers(_told)),
    "check": (0, "effects", _reads(lambda it: {**it, "iteration": it["iteration"] + 1})),
    "error": (4, "outcome", _reads(lambda it: {**it, "code": "lost"})),
    **{f"deploy.{stage}": (6, "effects", _answers(_told)) for stage in (*STAGES, ROLLBACK)},
}
"""By node: the scene, the layer where its fault shows, and the fault."""


@pytest.mark.parametrize("node", PIPELINE)
def test_a_fault_in_a_node_of_the_pipeline_is_one_cause(
    node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Served, shadowed, captured and compared as in production."""
    layer, spoil = PIPELINE[node]
    monkeypatch.setattr(pipeline, f"_{node}", spoil(getattr(pipeline, f"_{node}")))
    assert _layers("pipeline", 0, pipeline.pipeline(), tmp_path) == [layer]


@pytest.mark.parametrize("node", OPS)
def test_a_fault_in_a_node_of_ops_is_one_cause(
    node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a deployment, too."""
    scene, layer, spoil = OPS[node]
    deploys, _, stage = node.rpartition(".")
    name = "_stage" if deploys else f"_{node}"
    sound = getattr(ops, name)

    def spoilt_stage(one: str) -> Node:
        return spoil(sound(one)) if one == stage else sound(one)

    monkeypatch.setattr(ops, name, spoilt_stage if deploys else spoil(sound))
    assert _layers("ops", scene, ops.ops(), tmp_path) == [layer]


def _layers(flow: str, scene: int, spoilt: Flow, place: Path) -> list[Layer]:
    """Return the layers of the causes of one scene."""
    tally = compared(SCENES[flow][scene : scene + 1], LEGACY.flows[flow], spoilt, place)
    return [cause.layer for cause in tally.clusters.by_key.values()]


def test_every_node_has_a_fault() -> None:
    """A node that is added needs one, too."""
    assert PIPELINE.keys() == pipeline.build().nodes.keys() - NO_NODES
    stages = {f"deploy.{stage}" for stage in (*STAGES, ROLLBACK)}
    assert OPS.keys() == (ops.build().nodes.keys() - NO_NODES - {"deploy"}) | stages
