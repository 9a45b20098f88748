"""`cutover replay` as it is typed: words, exit status, and every planted difference found once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from compare.report import Report
from contract.records import RunRecord
from cutover.cli import app
from cutover.selftest.stream_faults import SCENE
from router.config.schema import RedactionSettings
from tests.cutover.replay.conftest import store
from tests.support.planted_faults import PLANTED, served

HERE = "tests.cutover.replay.stacks"
FEW = 40


def typed(*words: str | Path, processes: int = 0) -> tuple[int, str]:
    """Run the command; gives its exit status and what it said."""
    done = CliRunner().invoke(app, ["replay", *map(str, words), "--processes", str(processes)])
    return done.exit_code, done.output


def report_of(out: Path) -> Report:
    """Read the report."""
    return msgspec.json.decode((out / "report" / "report.json").read_bytes(), type=Report)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the captures of one exchange with tools, served by legacy, as equal on graph."""
    return store(served([SCENE]), tmp_path_factory.mktemp("good"))


@pytest.mark.slow
@pytest.mark.parametrize("stack", PLANTED)
def test_a_planted_difference_is_found_once_on_its_layer(
    good: Path, tmp_path: Path, stack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that was changed after the capture; one cause, one finding, exit status 1."""
    layer = PLANTED[stack][1]
    status, said = typed(good, "--stack", f"{HERE}:{stack}", "-o", tmp_path / "out")
    report = report_of(tmp_path / "out")
    assert status == 1
    assert [(cluster.layer, cluster.exchanges) for cluster in report.clusters] == [(layer, 1)]
    [cause] = report.clusters
    assert f"  {layer}: {cause.title}, {cause.flow} {cause.path} (1)" in said
    assert "1 pair: legacy as recorded → graph as it is now" in report.verdict.reasons
    assert "more in the report" not in said
    monkeypatch.setattr("cutover.cli.compare.replay.CLUSTERS_PRINTED", 0)
    _, said = typed(good, "--stack", f"{HERE}:{stack}", "-o", tmp_path / "again")
    assert "  and 1 more in the report" in said


@pytest.mark.slow
def test_a_stack_is_the_one_that_is_configured(good: Path, tmp_path: Path) -> None:
    """As the router serves it; one behind an address needs the gateway to answer its calls."""
    config = tmp_path / "cutover.toml"
    config.write_text(f'[stacks]\ngraph = "{HERE}:CHANGED_PROMPT"\n', "utf-8")
    words = (good, "--stack", "graph", "--config", config)
    assert typed(*words, "-o", tmp_path / "changed")[0] == 1
    config.write_text('[stacks]\ngraph = "http://new:9001/chat?tenant=a"\n', "utf-8")
    status, said = typed(*words, "-o", tmp_path / "remote")
    assert status == 2
    assert "answered from the tape by the gateway, which is off" in " ".join(said.split())
    assert not (tmp_path / "remote").exists()
    config.write_text('[stacks]\nlegacy = "http://old:9000/chat"\n', "utf-8")
    assert typed(*words, "-o", tmp_path / "other")[0] == 0


@pytest.mark.untraced
@pytest.mark.slow
@pytest.mark.parametrize(
    "redact", [RedactionSettings(paths=(), patterns={}), RedactionSettings()], ids=["open", "red"]
)
def test_unchanged_code_is_no_finding(
    exchanges: list[list[RunRecord]], redact: RedactionSettings, tmp_path: Path
) -> None:
    """Exchanges of every kind; redacted ones too, on both stacks."""
    captures = store(exchanges, tmp_path / "captures", redact)
    status, said = typed(captures, "--stack", "graph", "-o", tmp_path / "out")
    report = report_of(tmp_path / "out")
    assert (status, report.counts.pairs, report.clusters) == (0, len(exchanges), ())
    assert any(
        "graph as it is now" in reason and "legacy as recorded" in reason
        for reason in report.verdict.reasons
    )
    assert ("legacy as it is now → graph as it is now" in said) is (redact == RedactionSettings())


@pytest.mark.slow
def test_it_says_what_it_did(alone: list[list[RunRecord]], tmp_path: Path) -> None:
    """Replayed, equal, skipped by reason; a second time nothing is done, and the same is said."""
    gone = [msgspec.structs.replace(alone[0][0], outcome="cancelled")]
    captures = store([gone, *alone[1:FEW]], tmp_path / "captures")
    words = (captures, "--stack", "tests.cutover.replay.broken:FLOWS", "-o", tmp_path / "out")
    status, said = typed(*words, processes=1)  # a worker that need not load graph is there sooner
    assert status == 0
    assert "1  skipped: cancelled" in said
    assert f"passed over {gone[0].exchange}: cancelled" in said
    assert typed(*words) == (status, said)


@pytest.mark.slow
def test_the_report_can_wait(good: Path, tmp_path: Path) -> None:
    """The exit status is the same; `cutover diff` reads what was written."""
    out = tmp_path / "out"
    words = ("--stack", f"{HERE}:WRONG_FINAL_TEXT", "-o", out, "--no-report")
    assert typed(good, *words)[0] == 1
    assert not (out / "report").exists()
    done = CliRunner().invoke(app, ["diff", str(out), "-o", str(tmp_path / "report")])
    assert done.exit_code == 1


@pytest.mark.slow
def test_nothing_replayed_exits_3(alone: list[list[RunRecord]], tmp_path: Path) -> None:
    """No data is not a pass."""
    gone = [[msgspec.structs.replace(alone[0][0], outcome="cancelled")]]
    captures = store(gone, tmp_path / "captures")
    assert typed(captures, "--stack", "graph", "-o", tmp_path / "out")[0] == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--stack", "grpah"), "no stack 'grpah'"),
        (("--stack", "tests.nowhere:FLOWS"), "cannot be loaded"),
        (("--stack", f"{HERE}:NO_MAPPING"), "no mapping"),
        (("--stack", "legacy", "--against", "legacy"), "cannot stand against itself"),
        (("--stack", "a.b:"), "no stack 'a.b:'"),
        (("--stack", "graph", "--header", "a: b"), "for a service behind an address"),
    ],
)
def test_misuse_exits_2_with_a_reason(
    good: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    """Nothing is written."""
    status, output = typed(good, *words, "-o", tmp_path / "out")
    assert status == 2
    assert said in " ".join(output.split())
    assert not (tmp_path / "out").exists()


def test_unreadable_captures_exit_2(tmp_path: Path) -> None:
    """A misspelt place is told apart from an empty one."""
    status, _ = typed(tmp_path / "nowhere", "--stack", "legacy", "-o", tmp_path / "out")
    assert status == 2


def test_a_place_that_is_taken_exits_2(good: Path, tmp_path: Path) -> None:
    """Nothing in it is touched."""
    (tmp_path / "mine").write_text("")
    assert typed(good, "--stack", "legacy", "-o", tmp_path)[0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
