"""Assignment: published vectors, the kill switch, and shares that only ever grow."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from router.assign import BUCKETS, Shares, StackName, assign, bucket, drawn

VECTORS = json.loads((Path(__file__).parent / "assignment_vectors.json").read_text("utf-8"))


@pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
def test_buckets_are_as_published(vector: dict[str, str | int]) -> None:
    """Other implementations compute the same."""
    assert bucket(str(vector["salt"]), str(vector["key"])) == vector["bucket"]


@given(st.text(), st.floats(0, 100), st.floats(0, 100))
def test_raising_the_share_moves_no_key_out_of_graph(key: str, one: float, other: float) -> None:
    """A key that graph serves at a share is served by graph at every larger one."""
    small, large = (Shares(enabled=True, percent=p, salt="s") for p in sorted((one, other)))
    if assign(small, key).stack == "graph":
        assert assign(large, key).stack == "graph"


@given(st.text())
def test_off_is_off_for_every_key(key: str) -> None:
    """The switch goes before the share."""
    assert assign(Shares(enabled=False, percent=100.0), key).stack == "legacy"


@given(st.text())
def test_the_ends_of_the_scale_hold_for_every_key(key: str) -> None:
    """Nothing at 0 %, everything at 100 %; keys with lone surrogates too."""
    assert assign(Shares(enabled=True, percent=0.0), key).stack == "legacy"
    assert assign(Shares(enabled=True, percent=100.0), key).stack == "graph"
    assert 0 <= bucket("", key + "\ud800") < BUCKETS


def test_shares_are_met_and_drawn_apart() -> None:
    """100 000 keys meet 10 % within 0.3 %, and what is mirrored is another tenth."""
    keys = [f"user-{number}" for number in range(100_000)]
    shares = Shares(enabled=True, percent=10.0, salt="salt")
    graph = {key for key in keys if assign(shares, key).stack == "graph"}
    mirrored = {key for key in keys if drawn("shadow", "salt", key, 10.0)}
    assert 9_700 <= len(graph) <= 10_300
    assert 9_700 <= len(mirrored) <= 10_300
    assert 900 <= len(graph & mirrored) <= 1_100


@pytest.mark.parametrize(
    ("key", "asked", "pinned", "expected"),
    [
        ("plain", None, None, ("legacy", "percent")),
        ("plain", None, "graph", ("graph", "pinned")),
        ("plain", "legacy", "graph", ("legacy", "asked")),
        ("ada", "legacy", "legacy", ("graph", "forced")),
        ("bob", "graph", "graph", ("legacy", "forced")),
    ],
)
def test_what_goes_before_the_hash(
    key: str, asked: StackName | None, pinned: StackName | None, expected: tuple[str, str]
) -> None:
    """Forced keys, then who asks, then the pin; off goes before all of them."""
    shares = Shares(enabled=True, force_legacy=frozenset({"bob"}), force_graph=frozenset({"ada"}))
    found = assign(shares, key, asked=asked, pinned=pinned)
    assert (found.stack, found.why) == expected
    off = structs.replace(shares, enabled=False)
    assert assign(off, key, asked=asked, pinned=pinned).why == "off"
