"""The diagrams of the graphs in the documents are those of the code."""

from typing import Any

import pytest
from langgraph.graph import END, START

from graph_impl import GRAPHS


@pytest.mark.parametrize("name", GRAPHS)
def test_each_branch_is_drawn_with_all_its_targets(name: str) -> None:
    """A target that is not declared would vanish from the drawing."""
    builder: Any = GRAPHS[name].builder
    drawn = {(one.source, one.target) for one in GRAPHS[name].get_graph().edges if one.conditional}
    branches = [
        (source, branch.ends) for source, of in builder.branches.items() for branch in of.values()
    ]
    assert all(ends for _, ends in branches)
    assert drawn == {(source, target) for source, ends in branches for target in ends.values()}


DRAWN = {
    "companion": {
        "__start__": "initialize",
        "initialize": "emotion memory vision",
        "emotion": "reasoning",
        "memory": "reasoning",
        "reasoning": "tools human __end__",
        "tools": "reasoning human __end__",
        "vision": "memory_extraction __end__",
        "memory_extraction": "human __end__",
        "human": "reasoning __end__",
    },
    "ops": {
        "__start__": "preprocess",
        "preprocess": "reason",
        "reason": "safety check",
        "safety": "approve execute",
        "approve": "execute error",
        "execute": "check",
        "check": "reason error __end__",
        "error": "__end__",
    },
}
"""Where each node leads in the flows' documents."""


@pytest.mark.parametrize("name", DRAWN)
def test_nodes_and_edges_are_those_of_the_documents(name: str) -> None:
    """Each conditional edge has the targets that the document draws."""
    edges = {(one.source, one.target) for one in GRAPHS[name].get_graph().edges}
    assert edges == {(one, to) for one, all_of in DRAWN[name].items() for to in all_of.split()}


def test_no_node_is_drawn_apart() -> None:
    """Each has an arrow to it, and one from it."""
    for graph in GRAPHS.values():
        drawn = graph.get_graph()
        assert {one.target for one in drawn.edges} | {START} == set(drawn.nodes)
        assert {one.source for one in drawn.edges} | {END} == set(drawn.nodes)
