"""Exemplars: two streams as people read them side by side."""

from __future__ import annotations

from compare.clusters import NOTHING_NEW, ROWS_AT_MOST, exemplar_of
from compare.streams.events import EventReader
from contract.flows.chat import CHAT, Send
from contract.records import RunRecord
from cutover.selftest.exchanges import Script, exchange
from cutover.selftest.run_faults import add, drop
from tests.compare.pairs import paired


def rows(runs: tuple[RunRecord, ...]) -> list[tuple[str, str | None, str | None]]:
    """List what both sides of every row say."""
    exemplar = exemplar_of(paired(*runs), (), EventReader(CHAT))
    return [
        (
            row.mark,
            row.legacy.said if row.legacy else None,
            row.graph.said if row.graph else None,
        )
        for row in exemplar.rows
    ]


def test_cumulative_text_is_shown_by_what_it_adds() -> None:
    """The same beginning is not repeated fifty times."""
    said = rows(exchange(Script(pieces=("你好", "世界"))))
    assert said[2:5] == [
        ("same", "你好", "你好"),
        ("same", "…世界", "…世界"),
        ("same", NOTHING_NEW, NOTHING_NEW),
    ]


def test_text_that_takes_back_is_shown_whole() -> None:
    """What does not grow is no growth."""
    said = rows(exchange(Script(), Script(spoil=add(99, Send("x")))))
    assert said[-1] == ("graph", None, "x")


def test_a_dropped_frame_leaves_a_void_beside_it() -> None:
    """And the rows around it stay side by side."""
    said = rows(exchange(Script(), Script(spoil=drop(4))))
    assert [mark for mark, _, _ in said].count("legacy") == 1
    assert said[-1][0] == "same"


def test_of_a_long_stream_the_rows_around_the_divergence_are_kept() -> None:
    """The page stays small, and shows what matters."""
    long = Script(pieces=tuple("字" * 400))
    pair = paired(*exchange(long, long.but(spoil=drop(300))))
    exemplar = exemplar_of(pair, (), EventReader(CHAT))
    assert len(exemplar.rows) == ROWS_AT_MOST
    assert exemplar.left_out == 404 - ROWS_AT_MOST
    assert any(row.mark == "legacy" for row in exemplar.rows)
