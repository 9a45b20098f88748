"""The diagrams of the graphs in the documents are those of the code."""

import tomllib
from pathlib import Path
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


DRAWN = tomllib.loads(Path(__file__).with_name("diagrams.toml").read_text("utf-8"))


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
