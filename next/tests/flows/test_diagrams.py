"""The diagrams of the graphs in the documents are those of the code."""

from typing import Any

import pytest
from langgraph.graph import END, START

from graph_impl import GRAPHS
from harness.reference import ARCHITECTURE, with_diagrams


def test_the_page_shows_the_graphs_as_they_are() -> None:
    """`python -m harness.reference` writes them anew."""
    page = ARCHITECTURE.read_text("utf-8")
    assert page == with_diagrams(page)


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


def test_no_node_is_drawn_apart() -> None:
    """Each has an arrow to it, and one from it."""
    for graph in GRAPHS.values():
        drawn = graph.get_graph()
        assert {one.target for one in drawn.edges} | {START} == set(drawn.nodes)
        assert {one.source for one in drawn.edges} | {END} == set(drawn.nodes)
