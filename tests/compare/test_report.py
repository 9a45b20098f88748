"""The report: what is counted over rows, what to do next, and its files."""

import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.differences import Difference, Pair
from compare.report.document import (
    Report,
    Share,
    compared_with,
    files,
    make_report,
    read_report,
    summary,
)
from compare.report.page import render, visible
from compare.report.streams import Cell, SideBySide, exemplar, words
from compare.rollout import Scope, decide
from compare.rows import ExchangeRow, PairRow, frame
from compare.verdict import Read
from compare.waivers import Waiver
from cutover.errors import Unusable
from cutover.records import EntryRecord, FrameRecord, PlayRecord, TapeRecord
from cutover.wire import find_dialect
from router.services import ServiceFlow
from tests.router.captures.records import line

TODAY = date(2026, 11, 28)
TEXT = Difference("text", "text", legacy='"84"', graph='"94"', at=5)
CALL = Difference("call_missing", "tool.search", legacy="{}", at=1)
FOLLOWS = Difference("event_changed", "RESULT", "found", because="missing_call", at=7)
SLIGHT = Difference("annotation", "usage")
HOSTILE = "</code><script>alert(1)</script>|`<b>`\n\x1b[31m\u202e"


def pair(at: int, *differences: Difference, **more: Any) -> PairRow:
    """Return the row of a pair, compared unless it says why not."""
    known: dict[str, Any] = {
        "exchange": f"e{at}",
        "flow": "chat",
        "at": at,
        "state": "different" if any(one != SLIGHT for one in differences) else "equal",
        "pieces": (4, 2),
    }
    return PairRow(**known | more, differences=differences)


def report(pairs: Sequence[PairRow], exchanges: Sequence[ExchangeRow] = (), **more: Any) -> Report:
    """Return the report on rows that were read without damage."""
    known: dict[str, Any] = {
        "read": Read(files=1, lines=2 * len(pairs), damage={}),
        "made_at": 1_790_000_000_000_000,
        "today": TODAY,
        "waivers": {},
        "exemplars": {},
    }
    return make_report(pairs, exchanges, **known | more)


def equal(count: int, **more: Any) -> list[PairRow]:
    """Return rows of equal pairs."""
    return [pair(1000 + at, **more) for at in range(count)]


MIXED = [
    *(pair(at, TEXT) for at in range(6)),
    *(pair(10 + at, CALL, FOLLOWS, SLIGHT) for at in range(3)),
    pair(20, SLIGHT),
    pair(21, CALL, TEXT, baseline=True),
    pair(22, state="not_compared", why_not="client_left"),
    *equal(30),
]


def test_causes_stand_by_weight_with_what_came_of_them() -> None:
    """In how many of the compared pairs of their flow; slight ones are last, and no difference."""
    found = report(MIXED)
    assert [(one.title, one.pairs.count, one.pairs.of) for one in found.causes] == [
        ("text", 6, 40),
        ("call missing: tool.search", 3, 40),
        ("annotation: usage", 4, 40),
    ]
    assert found.causes[0].values == (('"84"', '"94"'),)
    assert [one.consequences for one in found.causes] == [{}, {"event_changed": 3}, {}]
    assert found.verdict.label == "different"
    assert found.verdict.reasons[0] == "9 of 40 pairs compared differ"
    (flow,) = found.flows
    assert (flow.differing.count, flow.differing.of, flow.pieces) == (9, 40, (4, 2))
    assert flow.baseline == Share(1, 1)
    assert [(one.why, one.exchanges) for one in found.not_compared] == [("client_left", 1)]


def test_equal_is_said_with_what_it_leaves_open() -> None:
    """What folding, rules or a missing tape hid, and which failures are no pair's."""
    row = exchange(1, assigned="graph", failed_behind="graph")
    found = report([*equal(4, folded=2), *equal(3, left_out=("by a rule: all",))], [row])
    assert found.verdict.reasons == (
        "none of 7 pairs compared differs",
        "4 pairs hold ids, or moments in prompts, that are taken for equal",
        "3 pairs were compared only in part (by a rule: all)",
        "1 exchanges were taken over: `cutover gate` counts these failures",
    )


@pytest.mark.parametrize(
    ("until", "at_most", "label", "standing", "reason"),
    [
        (TODAY, 15.0, "equal", "in_force", "6 of them differ in what is waived alone"),
        (TODAY, 14.0, "different", "grown", "holds up to 14 %, and 6 of 40 pairs have it"),
        (date(2026, 11, 27), 15.0, "different", "expired", "(ana) ended on 2026-11-27"),
    ],
)
def test_waivers(until: date, at_most: float, label: str, standing: str, reason: str) -> None:
    """A waiver covers its cause up to its share, until its day; what it no longer covers counts."""
    waiver = Waiver(owner="ana", reason="known", until=until, at_most_percent=at_most)
    waivers = {TEXT.cause("chat"): waiver, "00000000": waiver}
    found = report([*(pair(at, TEXT) for at in range(6)), *equal(34)], waivers=waivers)
    assert (found.verdict.label, found.causes[0].standing) == (label, standing)
    assert any(reason in one for one in found.verdict.reasons)
    assert found.unused_waivers == ("00000000",)


def test_a_pair_is_waived_with_all_its_causes() -> None:
    """One that is open keeps it different."""
    waiver = Waiver(owner="ana", reason="known", until=TODAY)
    pairs = [pair(1, TEXT, CALL), pair(2, TEXT), *equal(20)]
    found = report(pairs, waivers={TEXT.cause("chat"): waiver})
    assert (found.verdict.label, found.verdict.status) == ("different", 1)
    assert "1 of them differ in what is waived alone" in found.verdict.reasons
    assert [one.title for one in found.causes] == ["call missing: tool.search", "text"]


def test_a_pair_in_which_each_difference_is_explained_is_not_passed_over() -> None:
    """All of them are causes then."""
    found = report([pair(1, FOLLOWS), *equal(400)])
    assert (found.verdict.label, found.step) == ("different", "cause")
    assert [one.title for one in found.causes] == ["event changed: RESULT at found"]


STEPS = {
    "no_data": report([pair(1, state="not_compared", why_not="not_played")]),
    "damage": report(equal(400), read=Read(files=9, lines=800, damage={"torn": 1})),
    "set_up": report([pair(1, CALL, silent=True), pair(2, TEXT, silent=True), *equal(20)]),
    "cause": report(MIXED),
    "fork": report([pair(1, TEXT, fork="graph from model call 2 on")]),
    "too_few": report([*equal(298), *equal(400, flow="ops")]),
    "raise": report(equal(299)),
}
SENTENCES = {
    "no_data": "Mirror requests (`shadow_percent`), or play these captures",
    "damage": "Find out what damages or loses lines",
    "set_up": "Complete the set-up of chat: in 1 pair no call of one service is on the tape",
    "cause": f"Open cause {TEXT.cause('chat')} (text, in 6 of 40 pairs of chat) and mend graph",
    "fork": "Read what the fork did otherwise",
    "too_few": "Compare more: 298 pairs of chat without a difference that counts: up to 1 %",
    "raise": "Raise the share: `cutover gate` says whether",
}


@pytest.mark.parametrize("step", STEPS)
def test_what_to_do_next_is_one_of_seven_sentences(step: str) -> None:
    """The first that fits."""
    assert STEPS[step].step == step
    assert STEPS[step].next.startswith(SENTENCES[step])
    assert ("--at-most 15`" in STEPS[step].next) == (step == "cause")


def test_a_cause_of_the_set_up_is_never_waived() -> None:
    """Where its pairs are all of services one of which was silent; in others it is a cause."""
    waivers = {CALL.cause("chat"): Waiver(owner="ana", reason="known", until=TODAY)}
    silent = [pair(at, CALL, silent=True) for at in range(3)]
    found = report([*silent, *equal(20)], waivers=waivers)
    assert (found.causes[0].set_up, found.causes[0].accepted, found.step) == (True, False, "set_up")
    found = report([*silent, pair(9, CALL), *equal(20)], waivers=waivers)
    assert (found.causes[0].set_up, found.causes[0].accepted) == (False, True)


def exchange(at: int, **more: Any) -> ExchangeRow:
    """Return the row of an exchange that legacy served."""
    known: dict[str, Any] = {
        "exchange": f"e{at}",
        "flow": "chat",
        "at": at,
        "assigned": "legacy",
        "served": "legacy",
        "why": "percent",
        "end": "completed",
        "first_text_ms": float(at + 1),
    }
    return ExchangeRow(**known | more)


def test_outcomes_and_latencies_by_assigned_stack() -> None:
    """A takeover is a failure of the assigned stack; percentiles are values that were measured."""
    rows = [exchange(at) for at in range(100)]
    behind = {"served": "legacy", "failed_behind": "graph", "code": "grammar"}
    rows += [exchange(at, assigned="graph", **behind) for at in range(2)]
    rows += [exchange(9, assigned="graph", served="graph", end="failed", code="truncated")]
    graph, legacy = report(equal(20), rows).served
    assert (legacy.exchanges, legacy.ends, legacy.taken_over) == (100, {"completed": 100}, 0)
    assert (legacy.first_text.p50, legacy.first_text.p95, legacy.end.of) == (50.0, 95.0, 0)
    assert (graph.taken_over, graph.failures) == (2, {"grammar": 2, "truncated": 1})
    assert graph.ends == {"completed": 2, "failed": 1}


def test_no_statistic_of_fewer_than_twenty() -> None:
    """Counts are said, shares and percentiles are not."""
    for count, known in ((19, False), (20, True)):
        found = report([pair(0, TEXT), *equal(count - 1)], [exchange(at) for at in range(count)])
        assert (found.flows[0].differing.share is not None) is known
        assert (found.causes[0].pairs.low is not None) is known
        assert (found.served[0].first_text.p95 is not None) is known
        assert (report(equal(count)).flows[0].may_differ is not None) is known
        assert (report(equal(count)).flows[0].pieces is not None) is known
        assert (" %" in summary(found)) is False
        assert ("5 %" in files(found)["report.html"].decode()) is known


def test_a_page_begins_with_few_reasons_and_what_to_do() -> None:
    """Of many waivers that ended, of many flows, of many causes that hold; the rest is folded."""
    new = [Difference("event_added", f"event {number}") for number in range(40)]
    waiver = Waiver(owner="ana", reason="known", until=date.min)
    ended = report([*map(pair, range(40), new)], waivers={one.cause("chat"): waiver for one in new})
    flows = report([row for at in range(40) for row in equal(20, flow=f"flow {at}")])
    held = decide(frame([]), Scope("chat", share=0.5, config="", now=0))
    held = msgspec.structs.replace(held, reasons=("cause",) * 99)
    pages = [files(one)["report.html"].decode() for one in (ended, flows)]
    for page in (*pages, render("gate.html.j2", decision=held)):
        begin, following, _ = page.partition('class="next"')
        assert following
        assert 0 < re.sub(r"(?s)<details>.*?</details>", "", begin).count("<li>") <= 6


def test_two_reports() -> None:
    """Causes are new, gone, more, less or the same, each with its test."""
    older = report([*(pair(at, TEXT) for at in range(40)), pair(50, CALL), *equal(59)])
    moved = Difference("writes_moved", "orders.create")
    newer = report([*(pair(at, TEXT) for at in range(2)), pair(60, moved), *equal(97)])
    found = compared_with(newer, older)
    states = {one.title: (one.state, one.before.count, one.now.count) for one in found.changes}
    assert states == {
        "text": ("less", 40, 2),
        "call missing: tool.search": ("gone", 1, 0),
        "writes moved: orders.create": ("new", 0, 1),
    }
    assert found.changes[0].p < 1e-9 < found.changes[1].p
    assert [one.state for one in compared_with(older, older).changes] == ["same", "same"]
    assert compared_with(older, newer).changes[0].state == "more"
    assert compared_with(report([]), report([])).changes == ()


def test_the_files_hold_the_same(tmp_path: Path) -> None:
    """JSON is read back as it was written, and its schema knows each of its fields."""
    found = compared_with(report(MIXED, [exchange(1)]), report(equal(20)))
    for name, content in files(found).items():
        (tmp_path / name).write_bytes(content)
    assert read_report(tmp_path) == read_report(tmp_path / "report.json") == found
    schema = msgspec.json.decode((tmp_path / "report.schema.json").read_bytes())
    assert schema["$defs"]["Report"]["properties"].keys() == {*Report.__struct_fields__}
    suite = ET.parse(tmp_path / "junit.xml").getroot()  # noqa: S314 - our own
    assert suite.attrib | {"name": ""} == {"name": "", "tests": "4", "failures": "3"}
    assert len(suite.findall("testcase/failure")) == 3
    assert len(suite.findall("testcase/skipped")) == 1
    assert f"| text `{TEXT.cause('chat')}` |" in (tmp_path / "report.md").read_text()
    assert "`.\n\n| cause |" in (tmp_path / "report.md").read_text()
    assert summary(found).splitlines()[0] == "different"
    assert len(summary(found).splitlines()) <= 14


@pytest.mark.parametrize("content", [b"{}", b"nothing", b'{"v": 2}'])
def test_what_is_no_report_is_refused(tmp_path: Path, content: bytes) -> None:
    """With its path."""
    (tmp_path / "old.json").write_bytes(content)
    with pytest.raises(Unusable, match=r"old\.json: "):
        read_report(tmp_path / "old.json")
    with pytest.raises(Unusable, match="No such file"):
        read_report(tmp_path)


def test_hostile_text_stays_text() -> None:
    """In names, values, flows and reasons, in every file."""
    bad = Difference("event_added", HOSTILE, HOSTILE, graph=HOSTILE, legacy=HOSTILE)
    waiver = Waiver(owner=HOSTILE, reason=HOSTILE, until=date(2026, 1, 1))
    waivers = {bad.cause(HOSTILE): waiver}
    rows = [pair(at, bad, flow=HOSTILE, left_out=(HOSTILE,)) for at in range(25)]
    found = compared_with(report(rows, waivers=waivers), report(equal(20)))
    made = files(found)
    page, markdown = made["report.html"].decode(), made["report.md"].decode()
    assert page.count("<script") == 0
    assert page.count("<b>") == 0
    assert "&lt;script&gt;" in page
    rows_of_tables = [one for one in markdown.splitlines() if one.startswith("| event")]
    assert rows_of_tables
    assert all(one.replace("\\|", "").count("|") in {6, 5, 4} for one in rows_of_tables)
    ET.fromstring(made["junit.xml"])  # noqa: S314 - our own
    said = summary(found) + "".join(one.title for one in found.causes)
    assert "\x1b" not in said
    assert "\u202e" not in said


@given(st.text(), st.text())
def test_words_add_up_to_both_texts(legacy: str, graph: str) -> None:
    """What is the same stands in both, in the same order."""
    ours, theirs = words(legacy, graph)  # shorter than what is left out of
    assert "".join(text for _, text in ours) == legacy
    assert "".join(text for _, text in theirs) == graph
    same = ["".join(text for kind, text in run if kind == "same") for run in (ours, theirs)]
    assert same[0] == same[1]


def test_words_that_differ_are_marked() -> None:
    """Chinese by the character; of a long stretch that is the same its ends are left."""
    assert words("现在是22:10", "现在是23:10")[0] == [
        ("same", "现在是"),
        ("own", "22"),
        ("same", ":10"),
    ]
    ours, _ = words("word " * 200 + "a" + " word" * 200, "word " * 200 + "b" + " word" * 200)
    assert [kind for kind, text in ours if text] == ["left_out", "same", "own", "same", "left_out"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b", "a b"),
        (" a  b ", "·a··b·"),
        ("a\nb\tc\r", "a⏎\nb⇥\tc␍"),
        ("a\u200bb\xa0\x1b", "a⟨U+200B⟩b⟨U+00A0⟩⟨U+001B⟩"),
        ("你好，世界 é", "你好，世界 é"),
    ],
)
def test_what_cannot_be_seen_is_made_visible(text: str, shown: str) -> None:
    """White space where one does not expect it, and characters without a shape."""
    assert visible(text) == shown


BOT = ServiceFlow("bot", {"/bot": ("POST",)}, find_dialect("ndjson"))


def shown(legacy: dict[int, str], graph: dict[int, str]) -> Sequence[SideBySide]:
    """Return the rows of two runs, of texts by milliseconds; both ask for the same."""
    calls = (PlayRecord("tool", "tape", 0),)
    ours, theirs = (
        msgspec.structs.replace(
            line(flow="bot", stack=stack, role=role, plays=calls),
            frames=tuple(
                FrameRecord.of(at * 1000, b'{"message":{"content":"%b"}}\n' % text.encode())
                for at, text in texts.items()
            ),
        )
        for stack, role, texts in (("legacy", "serving", legacy), ("graph", "shadow", graph))
    )
    tape = TapeRecord((EntryRecord("tool", "00", '{"of":"tea"}', 0),))
    return exemplar(Pair(ours, theirs, tape), pair(1, TEXT), BOT).rows


def test_runs_stand_side_by_side() -> None:
    """Texts as one block each, word by word where they differ; what is far off is left out."""
    call, text = shown({0: "a ", 9: "green tea"}, {0: "a black tea"})
    assert (call.differs, call.legacy and call.legacy.name) == (False, "→ tool")
    assert text.legacy == Cell(0.0, "content", (("same", "a "), ("own", "green"), ("same", " tea")))
    assert text.graph == Cell(0.0, "content", (("same", "a "), ("own", "black"), ("same", " tea")))
    assert [one.graph for one in shown({0: "a"}, {})] == [call.graph, None]


def test_what_comes_much_later_stands_side_by_side() -> None:
    """Though it is the same."""
    assert [one.differs for one in shown({0: "tea"}, {900: "tea"})] == [False, False]
    assert [one.differs for one in shown({0: "tea"}, {1100: "tea"})] == [False, True]
