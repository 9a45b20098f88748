"""Rows of an old application: CSV, JSON lines or the result of a query, one at a time."""

from __future__ import annotations

import codecs
import csv
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import SEEK_END
from pathlib import Path, PurePath
from typing import IO, Any, Final, NamedTuple
from urllib.parse import quote

import msgspec
from sqlalchemy import URL, create_engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from compare.input.batches import decompressed
from compare.input.damage import Damage
from contract.errors import CutoverError
from contract.stores import storable
from effects.places import Place

_PIECE: Final = 1 << 18
_LONGEST: Final = 1 << 24
"""Bytes of a line, and characters of a CSV field, whose closing quote is missing beyond."""
_FETCHED: Final = 1_000
_DELIMITERS: Final = {".csv": ",", ".tsv": "\t"}
_JSON_LINES: Final = frozenset({".jsonl", ".ndjson"})

_object = msgspec.json.Decoder(dict[str, Any])


class SourceRow(NamedTuple):
    """A row by its columns; `line` is where it begins in a file, or its number in a result.

    With a `fault` it could not be read, and has no values.
    """

    line: int
    values: Mapping[str, Any]
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Rows:
    """Where rows come from, and the rows, which can be read once.

    `columns` is None where each row names its own. `size` and `position()` are in bytes, None
    where there is no telling.
    """

    name: str
    columns: tuple[str, ...] | None
    rows: Iterator[SourceRow]
    size: int | None = None
    position: Callable[[], int | None] = lambda: None


class SourceUnreadable(CutoverError):
    """Rows cannot be read, or not to their end."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name!r} cannot be read: {reason}")


@contextmanager
def open_rows(source: str, query: str | None = None) -> Iterator[Rows]:
    """Open a file (a path or fsspec URL), or a database (an SQLAlchemy URL) for a query.

    Reading raises `SourceUnreadable` where something is cut off or fails, and `OSError`.
    """
    if query is not None:
        with _result(source, query) as rows:
            yield rows
        return
    suffixes = PurePath(source).suffixes
    compression = suffixes.pop() if suffixes and suffixes[-1] in {".gz", ".zst"} else ""
    kind = suffixes[-1] if suffixes else ""
    if kind not in _JSON_LINES and kind not in _DELIMITERS:
        known = ", ".join((*_DELIMITERS, *sorted(_JSON_LINES)))
        raise SourceUnreadable(
            _without_password(source),
            f"known are {known}, each also .gz or .zst; a database needs --query",
        )
    with _opened(source) as file:
        sized = file.seekable()
        size = file.seek(0, SEEK_END) if sized else None
        if sized:
            file.seek(0)
        lines = _lines(_plain(file, compression, source))
        columns: tuple[str, ...] | None = None
        if kind in _JSON_LINES:
            found = _from_json(lines)
        else:
            columns, found = _from_csv(lines, source, _DELIMITERS[kind])
        yield Rows(source, columns, found, size, file.tell if sized else lambda: None)


def _opened(source: str) -> IO[bytes]:
    if "://" not in source:
        return Path(source).open("rb")
    try:
        place = Place(source)
    except (ValueError, ImportError) as error:
        raise SourceUnreadable(_without_password(source), str(error)) from error
    return place.open(place.root)


def _plain(file: IO[bytes], compression: str, name: str) -> Iterator[bytes]:
    """Yield a file's content, decompressed."""
    pieces = iter(lambda: file.read(_PIECE), b"")
    match compression:
        case ".zst":
            for part in decompressed(pieces, name, retained=_PIECE):
                if isinstance(part, Damage):
                    raise SourceUnreadable(name, f"{part.place}: {part.detail}")
                yield part.data
        case ".gz":
            try:
                with gzip.open(file) as opened:
                    yield from iter(lambda: opened.read(_PIECE), b"")
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise SourceUnreadable(name, str(error)) from error
        case _:
            yield from pieces


def _lines(pieces: Iterable[bytes]) -> Iterator[str | None]:
    """Yield lines with their ends, None for one of more than `_LONGEST` bytes.

    Bytes that are no UTF-8 become lone surrogates.
    """
    held, mark = b"", codecs.BOM_UTF8
    for piece in pieces:
        first, *others = piece.split(b"\n")
        if len(held) <= _LONGEST:  # of a longer line the rest is passed over
            held += first
        for line in others:
            yield _decoded(held.removeprefix(mark) + b"\n")
            held, mark = line, b""
    if held:
        yield _decoded(held.removeprefix(mark))


def _decoded(line: bytes) -> str | None:
    return line.decode("utf-8", "surrogateescape") if len(line) <= _LONGEST else None


def _from_json(lines: Iterator[str | None]) -> Iterator[SourceRow]:
    for number, line in enumerate(lines, 1):
        if line is None:
            yield SourceRow(number, {}, f"longer than {_LONGEST} bytes")
        elif line.strip():
            try:
                yield SourceRow(number, _object.decode(line))
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                yield SourceRow(number, {}, "no JSON object in UTF-8")


def _from_csv(
    lines: Iterator[str | None], name: str, delimiter: str
) -> tuple[tuple[str, ...], Iterator[SourceRow]]:
    csv.field_size_limit(_LONGEST)
    # What stands for a line that is too long is refused, in quotes and outside.
    known = ("x" * (_LONGEST + 1) if line is None else line for line in lines)
    reader = csv.reader(known, delimiter=delimiter, strict=True)
    try:
        header = next(reader, None)
    except csv.Error as error:
        raise SourceUnreadable(name, f"line 1: {error}") from error
    if not header:
        raise SourceUnreadable(name, "line 1: no columns; the first line names them")
    if not all(map(storable, header)):
        raise SourceUnreadable(name, "line 1 is no UTF-8: convert the file, with iconv, say")

    def rows() -> Iterator[SourceRow]:
        while True:
            line = reader.line_num + 1
            try:
                fields = next(reader, None)
            except csv.Error as error:
                last = reader.line_num
                extent = f", in one row of the lines {line} to {last}" if last > line else ""
                yield SourceRow(line, {}, f"{error}{extent}")
                continue
            if fields is None:
                return
            if len(fields) == len(header):
                yield SourceRow(line, dict(zip(header, fields, strict=True)))
            elif fields:
                why = f"{len(fields)} fields where the first line names {len(header)} columns"
                yield SourceRow(line, {}, why)

    return tuple(header), rows()


@contextmanager
def _result(address: str, query: str) -> Iterator[Rows]:
    name = _without_password(address)
    try:
        engine = create_engine(_for_reading(make_url(address)))
    except (ArgumentError, NoSuchModuleError) as error:
        raise SourceUnreadable(name, "no SQLAlchemy URL, such as postgresql://…") from error
    except ImportError as error:
        raise SourceUnreadable(name, f"its driver is not installed: {error}") from error
    with _translated(name), ExitStack() as stack:
        stack.callback(engine.dispose)
        connection = stack.enter_context(engine.connect())
        if engine.name == "sqlite":  # one text that is no UTF-8 would end the result
            driver: Any = connection.connection.driver_connection
            driver.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
        # A colon or a percent sign in the query is meant as it stands.
        streamed = connection.execution_options(yield_per=_FETCHED, no_parameters=True)
        result = stack.enter_context(streamed.exec_driver_sql(query))
        if not result.returns_rows:
            raise SourceUnreadable(name, "the query returns no rows")
        columns = tuple(result.keys())

        def found() -> Iterator[SourceRow]:
            with _translated(name):
                for at, row in enumerate(result, 1):
                    yield SourceRow(at, dict(zip(columns, row, strict=True)))

        yield Rows(name, columns, found())


def _for_reading(url: URL) -> URL:
    """Return the URL that opens a file of SQLite for reading: by default it would be created."""
    path = url.database
    if url.get_backend_name() != "sqlite" or not path or path.startswith((":", "file:")):
        return url
    return url.set(database=f"file:{quote(path)}", query={"mode": "ro", "uri": "true"})


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        # Without the statement and the link to a page that the library adds.
        reason = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        raise SourceUnreadable(name, reason) from error


def _without_password(address: str) -> str:
    try:
        return make_url(address).render_as_string(hide_password=True)
    except ArgumentError:
        return address
