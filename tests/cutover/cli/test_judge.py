"""`cutover judge` as it is typed: in the terminal, as a page, and with a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutover.cli import app
from cutover.judge.judgements import add_judged, read_judged, read_judged_beside
from evidence.preferences import JudgedPair, candidate_first
from tests.support.answer_pairs import answered, captured

SECRET = "\x1b]0;title\x07"


@pytest.fixture
def captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Capture four pairs with unlike answers and one with equal ones."""
    monkeypatch.chdir(tmp_path)
    pairs = [answered(f"e{k}", f"old {k}{SECRET}", f"new {k}") for k in range(4)]
    return captured(tmp_path / "captures", [*pairs, answered("same", "equal", "equal")])


def run(*arguments: object, typed: str = "") -> tuple[int, str]:
    """Run `cutover judge`; returns its exit status and its output."""
    result = CliRunner().invoke(app, ["judge", *map(str, arguments)], input=typed)
    return result.exit_code, result.output


def key_of(exchange: str, side: str, seed: int = 0) -> str:
    """Return the key that prefers one side's answer."""
    return "a" if (side == "candidate") == candidate_first(exchange, seed) else "b"


def order(output: str) -> list[str]:
    """List the exchanges in the order in which they were shown."""
    return [line.split()[-1] for line in output.splitlines() if line.startswith("message_id:")]


def test_a_session_is_stored_as_it_goes_and_resumed(captures: Path) -> None:
    """What was judged is not asked again; skipped pairs neither."""
    status, output = run(captures, typed="a\nnonsense\nskip\nquit\n")
    assert status == 0
    assert "4 pairs drawn of 4 with unlike answers" in output
    assert "left out: 1 equal answers" in output
    asked = order(output)
    stored = {one.exchange: one.preferred for one in read_judged(captures / "quality.json")}
    assert [*stored] == asked[:2]
    assert stored[asked[1]] == "skipped"
    status, output = run(captures, typed="tie\nt\n")
    assert (status, order(output)) == (0, asked[2:] if len(asked) == 4 else order(output))
    assert len(order(output)) == 2
    assert len(read_judged(captures / "quality.json")) == 4
    assert order(run(captures)[1]) == []


def test_the_end_of_the_input_is_quit(captures: Path) -> None:
    """Everything before it is stored."""
    assert run(captures, typed="tie\n")[0] == 0
    assert len(read_judged(captures / "quality.json")) == 1


def test_a_key_prefers_what_was_shown_under_it(captures: Path) -> None:
    """Whichever stack wrote it; the result says so with its interval."""
    asked = order(run(captures)[1])
    while len(asked) < 4:
        status, output = run(captures, typed=key_of(asked[-1], "candidate") + "\n")
        assert status == 0
        asked.append(order(output)[1])
    status, output = run(captures, typed=key_of(asked[3], "candidate") + "\n")
    assert "people preferred graph in 4 of 4 pairs with a preference" in output
    assert {one.preferred for one in read_judged(captures / "quality.json")} == {"candidate"}


def test_nothing_shown_acts_on_the_terminal(captures: Path) -> None:
    """Control characters of answers are spelt out, and no stack is named."""
    _, output = run(captures, typed="tie\n" * 4)
    assert "\x1b]" not in output
    assert "⟨U+001B⟩]0;title⟨U+0007⟩" in output
    assert "legacy" not in output


def test_the_file_holds_no_text(captures: Path) -> None:
    """Ids and preferences alone, and what they add up to."""
    run(captures, typed="tie\n" * 4)
    text = (captures / "quality.json").read_text()
    assert not {"old", "new", "Why?"} & set(text.split('"'))
    assert json.loads(text)["preferences"][0]["ties"] == 4


def test_a_page_is_judged_and_imported(captures: Path, tmp_path: Path) -> None:
    """What it exports is read with the order it showed; twice is no more than once."""
    page = tmp_path / "page.html"
    assert run(captures, "--page", page, "--seed", 7)[0] == 0
    assert not (captures / "quality.json").exists()
    judged = [
        {"exchange": f"e{k}", "flow": "chat", "began": 1, "choice": key_of(f"e{k}", "control", 7)}
        for k in range(3)
    ]
    exported = tmp_path / "judgements.json"
    exported.write_text(json.dumps({"v": 1, "seed": 7, "judged": judged}))
    for _ in range(2):
        status, output = run(captures, "--import", exported)
        assert (status, "people preferred graph in 0 of 3 pairs" in output) == (0, True)
    assert [one.preferred for one in read_judged(captures / "quality.json")] == ["control"] * 3


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "no export of a page"),
        ('{"v": 2, "seed": 0, "judged": []}', "version 2, not 1"),
        (
            '{"v":1,"seed":0,"judged":[{"exchange":"e","flow":"f","began":1,"choice":"invalid"}]}',
            "no export of a page",
        ),
    ],
)
def test_what_is_no_export_is_refused(
    captures: Path, tmp_path: Path, content: str, why: str
) -> None:
    """And nothing is stored."""
    (tmp_path / "x.json").write_text(content)
    status, output = run(captures, "--import", tmp_path / "x.json")
    assert (status, why in " ".join(output.split())) == (2, True)
    assert not (captures / "quality.json").exists()


def test_what_cannot_be_is_refused(captures: Path, tmp_path: Path) -> None:
    """Two ways at once, an unknown flow, no folder, a file of judgements that is none."""
    assert run(captures, "--page", "x", "--model", "m")[0] == 2
    assert run(captures, "--flow", "chta")[0] == 2
    assert run(tmp_path / "nowhere")[0] == 2
    assert run(captures, "--model", "gpt", "--out", tmp_path / "q.json")[0] == 2
    (captures / "quality.json").write_text("[]")
    status, output = run(captures, typed="a\n")
    assert (status, "no judgements in" in output) == (2, True)
    assert (captures / "quality.json").read_text() == "[]"


def test_equal_answers_alone_are_nothing_to_judge(tmp_path: Path) -> None:
    """Exit 3, as everywhere where there is nothing to tell."""
    folder = captured(tmp_path / "captures", [answered("same", "equal", "equal")])
    status, output = run(folder)
    assert (status, "left out: 1 equal answers" in output) == (3, True)


def test_the_last_judgement_of_a_pair_counts(tmp_path: Path) -> None:
    """Of one judge; a model's stands beside a person's, and its self-check beside both."""
    file = tmp_path / "new" / "quality.json"
    first = JudgedPair(exchange="e", flow="chat", began=1, judge="person", preferred="tie")
    second = JudgedPair(exchange="e", flow="chat", began=1, judge="person", preferred="control")
    model = JudgedPair(exchange="e", flow="chat", began=1, judge="m", preferred="tie")
    check = JudgedPair(
        exchange="e", flow="chat", began=1, judge="m", preferred="tie", itself=True, same=True
    )
    add_judged(file, [first, model, check])
    add_judged(file, [second])
    assert read_judged(file) == (second, model, check)
    assert read_judged_beside(f"{file.parent}/") == read_judged(file)
    assert read_judged_beside(str(tmp_path)) == ()
