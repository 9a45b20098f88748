"""Two reports: what is new, gone, grown or shrunk, and what of it could be chance."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path

import msgspec
import pytest

from compare.clusters import Cluster
from compare.report import Report, report_of
from compare.report.changes import (
    Against,
    ReportUnreadable,
    against,
    changes_document,
    changes_markdown,
    read_report,
)
from compare.report.document import encode_report
from compare.rules import NO_RULES, rules_of
from compare.tally import Tally
from compare.waivers import Waiver, Waivers
from cutover.selftest.exchanges import Script, exchange
from tests.compare.pairs import tallied

NEVER = date(2026, 11, 22)


def report(pairs: int, waived: tuple[str, ...] = (), **causes: int) -> Report:
    """Write up so many pairs, with causes by name and the exchanges each is in."""
    return report_with(pairs, causes, waived)


def report_with(pairs: int, causes: Mapping[str, int], waived: tuple[str, ...] = ()) -> Report:
    """As above, the causes as a mapping."""
    tally = Tally(exchanges=pairs, pairs=pairs, different=max(causes.values(), default=0))
    for name, exchanges in causes.items():
        found = Cluster(name, "chat", "text", f"final.{name}", "text_changed", exchanges, exchanges)
        tally.clusters.by_key["chat", name] = found
    waivers = Waivers(NEVER, dict.fromkeys(waived, Waiver("Ann", "agreed", NEVER)))
    return report_of(tally, "captures", "ignore", NO_RULES, waivers)


def turns(found: Against) -> dict[str, tuple[str, bool]]:
    """What became of each cause, and whether it could be chance."""
    return {change.id: (change.turn, change.chance) for change in found.changes}


def test_causes_are_new_gone_grown_shrunk_or_the_same() -> None:
    """By share of pairs, not by count: the newer report has twice the pairs."""
    older = report(1_000, gone=50, grown=10, shrunk=100, same=30)
    newer = report(2_000, new=40, grown=120, shrunk=20, same=60)
    found = against(older, newer)
    assert turns(found) == {
        "new": ("new", False),
        "grown": ("grown", False),
        "shrunk": ("shrunk", False),
        "gone": ("gone", False),
        "same": ("same", True),
    }
    assert [change.turn for change in found.changes] == ["new", "grown", "shrunk", "gone", "same"]
    assert found.trend == "worse"
    assert found.reasons[0] == "2 causes are new or grown and not waived"


def test_what_chance_explains_is_no_growth() -> None:
    """One more among a hundred says nothing; a new cause is new all the same."""
    found = against(report(100, a=3), report(100, a=4, b=1))
    assert turns(found) == {"a": ("same", True), "b": ("new", True)}
    assert found.trend == "worse"


def test_what_is_waived_makes_nothing_worse() -> None:
    """Shown, not counted."""
    found = against(report(1_000, a=1), report(1_000, ("a", "b"), a=400, b=5))
    assert {change.turn for change in found.changes} == {"new", "grown"}
    assert found.trend == "no worse"


def test_many_causes_do_not_make_one_of_them_grow_by_chance() -> None:
    """Fisher alone would call a two-in-a-hundred change growth among a hundred causes."""
    noise = {f"c{k}": 10 for k in range(100)}
    found = against(report_with(1_000, noise), report_with(1_000, noise | {"c0": 24}))
    assert found.changes[0].p < 0.05
    assert found.trend == "no worse"


def test_nothing_compared_is_no_data() -> None:
    """No pass without pairs."""
    found = against(report(10, a=1), report(0))
    assert (found.trend, found.reasons) == ("no data", ("the newer report compared no pair",))


def test_reports_made_otherwise_are_told_apart() -> None:
    """Another chunking, other rules, causes not kept."""
    older, newer = report(10), report(10)
    ruled = report_of(Tally(pairs=10), "c", "exact", rules_of('[[ignore]]\npath = "a"', "f"))
    newer = msgspec.structs.replace(ruled, findings_left_out=3)
    said = " ".join(against(older, newer).reasons)
    assert all(word in said for word in ("chunking", "rules", "not every cause"))


def test_a_report_is_read_from_its_file_or_folder(tmp_path: Path) -> None:
    """A real one, findings and all."""
    tally = tallied(exchange(Script(), Script(system="冷")))
    written = report_of(tally, "captures", "ignore")
    (tmp_path / "report.json").write_bytes(encode_report(written))
    assert read_report(tmp_path) == read_report(tmp_path / "report.json") == written


def test_a_report_of_the_first_version_can_still_be_read(tmp_path: Path) -> None:
    """Reports are kept; what came later has defaults."""
    table = msgspec.json.decode(encode_report(report(10, a=1)))
    later = {"rules", "waivers"}
    first = {key: value for key, value in table.items() if key not in later} | {"v": 1}
    for cluster in first["clusters"]:
        del cluster["waiver"], cluster["waived"]
    del first["counts"]["equal_by_rules"], first["verdict"]["text"]
    (tmp_path / "old.json").write_bytes(msgspec.json.encode(first))
    assert against(read_report(tmp_path / "old.json"), report(10, a=1)).trend == "no worse"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        (b"{}", "no report.json"),
        (b"\xff", "no report.json"),
        (encode_report(msgspec.structs.replace(report(1), v=99)), "version 99"),
        # A cause in more exchanges than were compared was written by hand.
        (encode_report(report(1, text=2)), "exchanges"),
        (encode_report(report(1, text=-1)), "exchanges"),
        (encode_report(report(-1, text=0)), "exchanges"),
    ],
)
def test_a_file_that_is_no_report_is_refused(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    """By name, with the reason; what is not understood is not guessed."""
    if content is not None:
        (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(ReportUnreadable, match=why):
        read_report(tmp_path / "x.json")


def test_changes_are_written_short_and_whole() -> None:
    """Markdown is bounded, JSON has everything."""
    found = against(report(1_000), report_with(1_000, {f"c{k}": k + 1 for k in range(500)}))
    text = changes_markdown(found)
    assert len(text) < 10_000
    assert "and 480 more" in text
    assert "could be chance" in text
    assert msgspec.json.decode(changes_document(found), type=Against) == found
    assert "|" not in changes_markdown(against(report(1), report(1)))
