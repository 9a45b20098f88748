"""`cutover diff` with a team's decisions: rules, waivers, a report against an older one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from compare.rules import texts
from cutover.cli.diff import diff
from cutover.selftest.exchanges import Script, batch, exchange, store

app = typer.Typer()
app.command()(diff)

DATED = "[[replace]]\npattern = '\\d{4}-\\d\\d-\\d\\d'\nwith = '<date>'\n"
IDLE = "[[ignore]]\npath = 'nowhere'\n"
LATER = Script(system=Script().system.replace("21", "22"))
COLD = Script(system="冷")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Rules and waivers are looked for where the command is run.
    monkeypatch.chdir(tmp_path)


def run(*arguments: str | Path) -> tuple[int, str]:
    """Run the command; returns exit status and everything it said."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


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
    store(tmp_path / "captures", batch(exchange(Script(), LATER)))
    status, said = run(tmp_path / "captures", "-o", tmp_path / "out", *option)
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
        "[waiver.0123456789ab]\nowner = 'Ann'\nreason = 'x'\nuntil = 9999-12-31\nflow = 'ops9'\n"
    )
    store(tmp_path / "captures", batch(exchange()))
    status, said = run(tmp_path / "captures", "-o", tmp_path / "out")
    assert (status, "equal" in said) == (0, True)
    verdict = written(tmp_path / "out")["verdict"]
    assert isinstance(verdict, dict)
    rule_said, waiver_said = (said for said in verdict["reasons"] if "unknown" in said)
    assert rule_said == "ignore[2] is for flow 'chta', which is unknown here; did you mean 'chat'?"
    assert waiver_said.startswith("the waiver of 0123456789ab is for flow 'ops9', which is unknown")
    assert "known: anthropic-messages, " in waiver_said


def test_a_rule_that_takes_too_long_ends_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Misused, not equal; the rule is named."""
    monkeypatch.setattr(texts, "PATIENCE_S", 0.05)
    endless = "((a{1,100}){1,100}){1,100}b"
    (tmp_path / "diff.toml").write_text(f"[[replace]]\npattern = '{endless}'\nwith = ''\n")
    store(tmp_path / "captures", batch(exchange(Script(), Script(system="a" * 3_000))))
    status, said = run(tmp_path / "captures", "-o", tmp_path / "out")
    assert status == 2
    assert f"the rule with pattern '{endless}' took over" in " ".join(said.split())


def test_files_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """Rules and waivers; what is written back has none."""
    (tmp_path / "diff.toml").write_text(DATED, encoding="utf-8-sig")
    (tmp_path / "waivers.toml").write_text("", encoding="utf-8-sig")
    store(tmp_path / "captures", batch(exchange(Script(), LATER)))
    assert run(tmp_path / "captures", "-o", tmp_path / "out")[0] == 0


@pytest.mark.parametrize("option", ["--rules", "--waivers"])
def test_a_file_that_is_asked_for_must_be_there(tmp_path: Path, option: str) -> None:
    """A misspelt name would hide nothing, without a word."""
    store(tmp_path / "captures", batch(exchange()))
    status, said = run(tmp_path / "captures", "-o", tmp_path / "out", option, "nowhere.toml")
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
