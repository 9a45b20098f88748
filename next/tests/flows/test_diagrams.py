"""The diagrams of the graphs in the documents are those of the code."""

from harness.diagrams import PAGE, diagrams


def test_the_page_shows_the_graphs_as_they_are() -> None:
    """`python -m harness.diagrams` writes them anew."""
    assert PAGE.read_text("utf-8").endswith(diagrams())


def test_each_conditional_edge_shows_its_targets() -> None:
    """A target that is not declared would vanish from the drawing."""
    drawn = diagrams()
    assert "model_call -.-> tool_execution;" in drawn
    assert "memory_check -.-> rag_retriever;" in drawn
    assert "check -.-> reason;" in drawn
