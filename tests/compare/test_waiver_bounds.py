"""Waivers lapse where their cause grows or changes, and are carried over to today's ids."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compare.findings import (
    Finding,
    FrameChanged,
    OutcomeChanged,
    ParameterChanged,
    PromptChanged,
    ToolArguments,
    signature_of,
)
from compare.report import markdown, page, report_of
from compare.report.changes import read_report
from compare.report.document import Report, encode_report
from compare.report.migration import bounded, earlier_id, migrated
from compare.tally import Tally
from compare.verdict import verdict_on
from compare.waivers import Waiver, Waivers, accepted_share, merged, read_waivers
from contract.records import ErrorRecord
from cutover.selftest.exchanges import Script, exchange, tool
from cutover.selftest.run_faults import SOUND
from tests.compare.pairs import tallied
from tests.support.commands import run_command

TODAY = date(2026, 11, 22)
DUE = date(2026, 12, 1)
WAIVER = Waiver("Ann", "agreed", DUE)
SPACED = Script(system=Script().system.replace("。\n", "。 \n"))
LATER = Script(system=Script().system.replace("10:00:00", "18:00:00"))


def tally_of(*graphs: Script) -> Tally:
    """Compare legacy as it is with some scripts."""
    return tallied(*(exchange(Script(), graph, number=k) for k, graph in enumerate(graphs)))


def report_on(tally: Tally, waivers: Waivers | None = None) -> Report:
    """Write a tally up."""
    return report_of(tally, "captures", "ignore", waivers=waivers or Waivers(TODAY))


def accepting(tally: Tally) -> Waivers:
    """Waive every cause, as `cutover waive` does with the report."""
    report = report_on(tally)
    made = {one.id: bounded(WAIVER, one.id, report) for one in report.clusters}
    return Waivers(TODAY, made)


def label(tally: Tally, waivers: Waivers) -> str:
    """Return the label of the verdict."""
    return verdict_on(tally, waivers).label


def test_a_waiver_of_white_space_covers_no_other_change_of_the_prompt() -> None:
    """A wrong time zone, a lost line, a prompt sent twice are causes of their own."""
    waivers = accepting(tally_of(SPACED, Script()))
    assert label(tally_of(SPACED, Script()), waivers) == "waived"
    system = Script().system
    others = LATER, Script(system=system.split("\n")[1]), Script(system=system * 2)
    for other in others:
        assert label(tally_of(other, Script()), waivers) == "different"


def test_a_waiver_of_the_text_hides_no_censored_words() -> None:
    """Another wording is not another comma."""
    wide = SOUND.but(pieces=tuple(piece + " " for piece in SOUND.pieces))
    waivers = accepting(tallied(exchange(SOUND, wide)))
    censored = SOUND.but(pieces=("****，", *SOUND.pieces[1:]))
    assert label(tallied(exchange(SOUND, wide)), waivers) == "waived"
    assert label(tallied(exchange(SOUND, censored)), waivers) == "different"


def test_a_waiver_of_one_role_hides_no_other() -> None:
    """What differs beside it is a cause of its own."""
    waivers = accepting(tally_of(SPACED))
    tally = tally_of(Script(system=SPACED.system, user="?"))
    assert verdict_on(tally, waivers).label == "different"
    assert [
        (it.path.rpartition(".")[2], it.waived) for it in report_on(tally, waivers).clusters
    ] == [
        ("user", False),
        ("system", True),
    ]


def test_a_waiver_lapses_as_its_share_grows() -> None:
    """Beyond the interval of what was seen when it was made."""
    few = tally_of(SPACED, *[Script()] * 99)
    waivers = accepting(few)
    [waiver] = waivers.by_id.values()
    assert waiver.at_most == accepted_share(1, 100) == 0.0545
    assert label(few, waivers) == "waived"
    assert label(tally_of(*[SPACED] * 5, *[Script()] * 95), waivers) == "waived"
    many = tally_of(*[SPACED] * 6, *[Script()] * 94)
    assert label(many, waivers) == "different"
    report = report_on(many, waivers)
    [held] = report.waivers
    assert (held.standing, held.lapsed) == (
        "lapsed",
        "in 6.00% of the exchanges of chat, at most 5.45%",
    )
    assert not any(cluster.waived for cluster in report.clusters)
    for shown in (markdown(report), page(report)):
        assert "lapsed" in shown


def test_the_share_is_that_of_the_flow() -> None:
    """Exchanges of other flows dilute nothing."""
    tally = tally_of(SPACED, Script())
    waivers = accepting(tally)
    tally.pairs += 1_000_000
    [waiver] = waivers.by_id.values()
    assert waiver.at_most == accepted_share(1, 2)
    assert label(tally, waivers) == "waived"


def test_a_waiver_of_an_earlier_version_has_no_bounds() -> None:
    """It covers whatever has its id."""
    [cluster] = report_on(tally_of(SPACED)).clusters
    waivers = Waivers(TODAY, {cluster.id: WAIVER})
    assert label(tally_of(*[SPACED] * 6), waivers) == "waived"


def test_classes_of_a_cause_are_the_same_however_parts_are_merged() -> None:
    """They are counted, and bounded."""
    one, other = tally_of(SPACED), tally_of(SPACED)
    whole = tally_of(SPACED, SPACED)
    one.merge(other)
    [a], [b] = one.clusters.ordered(), whole.clusters.ordered()
    assert a.classes == b.classes
    assert one.by_flow == whole.by_flow == {"chat": 2}


def test_two_waivers_of_one_cause_become_one() -> None:
    """All that was accepted, up to the earlier day."""
    one = msgspec.structs.replace(WAIVER, at_most=0.1, classes=("a",), flow="chat")
    other = Waiver("Bo", "b", date(2027, 1, 1), "chat", 0.2, ("b",))
    assert merged(one, other) == Waiver("Ann", "agreed", DUE, "chat", 0.2, ("a", "b"))


def older(findings: Sequence[Finding], version: int = 2) -> Report:
    """Return a report as version 2 wrote it, with these causes in one exchange."""
    [cluster, *_] = report_on(tally_of(SPACED)).clusters
    [exemplar] = cluster.exemplars
    shown = msgspec.structs.replace(exemplar, findings=tuple(findings))
    clusters = tuple(
        msgspec.structs.replace(
            cluster, id=earlier_id(finding), path=finding.path, exemplars=(shown,), classes={}
        )
        for finding in findings
    )
    report = report_on(tally_of(SPACED))
    counts = msgspec.structs.replace(report.counts, by_flow={})
    return msgspec.structs.replace(report, v=version, clusters=clusters, counts=counts)


PLACE: dict[str, Any] = {"exchange": "x", "at_legacy": 1, "at_graph": 1}
EARLIER: tuple[tuple[Finding, tuple[Script, Script]], ...] = (
    (
        PromptChanged(
            path="model.stream@reply[0].messages[0].system+user",
            exchange="x",
            legacy="a b",
            graph="a  b",
        ),
        (Script(system="a b", user="?"), Script(system="a  b", user="! ?")),
    ),
    (
        ToolArguments(
            path="tools.run@tool[0].get_weather.city",
            exchange="x",
            legacy='{"city":"x"}',
            graph='{"city":"y"}',
            tool="get_weather",
        ),
        (
            Script(tools=(tool(0, '{"city":"x"}'),)),
            Script(tools=(tool(0, '{"city":"y"}'),)),
        ),
    ),
    (
        OutcomeChanged(
            path="completed→failed", exchange="x", legacy="completed", graph="failed (crash, E)"
        ),
        (Script(), Script(outcome="failed", error=ErrorRecord("crash"))),
    ),
)


@pytest.mark.parametrize(("finding", "scripts"), EARLIER, ids=lambda it: type(it).__name__)
def test_a_waiver_of_an_earlier_report_is_carried_over(
    finding: Finding, scripts: tuple[Script, Script]
) -> None:
    """To the id the same difference has today."""
    old = earlier_id(finding)
    found = migrated({old: WAIVER}, older([finding]))
    now = report_on(tallied(exchange(*scripts))).clusters
    assert set(found.carried[old]) <= {cluster.id for cluster in now}
    assert not found.lapsed


ASKED = "model.stream@reply[0]"
BY_PLACE: tuple[tuple[Finding, list[str]], ...] = (
    (
        PromptChanged(path=f"{ASKED}.messages[2].tool", exchange="x", legacy="7", detail="tool"),
        ["messages[2]"],
    ),
    (
        PromptChanged(path=f"{ASKED}.messages[0].system", exchange="x", legacy="a b", graph="a"),
        ["messages[0].system"],
    ),
    (
        ParameterChanged(
            path=f"{ASKED}.more",
            exchange="x",
            legacy='{"seed":1,"tools":[{"name":"f","description":"a"}]}',
            graph='{"seed":2,"tools":[{"name":"f","description":"b"}]}',
        ),
        ["more.seed", "more.tools[0].description"],
    ),
)


@pytest.mark.parametrize(("finding", "fields"), BY_PLACE, ids=["missing", "left out", "settings"])
def test_a_waiver_of_a_whole_place_is_carried_over_to_its_fields(
    finding: Finding, fields: list[str]
) -> None:
    """Reports of version 3 show what they are."""
    report = older([finding], version=3)
    [cluster] = report.clusters
    old = signature_of(finding)
    report = msgspec.structs.replace(report, clusters=(msgspec.structs.replace(cluster, id=old),))
    found = migrated({old: WAIVER}, report)
    assert len(found.carried[old]) == len(fields)
    changed = [msgspec.structs.replace(finding, path=f"{ASKED}.{field}") for field in fields]
    if isinstance(finding, PromptChanged):
        kinds = "missing" if finding.graph is None else "left out"
        changed = [msgspec.structs.replace(one, change=kinds) for one in changed]
    assert found.carried[old] == tuple(map(signature_of, changed))
    assert old not in found.waivers


def test_fields_of_one_frame_are_carried_over_to_one_id() -> None:
    """What were several causes is one; a waiver that nothing shows lapses."""
    fields = [
        FrameChanged(path=f"frames[1].done.usage.{name}", legacy="1", graph="2", **PLACE)
        for name in ("prompt_tokens", "total_tokens")
    ]
    held = {earlier_id(one): WAIVER for one in fields} | {"0" * 12: WAIVER}
    found = migrated(held, older(fields))
    assert len(found.carried) == 2
    assert len(set(found.carried.values())) == len(found.waivers) == 1
    assert found.lapsed == {"0" * 12: "the report has no cause of that id"}


def test_the_command_carries_a_file_over(tmp_path: Path) -> None:
    """Comments stay; what lapses is named and left; the report is read in every version."""
    finding, scripts = EARLIER[0]
    old = earlier_id(finding)
    (tmp_path / "report.json").write_bytes(encode_report(older([finding])))
    file = tmp_path / "waivers.toml"
    file.write_text(
        f'# ours\n[waiver.{old}]  # spaces\nowner = "Ann"\nreason = "agreed"\nuntil = {DUE}\n'
        f'\n[waiver.{"0" * 12}]\nowner = "Bo"\nreason = "x"\nuntil = {DUE}\n'
    )
    status, said = run_command("waive", "--migrate", tmp_path, "--file", file)
    assert status == 0, said
    clusters = report_on(tallied(exchange(*scripts))).clusters
    [now] = [one.id for one in clusters if one.path.endswith("system")]
    assert f"{old} is carried over to {now}" in said
    assert f"{'0' * 12} lapses" in said
    assert "# ours" in file.read_text()
    assert "# spaces" in file.read_text()
    held = read_waivers(file)
    assert sorted(held) == sorted([now, "0" * 12])
    assert held[now].classes
    assert read_report(tmp_path).v == 2


def test_a_waiver_is_bounded_by_the_report(tmp_path: Path) -> None:
    """`--report` stores what was seen."""
    report = report_on(tally_of(SPACED, Script()))
    (tmp_path / "report.json").write_bytes(encode_report(report))
    [cluster] = report.clusters
    file = tmp_path / "waivers.toml"
    words = ("--owner", "Ann", "--reason", "agreed", "--until", "9999-12-31")
    status, said = run_command("waive", cluster.id, *words, "--file", file, "--report", tmp_path)
    assert status == 0, said
    [waiver] = read_waivers(file).values()
    assert waiver.at_most == accepted_share(1, 2)
    assert waiver.classes == tuple(sorted(cluster.classes))


def test_migrate_takes_no_waiver(tmp_path: Path) -> None:
    """It is refused with what is due."""
    status, said = run_command("waive", "0" * 12, "--migrate", tmp_path)
    assert (status, "no other option" in said) == (2, True)
