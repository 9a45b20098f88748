"""The documents: their length, links, commands, paths and figures, and the examples that run."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cutover.errors import Completed
from cutover.wire import Reader, read_dialect
from harness.cli import cli
from rules.flows import FLOWS
from tests.compare.planted import ROWS

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "quickstart services gateway in-process rollout report load configuration operations privacy"
)
MOST_LINES = {
    "README.md": 80,
    "README.zh.md": 80,
    "CHANGELOG.md": 60,
    "CONTRIBUTING.md": 60,
    "docs/from-the-documents.md": 150,
}
DOCUMENTS = {
    str(path.relative_to(ROOT)): path.read_text("utf-8")
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
}
FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
PROGRAM: Any = typer.main.get_command(cli)


def prose(text: str) -> str:
    """Return a document without its blocks of code."""
    return FENCED.sub("", text)


def anchors(text: str) -> set[str]:
    """Return what links may name in a document, as GitHub makes it of headings."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of `cutover` in a document, without comments."""
    shown = [line for kind, block in FENCED.findall(text) if kind for line in block.splitlines()]
    for line in (*shown, *re.findall(r"`(cutover [^`]+)`", prose(text))):
        words = (
            shlex.split(line.strip().removeprefix("$ "), comments=True)
            if "cutover " in line
            else []
        )
        if words[:1] == ["cutover"] and words[1:]:
            yield words[1:]


def test_documents_stay_short_and_few() -> None:
    """Twelve pages and one, and records of at most 25 lines."""
    for name, most in MOST_LINES.items():
        assert DOCUMENTS[name].count("\n") <= most, name
    pages = {Path(one).stem for one in DOCUMENTS if re.fullmatch(r"docs/[^/]+", one)}
    assert pages == {*PAGES.split(), "architecture", "from-the-documents", "peers"}
    records = {name: text for name, text in DOCUMENTS.items() if name.startswith("docs/decisions/")}
    assert len(records) <= 25
    assert [name for name, text in records.items() if text.count("\n") > 25] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    """To a file of the repository, and to a heading in it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(DOCUMENTS[name])):
        path, _, anchor = target.partition("#")
        found = ((ROOT / name).parent / path) if path else ROOT / name
        assert found.exists(), target
        assert not anchor or anchor in anchors(found.read_text("utf-8")), target


@pytest.mark.parametrize("name", DOCUMENTS)
def test_paths_that_are_named_exist(name: str) -> None:
    """Files and folders of the repository, and tests, in backticks."""
    tops = "|".join(one.name for one in ROOT.iterdir() if one.is_dir() and one.name[0] != ".")
    for path in re.findall(rf"`(?:pytest [^`]*?)?((?:{tops})/[\w./-]*)`", prose(DOCUMENTS[name])):
        assert (ROOT / path).exists(), path
    for module in re.findall(r"python -m ([a-z]+(?:\.\w+)*)", DOCUMENTS[name]):
        assert find_spec(module), module


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_that_are_shown_exist(name: str) -> None:
    """With every option that is given to them."""
    for words in commands(DOCUMENTS[name]):
        command, *rest = (PROGRAM, *words)
        while rest and hasattr(command, "commands"):
            if not rest[0].isalpha():
                break
            assert rest[0] in command.commands, words
            command, *rest = (command.commands[rest[0]], *rest[1:])
        known = {name for one in command.params for name in one.opts} | {"--help"}
        given = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
        assert given <= known, (words, given - known)


def test_every_command_has_its_exit_statuses() -> None:
    """In the table of operations."""
    table = DOCUMENTS["docs/operations.md"].partition("## Exit statuses")[2]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {
        name for row in rows for name in re.findall(r"`([\w ]+)`", row)
    } == PROGRAM.commands.keys()


def test_both_readmes_promise_the_same() -> None:
    """The same streams, commands, figures, pictures and pages, in two languages."""

    def promised(name: str) -> tuple[object, ...]:
        text = DOCUMENTS[name]
        blocks = [re.sub(r" +# .*", "", block) for _, block in FENCED.findall(text)]
        links = [one for one in re.findall(r"\]\(([^)]+)\)", text) if "README" not in one]
        table = text[text.index("| `pytest") - 200 : text.rindex("| `pytest") + 99]
        numbers = re.findall(r"\d[\d ]*\d(?= |,|\|)", table)
        return blocks, sorted(links), sorted(re.findall(r"`[^`\n]+`", prose(text))), sorted(numbers)

    assert promised("README.md") == promised("README.zh.md")


def test_the_planted_faults_of_the_readme_are_counted() -> None:
    """As many as there are rows."""
    assert f"| {len(ROWS)} of {len(ROWS)} planted faults" in DOCUMENTS["README.md"]


def test_the_dialect_that_is_shown_reads_a_stream() -> None:
    """Its text and its end."""
    page = (ROOT / "docs" / "services.md").read_text("utf-8").partition("## Write a dialect")[2]
    reader = Reader(read_dialect(page.split("```")[1].removeprefix("toml"), "services.md"))
    reader.feed(b'data: {"choices":[{"delta":"Hi"}]}\n\ndata: [DONE]\n\n')
    reader.close()
    assert (list(reader.texts.values()), reader.ending) == (["Hi"], Completed())


def test_every_option_of_a_flow_is_listed() -> None:
    """In the architecture; what all flows have is named once."""
    _, _, table = DOCUMENTS["docs/architecture.md"].partition("| flow | options in ")
    for flow in FLOWS.values():
        (row,) = re.findall(rf"^\| `{flow.name}` \| (`.*) \|$", table, re.MULTILINE)
        shared = {"model_id", "temperature", "texts"}
        listed = set(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", row)))
        assert listed == {*flow.options.__struct_fields__} - shared, flow.name


@pytest.mark.slow
def test_an_example_of_code_in_process_prints_what_is_shown() -> None:
    """As a program of its own."""
    page = DOCUMENTS["docs/in-process.md"]
    (code, shown), *_ = re.findall(
        r"```python\n(import asyncio.*?)```\n\n```\n(.*?)```", page, re.DOTALL
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == shown
