"""Sources of an import: the same rows from every kind of file, and from databases."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from cutover.imports import source
from cutover.imports.source import SourceRow, SourceUnreadable, open_rows
from tests.support.postgres import execute, own_schema

VALUES = [
    {"chat": "c1", "text": "你好,\n世界"},
    {"chat": "c1", "text": '"quoted"\t100%'},
    {"chat": "c2", "text": ""},
]
LINES = {".csv": [2, 4, 5], ".tsv": [2, 4, 5], ".jsonl": [1, 2, 3]}


def written(kind: str) -> bytes:
    """Write the values as a file of a kind."""
    if kind == ".jsonl":
        return "".join(json.dumps(one) + "\n" for one in VALUES).encode()
    text = io.StringIO()
    writer = csv.DictWriter(text, ["chat", "text"], delimiter=",\t"[kind == ".tsv"])
    writer.writeheader()
    writer.writerows(VALUES)
    return b"\xef\xbb\xbf" + text.getvalue().encode()


def two_frames(content: bytes) -> bytes:
    """Compress as parallel compressors do."""
    half = len(content) // 2
    return zstandard.compress(content[:half]) + zstandard.compress(content[half:])


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": two_frames,
}


@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.parametrize("kind", LINES)
def test_files_of_every_kind_hold_the_same_rows(tmp_path: Path, kind: str, packing: str) -> None:
    """Each with the line where it begins; the position ends at the size."""
    path = tmp_path / f"rows{kind}{packing}"
    path.write_bytes(PACKED[packing](written(kind)))
    for place in (str(path), path.as_uri()):
        with open_rows(place) as rows:
            assert list(rows.rows) == list(map(SourceRow, LINES[kind], VALUES))
            assert rows.position() == rows.size == path.stat().st_size


@pytest.mark.parametrize(
    ("name", "content", "faults"),
    [
        ("a.csv", b"a,b\n1,2\n3\n\n4,5,6\n", {3: "1 fields where", 5: "3 fields where"}),
        (
            "a.csv",
            b'a,b\n1,"2\n3,4\n',
            {2: "unexpected end of data, in one row of the lines 2"},
        ),
        ("a.csv", b'a,b\n"1"x,2\n3,4\n', {2: "',' expected after"}),
        ("a.jsonl", b'{"a":1}\n[2]\n\n{"a":\n', {2: "no JSON object", 4: "no JSON object"}),
        ("a.jsonl", b'{"a":"\xff"}\n{"a":1}\n', {1: "no JSON object in UTF-8"}),
    ],
)
def test_a_row_that_cannot_be_read_is_named_by_its_line(
    tmp_path: Path, name: str, content: bytes, faults: dict[int, str]
) -> None:
    """And the rows after it are read."""
    (tmp_path / name).write_bytes(content)
    with open_rows(str(tmp_path / name)) as rows:
        found = {row.line: row.fault for row in rows.rows if row.fault}
    assert found.keys() == faults.keys()
    assert all(found[line].startswith(why) for line, why in faults.items()), found


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("a.jsonl", b'{"a":"', b'"}\n{"a":"x"}\n'),
        ("a.jsonl.gz", b'{"a":"', b'"}\n{"a":"x"}\n'),
        ("a.csv", b"a\n", b"\nx\n"),
        ("a.csv", b'a\n"', b"\nx\n"),
        ("a.csv", b'a\n"' + b"x\n" * 9, b'"\nx\n'),
    ],
)
def test_a_line_that_is_too_long_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, before: bytes, after: bytes
) -> None:
    """It is never in memory whole, and the rows after it are read."""
    monkeypatch.setattr(source, "_LONGEST", 1 << 18)
    content = before + b"y" * (1 << 24) + after
    path = tmp_path / name
    path.write_bytes(gzip.compress(content, 1) if name.endswith(".gz") else content)
    tracemalloc.start()
    try:
        with open_rows(str(path)) as rows:
            found = [(bool(row.fault), dict(row.values)) for row in rows.rows]
        assert tracemalloc.get_traced_memory()[1] < 1 << 23
    finally:
        tracemalloc.stop()
    assert found == [(True, {}), (False, {"a": "x"})]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.xlsx", b"", "known are .csv, .tsv, .jsonl, .ndjson, each also .gz or .zst"),
        ("a.csv", b"", "line 1: no columns"),
        ("a.csv", "a,b\n".encode("utf-16"), "line 1 is no UTF-8: convert the file"),
        ("a.csv", "编号\n".encode("gbk"), "line 1 is no UTF-8: convert the file"),
        ("a.csv.gz", gzip.compress(written(".csv"))[:-9], "Compressed file ended"),
        ("a.csv.gz", b"no gzip", "Not a gzipped file"),
        ("a.csv.zst", zstandard.compress(written(".csv"))[:-3], "it does not end"),
        ("a.jsonl.zst", b"no zstd", "no zstd frame begins there"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_is_cut_off_or_something_else_is_no_source(
    tmp_path: Path, name: str, content: bytes, why: str
) -> None:
    """Rather than a shorter one."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceUnreadable, match=why), open_rows(str(tmp_path / name)) as rows:
        list(rows.rows)


QUERY = "SELECT chat, text FROM said WHERE text <> ':no %s' ORDER BY number"


def fill(address: str) -> None:
    """Make an old application's table."""
    execute(address, "CREATE TABLE said (number INTEGER, chat TEXT, text TEXT)")
    for number, one in enumerate(VALUES):
        execute(address, "INSERT INTO said VALUES (?, ?, ?)", number, *one.values())


def test_a_query_of_an_sqlite_file_returns_rows(tmp_path: Path) -> None:
    """Which is opened for reading: one that is not there is not made."""
    address = f"sqlite:///{tmp_path}/old ones.db"
    with pytest.raises(SourceUnreadable, match="unable to open"), open_rows(address, QUERY):
        pass
    assert list(tmp_path.iterdir()) == []
    fill(address)
    with open_rows(address, QUERY) as rows:
        assert rows.columns == ("chat", "text")
        assert list(rows.rows) == list(map(SourceRow, (1, 2, 3), VALUES))
    with (
        pytest.raises(SourceUnreadable, match="readonly"),
        open_rows(address, "DELETE FROM said"),
    ):
        pass
    with closing(sqlite3.connect(tmp_path / "old ones.db")) as file:
        assert file.execute("SELECT count(*) FROM said").fetchone() == (3,)


def test_a_text_of_an_sqlite_file_that_is_no_utf8_costs_its_row() -> None:
    """And not those after it."""
    query = "SELECT CAST(x'6162ff' AS TEXT) AS text UNION ALL SELECT 'x'"
    with open_rows("sqlite://", query) as rows:
        assert [row.values["text"] for row in rows.rows] == ["ab\udcff", "x"]


def test_a_query_that_fails_between_its_rows_ends_them() -> None:
    """As a file that is cut off does: with a reason."""
    query = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999) "
        "SELECT json(CASE i WHEN 3000 THEN '{' ELSE i END) AS text FROM n"
    )
    with open_rows("sqlite://", query) as rows:
        assert next(rows.rows).values == {"text": "1"}
        with pytest.raises(SourceUnreadable, match="'sqlite://' cannot be read: malformed JSON"):
            list(rows.rows)


@pytest.mark.sockets
async def test_a_query_of_a_server_returns_rows(pgvector_dsn: str) -> None:
    """A colon and a percent sign in it stand for themselves."""
    async with own_schema(pgvector_dsn) as address:
        fill(address)
        with open_rows(address, QUERY) as rows:
            assert list(rows.rows) == list(map(SourceRow, (1, 2, 3), VALUES))


@pytest.mark.parametrize(
    ("address", "query", "why"),
    [
        ("a.csv", "SELECT 1", "no SQLAlchemy URL"),
        ("nosuch://u:s3cr3t@h/d", "SELECT 1", "no SQLAlchemy URL"),
        ("oracle+oracledb://u:s3cr3t@h/d", "SELECT 1", "its driver is not installed"),
        ("postgresql://u:s3cr3t@127.0.0.1:1/d", "SELECT 1", "refused"),
        ("postgresql://u:s3cr3t@127.0.0.1:1/d", None, "a database needs --query"),
        ("sqlite://", "SELECT absent", "no such column: absent"),
        ("sqlite://", "PRAGMA user_version = 1", "the query returns no rows"),
    ],
)
def test_a_database_that_answers_with_no_rows_is_no_source(
    address: str, query: str | None, why: str
) -> None:
    """The reason is named, the password is not."""
    with pytest.raises(SourceUnreadable, match=why) as refused, open_rows(address, query):
        pass
    assert "s3cr3t" not in str(refused.value)
