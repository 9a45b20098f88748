"""What docs/observability.md lists is what there is."""

import re
from collections.abc import Iterator
from pathlib import Path

from router.metrics.instruments import INSTRUMENTS

PAGE = (Path(__file__).parent.parent.parent / "docs" / "observability.md").read_text("utf-8")
OTHER_THAN_SUMS = r"except\s(.*?)A worker that has ended"


def rows(head: str) -> Iterator[list[str]]:
    """Give the cells of a table, row by row; `head` is its first column's title."""
    table = PAGE.split(f"| {head} |")[1].split("\n\n")[0]
    for line in table.splitlines()[2:]:
        yield [cell.strip().strip("`") for cell in line.strip("|").split("|")]


def test_every_metric_is_listed_as_it_is() -> None:
    """Name, kind, labels and meaning."""
    assert list(rows("metric")) == [
        [one.name, one.kind, ", ".join(one.labels), one.tells] for one in INSTRUMENTS
    ]


def test_what_is_not_summed_over_workers_is_listed() -> None:
    """The page says of each gauge that it is the highest or the lowest."""
    found = re.search(OTHER_THAN_SUMS, PAGE, re.DOTALL)
    assert found is not None
    highest, lowest = found[1].split("(the highest)")
    for how, told in (("livemax", highest), ("livemin", lowest)):
        named = set(re.findall(r"`(cutover_\w+)`", told))
        assert named == {one.name for one in INSTRUMENTS if one.across == how}


def test_names_follow_the_conventions() -> None:
    """Counters end in `_total`, other units are base units, nothing is said twice."""
    for one in INSTRUMENTS:
        assert (one.kind == "counter") == one.name.endswith("_total")
        assert bool(one.buckets) == (one.kind == "histogram")
        assert re.fullmatch(r"cutover_[a-z_]+", one.name)
        assert one.kind != "histogram" or one.name.endswith("_seconds")
    assert len({one.name for one in INSTRUMENTS}) == len(INSTRUMENTS)
