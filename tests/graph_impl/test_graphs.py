"""The graphs as they are drawn: their edges, and where they may wait for a human."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langgraph.pregel import Pregel

from graph_impl import chat, companion, describe, ops, pipeline, session
from graph_impl.engine import HUMAN, Graph, ask_human
from legacy import describe as describe_legacy

GRAPHS: dict[str, Graph] = {
    "chat": chat.build(),
    "companion messages": companion.build_messages(),
    "companion pictures": companion.build_pictures(),
    "ops": ops.build(),
    "ops deployment": ops.build_deployment(),
    "pipeline": pipeline.build(),
    "session": session.build(),
}
EDGES = {
    "chat": """
        __start__ --> initialize
        initialize --> prompt_generation
        prompt_generation -.-> model_call output_processing
        model_call -.-> output_processing tool_execution
        tool_execution -.-> model_call output_processing
        output_processing --> cleanup
        cleanup --> __end__""",
    "companion messages": """
        __start__ --> emotion memory
        emotion --> reasoning
        memory --> reasoning
        reasoning -.-> __end__ human memory_extraction tools
        tools -.-> human reasoning
        human --> reasoning
        memory_extraction --> __end__""",
    "companion pictures": """
        __start__ --> vision
        vision -.-> __end__ memory_extraction
        memory_extraction -.-> __end__ human
        human --> __end__""",
    "ops": """
        __start__ --> preprocess
        preprocess --> reason
        reason --> safety
        safety -.-> approve execute
        approve -.-> execute deploy error
        execute --> check
        deploy --> check
        check -.-> reason error __end__
        error --> __end__""",
    "ops deployment": """
        __start__ --> plan
        plan -.-> build __end__
        build -.-> release __end__
        release -.-> verify __end__
        verify -.-> rollback __end__
        rollback --> __end__""",
    "pipeline": """
        __start__ --> input_processor
        input_processor --> token_monitor
        token_monitor --> memory_check
        memory_check -.-> context_builder rag_retriever
        rag_retriever --> context_builder
        context_builder --> response_generator
        response_generator --> token_response
        token_response --> output_formatter
        output_formatter --> __end__""",
    "session": """
        __start__ --> recall_memory
        recall_memory --> process
        process -.-> extract_memory tools
        tools --> process
        extract_memory --> __end__""",
}


def edges(mermaid: str) -> set[str]:
    """Return the edges of a Mermaid diagram."""
    return {line.strip().rstrip(";") for line in mermaid.splitlines() if "->" in line}


@pytest.mark.parametrize("title", GRAPHS)
def test_a_graph_is_drawn_with_the_targets_of_every_branch(title: str) -> None:
    """As the documents draw it; a failure ends a chat in its own nodes."""
    expected = set()
    for line in EDGES[title].split("\n")[1:]:
        source, arrow, *targets = line.split()
        expected |= {f"{source} {arrow} {target}" for target in targets}
    assert edges(describe(title.partition(" ")[0])[title]) == expected


@pytest.mark.parametrize("title", GRAPHS)
def test_both_stacks_name_the_same_steps(title: str) -> None:
    """What may follow them differs where one does in turn what the other does side by side."""
    flow = title.partition(" ")[0]
    graph, legacy = (edges(it(flow)[title]) for it in (describe, describe_legacy))
    assert {edge.split()[0] for edge in graph} == {edge.split()[0] for edge in legacy}


@pytest.mark.parametrize("describes", [describe, describe_legacy])
def test_an_unknown_flow_has_no_diagram(describes: Callable[[str], object]) -> None:
    """It is no error of the stack's."""
    assert describes("nope") == {}


def nodes() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """Yield every node of every graph: graph, name, function."""
    for title, graph in GRAPHS.items():
        for name, spec in graph.builder.nodes.items():
            timed: Any = spec.runnable
            if not name.startswith("__") and not isinstance(timed, Pregel):
                yield title, name, inspect.getclosurevars(timed.afunc).nonlocals["node"]


def tree(function: Callable[..., Any]) -> ast.AST:
    """Parse a function."""
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def asks(function: Callable[..., Any]) -> list[int]:
    """Return the lines in which a function asks, itself or through one that never waits."""
    there = inspect.getclosurevars(function).globals
    found = []
    for call in (it for it in ast.walk(tree(function)) if isinstance(it, ast.Call)):
        called = there.get(call.func.id) if isinstance(call.func, ast.Name) else None
        if called is ask_human:
            found.append(call.lineno)
        elif inspect.isfunction(called) and asks(called):
            assert awaits(called) == []
            found.append(call.lineno)
    return found


def awaits(function: Callable[..., Any]) -> list[int]:
    """Return the lines in which a function waits: for an effect, or for its reader."""
    waiting = (ast.Await, ast.AsyncFor, ast.AsyncWith)
    return [it.lineno for it in ast.walk(tree(function)) if isinstance(it, waiting)]


def test_no_effect_and_no_event_comes_before_a_question() -> None:
    """In no node of any graph: the engine executes a node that asks again from its first line."""
    asking = [(title, name, node) for title, name, node in nodes() if asks(node)]
    assert {(title, name) for title, name, _ in asking} == {
        ("companion messages", HUMAN),
        ("companion pictures", HUMAN),
        ("ops", ops.OpsContext.human_node),
    }
    for _, _, node in asking:
        assert max(asks(node)) < min(awaits(node))
