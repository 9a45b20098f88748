"""The reports: equal content, harmless whatever was captured."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from compare.findings import Finding
from compare.input.selection import moment
from compare.report import Report, markdown, page, report_of
from compare.report.document import TITLES, encode_report, report_schema
from contract.errors import visible
from contract.records import RunRecord
from cutover.selftest.exchanges import Script, exchange
from cutover.selftest.run_faults import FAULTS, SOUND, drop
from evidence.pages.formats import duration, percent
from tests.compare.pairs import tallied

HOSTILE = "</style><script>alert(1)</script><img src=x onerror=alert(1)> `|` @all \u202etxet\x00"
VOID = frozenset({"meta", "link", "br", "img", "hr", "input"})


def report(*exchanges: tuple[RunRecord, ...]) -> Report:
    """Compare exchanges and write them up."""
    return report_of(tallied(*exchanges), HOSTILE, "ignore")


def everything() -> Report:
    """Write up one exchange of every fault, and a sound one."""
    faulty = [exchange(SOUND, f.script, number=k) for k, f in enumerate(FAULTS)]
    return report(*faulty, exchange(number=900), exchange(number=901)[:1])


class Tags(HTMLParser):
    """Collects the tags of a page and checks that they nest."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.addresses: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag and any address it would load."""
        self.seen.add(tag)
        self.addresses += [v or "" for k, v in attrs if k in {"src", "href", "xlink:href"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that closes itself."""
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        """Check that it closes the one opened last."""
        assert self.open.pop() == tag


def parsed(html: str) -> Tags:
    """Parse a page."""
    tags = Tags()
    tags.feed(html)
    tags.close()
    assert tags.open == []
    return tags


def regression(number: int = 0) -> tuple[RunRecord, ...]:
    """Play what legacy recorded on legacy as it is now, which asks for one tool less."""
    recorded, played = exchange(SOUND, SOUND.but(tools=SOUND.tools[:1]), number=number)
    return recorded, msgspec.structs.replace(played, stack="legacy", role="replay")


def test_one_stack_beside_what_it_did_before_is_called_so() -> None:
    """Nothing of graph is said where there is none."""
    written = report(regression())
    assert written.sides == ("legacy recorded", "legacy now")
    assert written.clusters[0].title == "Tool not called by legacy now"
    for text in (page(written), markdown(written)):
        assert "legacy recorded → legacy now" in text
        seen = re.sub(r"<style>.*?</style>|<[^>]*>", "", text, flags=re.DOTALL)
        assert "graph" not in seen
    mixed = report(exchange(SOUND, SOUND.but(tools=SOUND.tools[:1])), regression(1))
    assert mixed.sides == ("legacy", "graph")
    assert mixed.clusters[0].title == "Tool not called by graph"
    assert "<bdi>legacy now</bdi>" in page(mixed)


def test_a_cause_is_shown_with_its_flow() -> None:
    """What differs alike in two flows are two causes, and not the same line twice."""
    written = report(exchange(graph=Script(system="冷")))
    other = [msgspec.structs.replace(one, flow="companion") for one in written.clusters]
    both = msgspec.structs.replace(written, clusters=(*written.clusters, *other))
    summaries = re.findall(r'<span class="what">(.*?)</span>\s', page(both))
    assert len(summaries) == 2
    assert "chat" in summaries[0]
    assert "companion" in summaries[1]


def test_streams_are_laid_out_only_where_they_part() -> None:
    """Of a prompt that changed nothing on the wire, equal streams need one line."""
    said = "Both streams are equal"
    assert said in page(report(exchange(graph=Script(system="冷"))))
    assert said not in page(report(exchange(SOUND, SOUND.but(spoil=drop(7)))))


def test_what_follows_does_not_push_the_streams_away() -> None:
    """Two findings are open, the others behind one line."""
    [dropped] = (fault for fault in FAULTS if fault.name == "tool dropped")
    assert "1 more finding follows from this cause" in page(report(exchange(SOUND, dropped.script)))
    assert "from this cause</summary>" not in page(report(exchange(graph=Script(system="冷"))))


def test_who_keeps_to_the_grammar_lacks_nothing() -> None:
    """The other side of a breach."""
    [broken] = (fault for fault in FAULTS if fault.name == "END twice")
    written = page(report(exchange(SOUND, broken.script)))
    assert "keeps to it" in written


def test_every_kind_of_finding_has_a_title() -> None:
    """The union is closed, and so is the table."""
    kinds = {str(kind.__struct_config__.tag) for kind in get_args(Finding)}
    assert kinds == set(TITLES)


def test_the_page_shows_every_cause_and_loads_nothing() -> None:
    """No script, no address but the page's own anchors."""
    written = everything()
    html = page(written)
    tags = parsed(html)
    assert tags.seen.isdisjoint({"script", "img", "iframe", "link", "object"})
    assert all(address.startswith("#") for address in tags.addresses)
    assert all(cluster.id in html for cluster in written.clusters)
    assert "First divergence" in html
    assert not re.search(r"url\(|@import|https?://", html)


def test_hostile_text_stays_text() -> None:
    """Prompts, answers, arguments and places can hold anything."""
    hostile = Script(system=HOSTILE, pieces=(HOSTILE, "b"))
    written = report(exchange(Script(pieces=("a", "b")), hostile))
    html, text = page(written), markdown(written)
    assert parsed(html).seen.isdisjoint({"script", "img"})
    assert "\u202e" not in html
    assert "\u202e" not in text
    assert "<script" not in re.sub(r"`[^`]*`", "", text)


def test_the_name_of_a_stack_is_no_markup() -> None:
    """Its name comes from the captures."""
    serving, shadow = exchange()
    named = f"graph\n\n# {HOSTILE}"
    text = markdown(report((msgspec.structs.replace(serving, stack=named), shadow)))
    [row] = [line for line in text.splitlines() if "first event" in line]
    assert row.startswith(r"| chat | graph # \</style\>\<script\>alert")


@pytest.mark.parametrize("label", ["equal", "no data"])
def test_a_page_without_causes_is_whole(label: str) -> None:
    """Zero clusters, with pairs and without."""
    written = report(exchange()) if label == "equal" else report()
    assert written.verdict.label == label
    parsed(page(written))
    assert label in markdown(written)


def test_markdown_fits_a_comment() -> None:
    """However much differs."""
    text = markdown(everything())
    assert len(text) < 10_000
    assert "more causes" in text


def test_the_document_is_read_back_as_written() -> None:
    """report.json is typed, findings included."""
    written = everything()
    again = msgspec.json.decode(encode_report(written), type=Report)
    assert again == written


def test_the_published_schema_is_the_code() -> None:
    """`docs/report.schema.json` is generated."""
    docs = Path(__file__).resolve().parents[3] / "docs"
    assert (docs / "report.schema.json").read_bytes() == report_schema()


def test_a_moment_beyond_the_calendar_is_said_as_a_number() -> None:
    """A recorder's clock can be astray; the report is written all the same."""
    assert moment(0) == "1970-01-01 00:00:00 UTC"
    assert moment(9 * 10**18) == "9000000000000000000 µs"


def test_numbers_are_said_as_people_say_them() -> None:
    """Three digits, a unit, no false zero."""
    said = [duration(us) for us in (7, 1_234, 999_499, 999_500, 2_345_678, 1_200_000_000)]
    assert said == ["7 µs", "1.23 ms", "999 ms", "1 s", "2.35 s", "1,200 s"]
    assert [percent(x) for x in (0, 0.0004, 0.123, 1)] == ["0.0 %", "< 0.1 %", "12.3 %", "100 %"]
    assert visible("a\x00\n") == "a⟨U+0000⟩\n"


def test_latencies_of_shadows_stand_apart_from_served_ones() -> None:
    """Below one heading that states why they are not comparable."""
    html = page(report(exchange(), exchange(served="graph", number=1)))
    served, others = html.split("<h3>Shadows and replays</h3>")
    assert "Histogram of legacy serving" in served
    assert "Histogram of graph serving" in served
    assert " shadow" not in served[served.index('id="latency"') :]
    assert "Histogram of legacy shadow" in others
    assert "serving ·" not in others
    assert others.count("Not comparable with runs that served") == 1
