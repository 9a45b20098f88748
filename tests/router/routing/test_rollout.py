"""Splitting: equal on every host, monotone, uniform, independent of mirroring."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.config.schema import FlowSettings
from router.routing.assignment import BUCKETS, assign, bucket, captured, shadowed

VECTORS = json.loads((Path(__file__).parent / "vectors" / "rollout.json").read_text("utf-8"))
KEYS = [f"message-{number}" for number in range(20_000)]

keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=64)
percents = st.integers(0, BUCKETS).map(lambda thousandths: Decimal(thousandths) / 1_000)


def flow(graph: Decimal = Decimal(0), shadow: Decimal = Decimal(0)) -> FlowSettings:
    """Return the settings of a flow that is switched on."""
    return FlowSettings(enable_langgraph=True, langgraph_percent=graph, shadow_percent=shadow)


@pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
def test_vectors(vector: dict[str, str | int]) -> None:
    """Buckets never change, or everybody would be reshuffled by an upgrade."""
    assert bucket(str(vector["salt"]), str(vector["key"])) == vector["bucket"]


@given(keys, keys, percents, percents)
def test_raising_the_percentage_moves_nobody_out(
    salt: str, key: str, one: Decimal, other: Decimal
) -> None:
    """A key on graph at a lower percentage is on graph at a higher one."""
    low, high = sorted((one, other))
    if assign(flow(low), salt, key, None).stack == "graph":
        assert assign(flow(high), salt, key, None).stack == "graph"


@given(keys, keys)
def test_the_ends_are_exact(salt: str, key: str) -> None:
    """No key at 0 %, every key at 100 %."""
    assert assign(flow(Decimal(0)), salt, key, None).stack == "legacy"
    assert assign(flow(Decimal(100)), salt, key, None).stack == "graph"
    assert 0 <= bucket(salt, key) < BUCKETS


def test_buckets_are_uniform() -> None:
    """Chi-squared over 100 bins; 99 degrees of freedom, 148.2 is the 0.1 % point."""
    counts = [0] * 100
    for key in KEYS:
        counts[bucket("salt", key) // 1_000] += 1
    due = len(KEYS) / 100
    assert sum((count - due) ** 2 / due for count in counts) < 148.2


def test_splitting_and_mirroring_are_independent() -> None:
    """Of those on graph as many are mirrored as of all (and of captures likewise)."""
    half = flow(Decimal(50), Decimal(50))
    graph = [key for key in KEYS if assign(half, "salt", key, None).stack == "graph"]
    mirrored = sum(shadowed(half, "salt", key) for key in graph)
    kept = sum(captured(Decimal(50), "salt", key) for key in graph)
    assert abs(len(graph) - 10_000) < 300
    assert abs(mirrored - len(graph) / 2) < 200
    assert abs(kept - len(graph) / 2) < 200


def test_another_salt_is_another_split() -> None:
    """Changing the salt reshuffles everyone."""
    tenth = flow(Decimal(10))
    one, other = (
        {key for key in KEYS if assign(tenth, salt, key, None).stack == "graph"}
        for salt in ("2026-11", "2026-12")
    )
    assert abs(len(one & other) - 200) < 80


def test_the_switch_goes_before_everything() -> None:
    """Off means off: for the percentage, for the pinned, for QA and for the shadow."""
    off = FlowSettings(
        langgraph_percent=Decimal(100),
        shadow_percent=Decimal(100),
        force_graph=frozenset({"k"}),
    )
    found = assign(off, "salt", "k", "graph")
    assert (found.stack, found.why) == ("legacy", "disabled")
    assert found.bucket == bucket("salt", "k")
    assert not shadowed(off, "salt", "k")


def test_what_decided_is_told() -> None:
    """A header goes before the lists, the lists before the percentage."""
    pinned = FlowSettings(
        enable_langgraph=True,
        langgraph_percent=Decimal(100),
        force_graph=frozenset({"g"}),
        force_legacy=frozenset({"l"}),
    )
    decided = [
        (found.stack, found.why)
        for found in (
            assign(pinned, "s", "g", "legacy"),
            assign(pinned, "s", "l", "graph"),
            assign(pinned, "s", "g", None),
            assign(pinned, "s", "l", None),
            assign(pinned, "s", "x", None),
        )
    ]
    assert decided == [
        ("legacy", "forced_header"),
        ("graph", "forced_header"),
        ("graph", "force_list"),
        ("legacy", "force_list"),
        ("graph", "percent"),
    ]


def test_a_thousandth_of_a_percent_is_one_bucket() -> None:
    """The comparison is exact where floats would not be."""
    key = KEYS[7]
    place = bucket("s", key)
    assert assign(flow(Decimal(place) / 1_000), "s", key, None).stack == "legacy"
    assert assign(flow(Decimal(place + 1) / 1_000), "s", key, None).stack == "graph"
