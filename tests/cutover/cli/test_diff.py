"""`cutover diff`: captures, plain streams and reports; rules, waivers and exit statuses."""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from compare.input.selection import moment
from compare.rules import texts
from cutover.selftest.exchanges import BEGAN, Script, batch, exchange, store
from tests.support.commands import run_command, run_on_one_line
from tests.support.recorded_bodies import DIALECTS, PIECES, TOLD, Story

DATED = "[[replace]]\npattern = '\\d{4}-\\d\\d-\\d\\d'\nwith = '<date>'\n"
IDLE = "[[ignore]]\npath = 'nowhere'\n"
LATER = Script(system=Script().system.replace("21", "22"))
COLD = Script(system="冷")
LATER_THAN_ALL = "2100-01-01T00:00Z"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Rules and waivers are looked for in the current folder.
    monkeypatch.chdir(tmp_path)


def run(*arguments: str | Path) -> tuple[int, str]:
    """Run `cutover diff`; returns its exit status and its output."""
    return run_command("diff", *arguments)


def compare(folder: Path, *batches: bytes, options: tuple[str | Path, ...] = ()) -> tuple[int, str]:
    """Store batches and compare them into `folder/out`."""
    store(folder / "captures", *batches)
    return run(folder / "captures", "-o", folder / "out", *options)


def test_equal_captures_exit_0_and_leave_three_reports(tmp_path: Path) -> None:
    """Five hundred equal pairs are no finding."""
    status, said = compare(tmp_path, *(batch(exchange(number=n)) for n in range(500)))
    assert status == 0
    assert "all 500 pairs are equal" in said
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "report.html",
        "report.json",
        "report.md",
    }


def test_differing_captures_exit_1_and_name_the_cause(tmp_path: Path) -> None:
    """The summary is enough to know where to look."""
    status, said = compare(tmp_path, batch(exchange(graph=Script(temperature=0.1))))
    assert status == 1
    [advice, cause] = (line for line in said.splitlines() if "Model parameter differs" in line)
    assert advice.startswith("  next: open cause ")
    assert " chat " in cause  # the same may differ in another flow, under the same id


@pytest.mark.parametrize(
    ("graph", "status"),
    [
        pytest.param(Script(), 0, id="equal"),
        pytest.param(LATER, 1, id="different"),
        pytest.param(None, 2, id="refused"),
    ],
)
def test_a_reader_that_ends_first_changes_no_status(
    tmp_path: Path, graph: Script | None, status: int
) -> None:
    """`cutover diff … | head -1` reports as usual; a closed pipe was taken for a difference."""
    if graph is not None:
        store(tmp_path / "captures", batch(exchange(graph=graph)))
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cutover", "diff", "captures", "-o", "out"],
            stdout=writing,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            check=False,
        )
    finally:
        os.close(writing)
    assert done.returncode == status, done.stderr
    assert b"Traceback" not in done.stderr
    assert (tmp_path / "out" / "report.json").exists() == (graph is not None)


def test_only_the_wanted_formats_are_written(tmp_path: Path) -> None:
    """`--format` may be repeated."""
    compare(tmp_path, batch(exchange()), options=("--format", "md", "--format", "json"))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.json", "report.md"}


def test_a_report_that_is_being_read_stays_whole(tmp_path: Path) -> None:
    """Who opened the old one reads it to its end while a new one takes its place."""
    compare(tmp_path, batch(exchange()))
    report = tmp_path / "out" / "report.json"
    before = report.read_bytes()
    store(tmp_path / "captures", batch(exchange(graph=Script(temperature=0.1))))
    with report.open("rb") as held:
        run(tmp_path / "captures", "-o", tmp_path / "out")
        assert held.read() == before
    assert report.read_bytes() != before
    assert len(list((tmp_path / "out").iterdir())) == 3


def test_nothing_to_compare_exits_3(tmp_path: Path) -> None:
    """No data is not a pass."""
    (tmp_path / "captures").mkdir()
    status, said = run(tmp_path / "captures", "-o", tmp_path / "out")
    assert status == 3
    assert "no exchange was found" in said


@pytest.mark.parametrize("place", ["nowhere", "nosuchscheme://somewhere"])
def test_unreadable_captures_exit_2_with_a_reason(tmp_path: Path, place: str) -> None:
    """A misspelt place is told apart from an empty one."""
    wanted = place if "://" in place else str(tmp_path / place)
    status, said = run(wanted, "-o", tmp_path / "out")
    assert status == 2
    assert "cannot read captures" in said
    assert not (tmp_path / "out").exists()


def test_a_report_that_cannot_be_written_exits_2(tmp_path: Path) -> None:
    """The place for the report may be a file."""
    store(tmp_path / "captures", batch(exchange()))
    (tmp_path / "out").write_text("")
    assert run(tmp_path / "captures", "-o", tmp_path / "out")[0] == 2


def test_chunking_is_asked_for(tmp_path: Path) -> None:
    """Where text is cut counts on one tape, and with `exact`; with `ignore` it does not."""
    text = Script().text
    recut = Script(pieces=(text[:3], text[3:10], text[10:]))
    assert compare(tmp_path, batch(exchange(graph=recut)))[0] == 1
    for chunking, status in (("tape", 1), ("ignore", 0), ("exact", 1)):
        asked = "-o", tmp_path / "out", "--chunking", chunking
        assert run(tmp_path / "captures", *asked)[0] == status


def test_what_could_not_be_read_is_in_the_exit_status(tmp_path: Path) -> None:
    """An equal rest is no pass, a difference stays one, and nothing readable is a refusal."""
    whole, torn = batch(exchange()), batch(exchange(number=1))[:-20]
    cold = batch(exchange(graph=Script(system="冷"), number=2))
    for name, content, expected in (
        ("equal", (whole, torn), 4),
        ("different", (cold, torn), 1),
        ("nothing", (b"no captures at all",), 2),
    ):
        place = store(tmp_path / name, *content)
        status, said = run(place, "-o", tmp_path / f"{name}-report")
        assert status == expected, said
        assert "1 damaged file, batch or line passed over" in said


@pytest.mark.slow
def test_processes_are_asked_for(tmp_path: Path) -> None:
    """The report is the same, to the byte."""
    for number in range(3):
        store(tmp_path / "c", batch(exchange(number=number)), name=f"{number}.jsonl.zst")
    for processes in ("1", "2"):
        arguments = "-o", tmp_path / processes, "--processes", processes
        assert run(tmp_path / "c", *arguments)[0] == 0
    one, two = ((tmp_path / n / "report.json").read_bytes() for n in ("1", "2"))
    assert one == two


def test_a_prompt_that_differs_is_traced_to_its_template(tmp_path: Path) -> None:
    """By the map that checking prompts has written: file, line and variable, in every format."""
    old = tmp_path / "prompts"
    old.mkdir()
    (old / "talk.j2").write_text("{# tone #}\n{{ name }}会聊天的助手。", "utf-8")
    store(
        tmp_path / "captures",
        batch(exchange(Script(system="\n一个会聊天的助手。"), Script(system="\n会聊天的助手。"))),
    )
    command = ["prompts", "check", str(old), "--map", str(tmp_path / "map.json")]
    assert run_command(*command)[0] == 0
    out = tmp_path / "out"
    run(tmp_path / "captures", "-o", out, "--prompts", tmp_path / "map.json")
    said = "talk.j2:2: the variable 'name'"
    assert said in (out / "report.md").read_text("utf-8")
    assert said in html.unescape((out / "report.html").read_text("utf-8"))
    found = json.loads((out / "report.json").read_text("utf-8"))
    source = found["clusters"][0]["exemplars"][0]["findings"][0]["source"]
    assert (source["file"], source["line"], source["variable"]) == ("talk.j2", 2, "name")


def test_a_map_of_prompts_that_is_none_is_refused(tmp_path: Path) -> None:
    """Before anything is compared: status 2."""
    store(tmp_path / "captures", batch(exchange()))
    (tmp_path / "map.json").write_text("[]", "utf-8")
    arguments = (tmp_path / "captures", "-o", tmp_path / "out", "--prompts", tmp_path / "map.json")
    status, said = run(*arguments)
    assert (status, "no map of prompts" in " ".join(said.split())) == (2, True)


def report(folder: Path, *graphs: Script) -> Path:
    """Compare legacy as it is with some scripts; returns the folder of the report."""
    store(
        folder / "captures", batch(*(exchange(Script(), g, number=k) for k, g in enumerate(graphs)))
    )
    run(folder / "captures", "-o", folder / "out")
    return folder / "out"


def written(out: Path) -> dict[str, object]:
    """Read report.json."""
    read: dict[str, object] = json.loads((out / "report.json").read_text())
    return read


@pytest.mark.parametrize(
    ("name", "option"), [("diff.toml", ()), ("other.toml", ("--rules", "other.toml"))]
)
def test_rules_are_read_from_here_or_from_where_one_says(
    tmp_path: Path, name: str, option: tuple[str, ...]
) -> None:
    """And each is in the report with its hits, also when it hit nothing."""
    (tmp_path / name).write_text(DATED + IDLE)
    status, said = compare(tmp_path, batch(exchange(Script(), LATER)), options=option)
    assert status == 0
    assert "the one pair is equal, by the rules" in said
    rules = written(tmp_path / "out")["rules"]
    assert isinstance(rules, list)
    assert [(rule["key"], rule["hits"]) for rule in rules] == [("ignore[0]", 0), ("replace[0]", 1)]


def test_what_is_for_a_flow_nobody_knows_is_named(tmp_path: Path) -> None:
    """It can never hit; the label stays. Known are the flows, and dialects that come along."""
    rule = "[[ignore]]\npath = 'nowhere'\nflow = '{}'\n"
    (tmp_path / "diff.toml").write_text("".join(map(rule.format, ("chat", "openai", "chta"))))
    (tmp_path / "waivers.toml").write_text(
        "[waiver.0123456789ab]\nowner = 'Ann'\nreason = 'x'\nuntil = 9999-12-31\nflow = 'team9'\n"
    )
    status, said = compare(tmp_path, batch(exchange()))
    assert (status, "equal" in said) == (0, True)
    verdict = written(tmp_path / "out")["verdict"]
    assert isinstance(verdict, dict)
    rule_said, waiver_said = (said for said in verdict["reasons"] if "unknown" in said)
    assert rule_said == "ignore[2] is for flow 'chta', which is unknown here; did you mean 'chat'?"
    assert waiver_said.startswith(
        "the waiver of 0123456789ab is for flow 'team9', which is unknown"
    )
    assert "known: ai-sdk, anthropic-messages, " in waiver_said


def test_a_rule_that_takes_too_long_ends_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Misused, not equal; the rule is named."""
    monkeypatch.setattr(texts, "PATIENCE_S", 0.05)
    endless = "((a{1,100}){1,100}){1,100}b"
    (tmp_path / "diff.toml").write_text(f"[[replace]]\npattern = '{endless}'\nwith = ''\n")
    status, said = compare(tmp_path, batch(exchange(Script(), Script(system="a" * 3_000))))
    assert status == 2
    assert f"the rule with pattern '{endless}' took over" in " ".join(said.split())


def test_files_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """Rules and waivers; what is written back has none."""
    (tmp_path / "diff.toml").write_text(DATED, encoding="utf-8-sig")
    (tmp_path / "waivers.toml").write_text("", encoding="utf-8-sig")
    assert compare(tmp_path, batch(exchange(Script(), LATER)))[0] == 0


@pytest.mark.parametrize("option", ["--rules", "--waivers"])
def test_a_file_that_is_asked_for_must_be_there(tmp_path: Path, option: str) -> None:
    """A misspelt name would hide nothing, without a word."""
    status, said = compare(tmp_path, batch(exchange()), options=(option, "nowhere.toml"))
    assert status == 2
    assert "nowhere.toml" in said


def test_a_waived_cause_stays_in_sight_and_out_of_the_status(tmp_path: Path) -> None:
    """Until its day; from then on it counts again."""
    out = report(tmp_path, COLD)
    clusters = written(out)["clusters"]
    assert isinstance(clusters, list)
    table = f"[waiver.{clusters[0]['id']}]\nowner = 'Ann'\nreason = 'agreed'\nuntil = "
    for until, status, label in (
        ("9999-12-31", 0, "parity modulo 1 waiver"),
        ("2020-01-01", 1, "different"),
    ):
        (tmp_path / "waivers.toml").write_text(table + until)
        found, said = run(tmp_path / "captures", "-o", out)
        assert (found, label in said) == (status, True)
        assert "Ann" in (out / "report.md").read_text()


def test_two_reports_are_held_against_each_other(tmp_path: Path) -> None:
    """Folders or files; a new cause exits 1, a gone one 0."""
    older, newer = report(tmp_path / "a", Script()), report(tmp_path / "b", COLD)
    status, said = run(older, newer / "report.json", "-o", tmp_path / "changes")
    assert (status, "worse" in said, "Prompt differs  chat " in said) == (1, True, True)
    assert {path.name for path in (tmp_path / "changes").iterdir()} == {
        "changes.md",
        "changes.json",
    }
    status, said = run(newer, older)
    assert (status, "no worse" in said, "1 gone" in said) == (0, True, True)


def test_a_report_without_pairs_is_no_data(tmp_path: Path) -> None:
    """Nothing compared, nothing said."""
    (tmp_path / "captures").mkdir()
    run(tmp_path / "captures", "-o", tmp_path / "out")
    assert run(tmp_path / "out", tmp_path / "out")[0] == 3


@pytest.mark.parametrize(
    ("places", "why"),
    [
        (("captures",), "--out"),
        (("captures", "captures"), "report.json"),
        (("a", "b", "c"), "not 3 places"),
    ],
)
def test_places_that_make_no_sense_are_refused(
    tmp_path: Path, places: tuple[str, ...], why: str
) -> None:
    """One is captures, two are reports."""
    store(tmp_path / "captures", batch(exchange()))
    status, said = run(*places)
    assert status == 2
    assert why in said


def run_streams(dialect: str, *arguments: str | Path) -> tuple[int, str]:
    """Run `cutover diff --dialect`; returns its exit status and its output on one line."""
    return run_on_one_line("diff", "--dialect", dialect, *arguments)


def files(folder: Path, name: str, graph: Story) -> tuple[Path, Path]:
    """Write one body a side."""
    (folder / "legacy.txt").write_bytes(TOLD[name](Story()))
    (folder / "graph.txt").write_bytes(TOLD[name](graph))
    return folder / "legacy.txt", folder / "graph.txt"


@pytest.mark.parametrize("name", DIALECTS)
def test_two_files_of_every_dialect(tmp_path: Path, name: str) -> None:
    """Equal: 0; another text: 1, and the summary says where."""
    again = Story(("".join(PIECES),), number=5)
    status, said = run_streams(name, *files(tmp_path, name, again), "-o", tmp_path / "out")
    assert (status, "the one pair is equal" in said) == (0, True)
    sides = files(tmp_path, name, Story(("否",)))
    status, said = run_streams(name, *sides, "-o", tmp_path / "out")
    assert status == 1
    assert "Final text differs" in said
    report = msgspec.json.decode((tmp_path / "out" / "report.json").read_bytes())
    assert [cluster["flow"] for cluster in report["clusters"]] == [name]
    assert report["captures"] == f"{sides[0]} → {sides[1]}"


def test_where_the_text_of_streams_is_cut_counts_when_asked(tmp_path: Path) -> None:
    """As for captures."""
    sides = files(tmp_path, "openai", Story(("".join(PIECES),)))
    assert run_streams("openai", *sides, "-o", tmp_path / "out")[0] == 0
    exact = run_streams("openai", *sides, "-o", tmp_path / "out", "--chunking", "exact")
    assert exact[0] == 1


def test_folders_are_compared_file_by_file(tmp_path: Path) -> None:
    """What has no partner is among the reasons; no pair at all is no data."""
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "1.sse").write_bytes(TOLD["openai"](Story()))
    (tmp_path / "a" / "2.sse").write_bytes(b"")
    status, said = run_streams("openai", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "out")
    assert status == 0
    assert "1 exchange not compared: nothing of that id on the side of graph" in said
    (tmp_path / "b" / "1.sse").unlink()
    status, said = run_streams("openai", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "out")
    assert status == 3
    assert "none of 2 exchanges could be compared" in said


def test_lines_that_are_no_recording_are_told(tmp_path: Path) -> None:
    """Counted and named; the rest is compared, and the status says so."""
    row = json.dumps({"id": "x", "body": TOLD["openai"](Story()).decode()})
    (tmp_path / "a.jsonl").write_text(f"{row}\noops\n")
    place = tmp_path / "a.jsonl"
    status, said = run_streams("openai", place, place, "-o", tmp_path / "out")
    assert status == 4
    assert "2 damaged files, batches or lines passed over" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dialect", "openapi", "a.sse", "b.sse"], "did you mean 'openai'?"),
        (["--dialect", "bad.toml", "a.sse", "b.sse"], "unknown key; did you mean 'framing'?"),
        (["--dialect", "openai", "a.sse"], "--dialect compares two places, legacy and graph; 1"),
        (["--dialect", "openai", "a.sse", "b.sse", "a.sse"], "3 given"),
        (["--dialect", "openai", "a.sse", "nowhere"], "there is nothing there"),
        (["--dialect", "openai", "a.sse", "bad.toml"], "a file of .sse, .ndjson, .txt, .jsonl"),
        (["--dialect", "openai", "a.sse", "folder"], "may hold several"),
        (["--dialect", "openai", "twice.jsonl", "a.sse"], "is ambiguous"),
    ],
)
def test_streams_that_cannot_be_compared_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    """With a sentence that says what is due; no report is written."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.sse", "b.sse"):
        Path(name).write_bytes(b"")
    Path("folder").mkdir()
    Path("bad.toml").write_text('framming = "sse"')
    Path("twice.jsonl").write_text('{"id":1,"body":""}\n' * 2)
    status, output = run_on_one_line("diff", *arguments, "-o", "out")
    assert status == 2
    assert said in output
    assert not Path("out").exists()


def test_a_report_on_streams_needs_a_place(tmp_path: Path) -> None:
    """As for captures."""
    status, said = run_streams("chat", *files(tmp_path, "chat", Story()))
    assert status == 2
    assert "--out DIR" in said


@pytest.mark.parametrize("columns", ["80", "160"])
def test_what_differs_is_shown_in_a_narrow_terminal_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    """In a column of its own where there is room, else below the title."""
    monkeypatch.setenv("COLUMNS", columns)
    _, said = compare(tmp_path, batch(exchange(graph=Script(temperature=0.1))))
    assert "0.7 → 0.1" in said


def test_exchanges_are_selected_by_when_they_began(tmp_path: Path) -> None:
    """Exit 3 where none is left, also beside damage; 1 or 0 by what is selected."""
    torn = batch(exchange(number=9))[:-20]
    whole = [batch(exchange(graph=COLD if n else None, number=n)) for n in range(2)]
    began = moment(BEGAN + 1_000_000)
    store(tmp_path / "captures", *whole)
    for options, status, expected in (
        (("--until", began), 0, "1 of 2, 1 left out"),
        (("--since", began), 1, "1 of 2, 1 left out"),
        (("--since", LATER_THAN_ALL), 3, "0 of 2, 2 left out"),
        (("--configuration", "none"), 3, "under configuration unknown (2)"),
        (("--since", "yesterday"), 2, "is no time: write 2026-11-20T10:00Z"),
    ):
        found = run_on_one_line("diff", tmp_path / "captures", "-o", tmp_path / "out", *options)
        assert (found[0], expected in found[1]) == (status, True), found
    assert compare(tmp_path / "t", *whole, torn, options=("--since", LATER_THAN_ALL))[0] == 3


@pytest.mark.parametrize("places", [("a", "b"), ("a", "b", "--dialect", "openai")])
def test_reports_and_streams_have_nothing_to_select(
    tmp_path: Path, places: tuple[str, ...]
) -> None:
    """A filter that is passed over would be taken for one that holds."""
    status, said = run_on_one_line("diff", *places, "-o", tmp_path / "out", "--since", "2h")
    assert (status, "select from captures" in said) == (2, True)
