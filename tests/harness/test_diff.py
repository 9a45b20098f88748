"""`cutover diff` and `cutover waive`: exit statuses, what is read, and by whom."""

import asyncio
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from compare.report.document import Report, read_report
from cutover.records import RunRecord, encode
from harness.cli import cli
from router.captures import CaptureReader, Store
from tests.compare.captured import Capturing, captured, some_differ, texts

pytestmark = pytest.mark.slow

DAY = date(2026, 11, 28)
Lines = Sequence[bytes]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[RunRecord]:
    """The lines of 24 exchanges, two without a shadow, five that differ."""
    folder = tmp_path_factory.mktemp("captured")
    asyncio.run(captured(folder, some_differ))
    return list(CaptureReader(Store(str(folder))))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(folder: Path, *files: Lines) -> None:
    """Write files of lines, in this order."""
    folder.mkdir(exist_ok=True)
    for lines in files:
        Store(str(folder)).add("chat", DAY, b"\n".join(lines) + b"\n")


def diff(*line: str) -> tuple[int, str]:
    """Run the command; return its exit status and what it printed."""
    done = CliRunner().invoke(cli, ["diff", *line])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def found(here: Path, name: str = "report") -> Report:
    """Return the report that a command wrote."""
    return msgspec.structs.replace(read_report(here / name), made_at=0)


def equal(records: Sequence[RunRecord]) -> Lines:
    """Return the lines of eleven pairs that are equal, each beside its shadow's."""
    numbers = [(int(one.exchange, 16), one) for one in records]
    return [encode(one) for number, one in numbers if number > 3 and number % 6 > 2]


def test_what_differs_is_reported(here: Path, records: Sequence[RunRecord]) -> None:
    """In five files, and in few lines on the terminal."""
    put(here / "captures", [encode(one) for one in records])
    status, said = diff("captures")
    assert status == 1
    assert re.match(r"different\n  5 of 22 pairs compared differ\n", said)
    assert len(said.splitlines()) <= 15
    assert said.splitlines()[-2] == "report/report.html"
    report = found(here)
    assert {one.name for one in (here / "report").iterdir()} == {
        *("report.html", "report.md", "report.json", "report.schema.json", "junit.xml")
    }
    assert (report.causes[0].title, report.causes[0].pairs.count) == ("text", 5)
    assert [one.outcomes for one in report.exemplars[:1]] == [("completed", "completed")]
    assert [(one.why, one.exchanges) for one in report.not_compared] == [("not_played", 2)]
    (legacy,) = report.served
    assert (legacy.assigned, legacy.exchanges, legacy.end.of) == ("legacy", 24, 24)


def replays(lines: Lines) -> Lines:
    """Return the lines of replays instead of shadows."""
    return [one.replace(b'"role":"shadow"', b'"role":"replay"') for one in lines[1::2]]


EQUAL = "none of 11 pairs compared differs"
DAMAGE: dict[str, tuple[Callable[[Lines], Sequence[Lines]], int, str]] = {
    "none": (lambda lines: [lines], 0, EQUAL),
    "shuffled": (lambda lines: [lines[::-1]], 0, EQUAL),
    "shadows in later files": (lambda lines: [lines[::2], lines[1::2]], 0, EQUAL),
    "lines twice": (lambda lines: [lines, lines], 0, "22 lines are of runs that stand there again"),
    "an older replay that differed": (
        lambda lines: [
            [one.replace(b"is 84", b"is 94") for one in replays(lines)],
            [*lines[::2], *replays(lines)],
        ],
        *(0, EQUAL),
    ),
    "no shadow": (lambda lines: [lines[::2]], 3, "11 exchanges were not compared"),
    "shadows alone": (lambda lines: [lines[1::2]], 3, "11 of 11 lines or pairs"),
    "nothing": (lambda _: [], 3, "there is no exchange"),
    "one serving line is gone": (lambda lines: [lines[1:]], 4, "1 of 11 lines or pairs"),
    "a line of another version": (
        lambda lines: [[*lines, lines[0].replace(b'"v":1', b'"v":2')]],
        *(4, "1 of 12 lines or pairs are missing"),
    ),
    "a raw newline in a line": (
        lambda lines: [[lines[0].replace(b'"request"', b'\n"request"'), *lines[1:]]],
        *(4, "3 of 13 lines or pairs"),
    ),
    "a number that is none": (
        lambda lines: [[re.sub(rb'"at":\d+', b'"at":NaN', lines[0]), *lines[1:]]],
        *(4, "2 of 12 lines or pairs"),
    ),
    "a field of another type": (
        lambda lines: [[lines[0].replace(b'"frames":[', b'"frames":[7,'), *lines[1:]]],
        *(4, "2 of 12 lines or pairs"),
    ),
    "a stream that is none of its flow": (
        lambda lines: [[lines[0].replace(b"ACCEPT", b"EXCEPT"), *lines[1:]]],
        *(4, "1 of 11 lines or pairs"),
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_equal_is_never_said_of_what_was_not_read(
    here: Path, records: Sequence[RunRecord], name: str
) -> None:
    """Nor does damage become a difference; what is there in another order is the same."""
    parts, status, reason = DAMAGE[name]
    put(here / "captures", *parts(equal(records)))
    assert diff("captures")[0] == status
    assert any(one.startswith(reason) for one in found(here).verdict.reasons)
    assert found(here).causes == ()


@pytest.mark.parametrize("count", [1, 3])
def test_a_file_that_is_cut_off(here: Path, records: Sequence[RunRecord], count: int) -> None:
    """What stands before is read."""
    put(here / "captures", *(equal(records)[at::count] for at in range(count)))
    path = next((here / "captures").rglob("*.zst"))
    path.write_bytes(path.read_bytes()[:-40])
    assert diff("captures")[0] == 4
    assert any(one.startswith(f"1 of {count} files") for one in found(here).verdict.reasons)
    assert found(here).verdict.label == ("unreadable" if count == 1 else "incomplete")


def test_two_folders_are_read_as_one(here: Path, records: Sequence[RunRecord]) -> None:
    """Replays may lie apart from what they replay."""
    put(here / "captures", [encode(one) for one in records])
    put(here / "played", equal(records)[1::2])
    put(here / "served", equal(records)[::2])
    assert diff("served", "played")[0] == 0
    assert found(here).flows[0].differing.of == 11


def test_waived_causes_make_no_pair_different(here: Path, records: Sequence[RunRecord]) -> None:
    """Until one is no longer covered."""
    put(here / "captures", [encode(one) for one in records])
    diff("captures")
    for cause in found(here).causes:
        line = f"waive {cause.id} --owner ana --reason known --until 9999-01-01 --at-most 30"
        assert CliRunner().invoke(cli, line.split()).exit_code == 0
    assert diff("captures")[0] == 0
    assert {one.standing for one in found(here).causes} == {"in_force"}
    line = f"waive {found(here).causes[0].id} --owner a --reason b --until 9999-01-01 --at-most 1"
    CliRunner().invoke(cli, line.split())
    assert diff("captures")[0] == 1


def test_an_older_report_shows_what_is_new(here: Path, records: Sequence[RunRecord]) -> None:
    """By its folder or its file."""
    put(here / "captures", [encode(one) for one in records])
    put(here / "before", equal(records))
    diff("before", "-o", "old")
    assert diff("captures", "--against", "old")[0] == 1
    assert {one.state for one in found(here).changes} == {"new"}


def test_rules_and_time_choose_what_is_compared(here: Path, records: Sequence[RunRecord]) -> None:
    """What a rule replaces is equal; what began outside of the time is not read."""
    put(here / "captures", [encode(one) for one in records])
    (here / "diff.toml").write_text("[[replace]]\npattern = '[89]4'\nby = 'N'\n")
    diff("captures", "--rules", "diff.toml")
    assert found(here).causes[0].pairs.count == 1
    assert found(here).left_out[0].why.startswith("by a rule: replace ")
    starts = sorted({one.at for one in records if one.role == "serving"})
    moments = [datetime.fromtimestamp(starts[at] / 1e6, UTC).isoformat() for at in (6, 12)]
    diff("captures", "--since", moments[0], "--until", moments[1])
    assert [one.exchanges for one in found(here).served] == [6]


async def _again(capturing: Capturing) -> None:
    """Serve exchanges that legacy itself plays otherwise."""
    for _ in range(3):
        await capturing.exchange(change=texts(lambda text: f"{text}."), played="legacy")


def test_legacy_against_itself(here: Path) -> None:
    """It is a figure beside the verdict, and only where it is asked for."""
    asyncio.run(captured(here / "captures", _again))
    assert diff("captures", "--aa")[0] == 3
    (flow,) = found(here).flows
    assert flow.baseline is not None
    assert (flow.differing.of, flow.baseline.count, flow.baseline.of) == (0, 3, 3)
    assert found(here).causes == ()
    diff("captures")
    assert found(here).flows == ()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "Missing argument"),
        ("captures --flow sung", "no flow 'sung': there are chat"),
        ("elsewhere", "elsewhere: there is no such folder"),
        ("captures elsewhere://b", "elsewhere://b: Protocol not known"),
        ("captures --since soon", "'soon' is no time"),
        ("captures --processes 0", "--processes"),
        ("captures --config none.toml", "No such file"),
        ("captures --rules none.toml", "No such file or directory: 'none.toml'"),
        ("captures --against none.json", "none.json: "),
        ("captures --waivers bad.toml", "bad.toml: "),
        ("captures -o bad.toml", "File exists: 'bad.toml'"),
        ("captures --dialect sung", "two folders, OLD NEW"),
        (". . --dialect sung", "sung"),
        (". . --dialect text --dialect text --dialect text", "two folders, OLD NEW"),
    ],
)
def test_what_cannot_be_meant_is_no_verdict(here: Path, line: str, why: str) -> None:
    """It ends with 64 and one sentence."""
    (here / "bad.toml").write_text("[waiver")
    (here / "captures").mkdir()
    status, said = diff(*line.split())
    assert status == 64
    assert why in re.sub(r"[\s│]+", " ", said)


def test_the_configuration_of_the_folder_is_read(here: Path) -> None:
    """Without an option, as by the other commands."""
    (here / "cutover.toml").write_text("[sever]")
    status, said = diff("captures")
    assert (status, "cutover.toml: " in said, "sever" in said) == (64, True, True)


def _many(here: Path, records: Sequence[RunRecord], times: int) -> None:
    """Write the records so many times, each as exchanges of its own, shadows in a later file."""
    copies = [
        msgspec.structs.replace(one, exchange=f"{at}-{one.exchange}", at=one.at + at)
        for at in range(times)
        for one in records
    ]
    served = [encode(one) for one in copies if one.role == "serving"]
    played = [encode(one) for one in copies if one.role == "shadow"]
    put(here / "captures", served[::2], served[1::2], played)


def test_processes_find_the_same(here: Path, records: Sequence[RunRecord]) -> None:
    """The whole report, exemplars included."""
    _many(here, records, 5)
    diff("captures")
    diff("captures", "--processes", "2", "-o", "two")
    assert found(here) == found(here, "two")
    assert found(here).flows[0].differing.of == 110


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # Dask's own
def test_workers_of_dask_find_the_same(here: Path, records: Sequence[RunRecord]) -> None:
    """The whole report, exemplars included."""
    distributed: Any = import_module("distributed")
    _many(here, records, 25)
    diff("captures")
    with distributed.LocalCluster(
        2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        diff("captures", "--scheduler", cluster.scheduler_address, "-o", "two")
    assert found(here) == found(here, "two")


def _event(**delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return b"data: " + msgspec.json.encode({"choices": [choice]}) + b"\n\n"


END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
OLD = _event(role="assistant") + _event(content="green ") + _event(content="tea") + END
STREAMS: dict[str, tuple[bytes | None, bytes | None, int]] = {
    "other pieces": (OLD, _event(content="green tea") + END, 0),
    "no blank line at the end": (OLD, OLD.rstrip(), 0),
    "another text": (OLD, OLD.replace(b"green", b"black"), 1),
    "cut off": (OLD, OLD[:-90], 1),
    "a recording that is not there": (OLD, None, 4),
    "one that is new": (None, OLD, 4),
    "nothing of either": (b"", b"", 0),
}


@pytest.mark.parametrize("name", STREAMS)
def test_recorded_streams(here: Path, name: str) -> None:
    """Files of one name are a pair; one reader judges them and what is served."""
    for folder, body in zip(("old", "new"), STREAMS[name], strict=False):
        assert not isinstance(body, int)
        (here / folder / "tea").mkdir(parents=True)
        (here / folder / "tea" / "2.sse").write_bytes(OLD)
        if body is not None:
            (here / folder / "tea" / "1.sse").write_bytes(body)
    assert diff("old", "new", "--dialect", "chat-completions")[0] == STREAMS[name][2]
    assert found(here).flows[0].flow == "recordings"


def test_recorded_streams_of_two_formats(here: Path) -> None:
    """They are compared in what both can say."""
    words = b'{"message":{"content":"green "}}\n{"message":{"content":"tea"}}\n'
    whole = b'{"message":{"content":""},"done":true,"done_reason":"stop"}\n'
    for folder, body in (("old", OLD), ("new", words + whole)):
        (here / folder).mkdir()
        (here / folder / "1.sse").write_bytes(body)
    formats = ("--dialect", "chat-completions", "--dialect", "ndjson")
    assert diff("old", "new", *formats)[0] == 0
    assert "events: the runs have two wire formats" in [one.why for one in found(here).left_out]
    (here / "new" / "1.sse").write_bytes(words.replace(b"green", b"black") + whole)
    assert diff("old", "new", *formats)[0] == 1
