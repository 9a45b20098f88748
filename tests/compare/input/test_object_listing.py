"""Listing captures on an object store: what is not selected is not listed, nor requested."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
import zstandard

from compare.captures import Question, compare_captures
from compare.input.damage import CapturesUnreadable
from compare.input.outcomes import read_outcomes
from compare.input.segments import Days, find_segments
from compare.input.selection import EVERYTHING, Selection
from contract.flows import SPECS
from contract.records import encode_run
from effects.places import Place
from tests.support.object_server import ObjectServer
from tests.support.records import a_run

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

FIRST = date(2026, 11, 1)
DAYS, FLOWS = 10, ("chat", "companion", "session")
PER_DAY = 4


def began(day: int) -> int:
    """Return noon of a day, in microseconds since the epoch."""
    noon = datetime(FIRST.year, FIRST.month, FIRST.day, 12, tzinfo=UTC) + timedelta(days=day)
    return int(noon.timestamp()) * 1_000_000


def fill(place: str, days: int = DAYS, per_day: int = 1) -> None:
    """Store objects for each flow and day, and feedback for each day."""
    at = Place(place)
    pack = zstandard.ZstdCompressor().compress
    for day in range(days):
        folder = f"date={FIRST + timedelta(days=day)}"
        for flow in FLOWS:
            for number in range(per_day):
                run = a_run(f"{flow}-{day}-{number}", flow=flow, began=began(day))
                path = f"{at.root}/flow={flow}/{folder}/{number}.jsonl.zst"
                at.put(path, pack(encode_run(run)))
        score = b'{"v":1,"exchange":"chat-%d-0","score":1,"at":%d}\n' % (day, began(day))
        at.put(f"{at.root}/feedback/{folder}/0.jsonl.zst", pack(score))
    at.put(f"{at.root}/blobs/none.zst", b"")


SELECTED = {
    Days(): DAYS * 3,
    Days("chat"): DAYS,
    Days("chat", "2026-11-09"): 2,
    Days("chat", "2026-11-02", "2026-11-03"): 2,
    Days("", "", "2026-11-02"): 6,
    Days("chat", "2026-12-01"): 0,
    Days("nowhere"): 0,
}


def test_segments_of_flows_and_days_are_found(object_place: str) -> None:
    """All that may hold what is selected, and no others."""
    fill(object_place)
    everything = {one.url for one in find_segments(object_place)}
    for days, found in SELECTED.items():
        segments = find_segments(object_place, days=days)
        assert len(segments) == found, days
        assert segments == sorted(segments, key=lambda one: one.url)
        assert {one.url for one in segments} <= everything


def test_feedback_of_later_days_is_found(object_place: str) -> None:
    """It may come days after its exchange."""
    fill(object_place)
    days = Days("chat", "2026-11-08")
    assert len(find_segments(object_place, feedback=True, days=Days(first=days.first))) == 3


def test_one_object_is_a_place(object_place: str) -> None:
    """As a file is."""
    fill(object_place, days=1)
    url = f"{object_place}/flow=chat/date=2026-11-01/0.jsonl.zst"
    assert [one.url.rpartition("/")[2] for one in find_segments(url)] == ["0.jsonl.zst"]
    with pytest.raises(CapturesUnreadable, match="there is nothing there"):
        find_segments(f"{object_place}/flow=absent")


def test_a_selection_is_compared_as_everything_is(object_place: str) -> None:
    """Folders are only left out where nothing in them is selected."""
    fill(object_place)
    selection = Selection(since=began(7), until=began(9), flow="chat")
    tally = compare_captures(object_place, Question(SPECS, selection=selection))
    assert tally.exchanges == 2
    assert len([*read_outcomes(object_place, SPECS, selection)]) == 2
    assert compare_captures(object_place, Question(SPECS)).exchanges == 3 * DAYS


def requests_for(s3: ObjectServer, selection: Selection) -> dict[str, int]:
    """Count the requests of a comparison."""
    s3.requests.clear()
    compare_captures(s3.bucket, Question(SPECS, selection=selection))
    return s3.counts()


def test_requests_grow_with_what_is_selected(
    s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages hold ten keys here, and a thousand elsewhere."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
    fill(s3.bucket, per_day=PER_DAY)
    everything = requests_for(s3, EVERYTHING)
    chosen = requests_for(s3, Selection(since=began(9), flow="chat"))
    assert everything == {"LIST": 15, "GET": DAYS * (3 * PER_DAY + 1)}
    assert chosen == {"LIST": 6, "GET": PER_DAY + 1}
