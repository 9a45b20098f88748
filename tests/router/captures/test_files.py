"""Files of captures: written by a thread, read with their damage, swept, and forgotten."""

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutover import effect
from cutover.errors import Completed, Failed
from cutover.records import RunRecord, TapeRecord, encode
from router.captures import CaptureReader, Captures, Redactor, Store, forget
from router.captures.forget import Removed
from tests.conftest import reachable
from tests.router.captures.records import PLACES, SEEDS, entry, line, texts
from tests.support.ask import ASK, Ask, Done, Said
from tests.support.served import ask

ROOT = Path(__file__).resolve().parents[3]
DAY = date(2026, 11, 28)
AT = int(datetime(2026, 11, 28, 12, tzinfo=UTC).timestamp() * 1e6)
REDACTOR = Redactor(b"key", paths=["request.user_id"])


@pytest.fixture(params=["disk", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Return an empty store: a folder, and a bucket of a server on loopback."""
    if request.param == "disk":
        return Store(str(tmp_path / "captures"))
    url: str = request.getfixturevalue("s3")
    bucket = f"b{time.time_ns()}"
    options = {"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": url}}
    store = Store(f"s3://{bucket}/captures", options)
    store._system.mkdir(bucket)  # noqa: SLF001 - captures make no buckets
    return store


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Yield the address of an object store, for all tests of this file."""
    try:
        import s3fs  # type: ignore[import-untyped] # noqa: F401, PLC0415 - extras
        from moto.server import ThreadedMotoServer  # noqa: PLC0415
    except ImportError:
        reachable("moto's S3 server (the extras dev and s3)", ok=False)
        return
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def lines(*exchanges: str, **fields: Any) -> bytes:
    """Return lines of exchanges as they stand in a file."""
    return b"".join(encode(line(exchange=one, at=AT, **fields)) + b"\n" for one in exchanges)


async def write(store: Store, *records: RunRecord, **settings: Any) -> Captures:
    """Write lines and close."""
    async with Captures(store, REDACTOR, **settings) as captures:
        for record in records:
            captures.line(record)
    return captures


async def test_lines_are_read_as_they_were_written(store: Store) -> None:
    """One file a flow and day, named by both; read in the order of writing."""
    records = [line(exchange=f"e{n}", at=AT, flow=f"f{n % 2}") for n in range(20)]
    captures = await write(store, *records)
    assert (captures.written, captures.dropped) == (20, {})
    folders = [name.rpartition("/")[0] for name in store.names()]
    assert folders == ["flow=f0/date=2026-11-28", "flow=f1/date=2026-11-28"]
    reader = CaptureReader(store)
    assert sorted(reader, key=lambda one: int(one.exchange[1:])) == records
    assert (reader.files, reader.lines, reader.damage) == (2, 20, {})
    assert {one.flow for one in CaptureReader(store, "f1")} == {"f1"}


@pytest.mark.slow
@settings(max_examples=8)
@given(st.data())
def test_no_value_is_in_any_file(data: st.DataObject) -> None:
    """One in every place, cut anywhere, written and read: files have pseudonyms."""
    records = []
    for number, place in enumerate(PLACES.values()):
        seed = data.draw(st.sampled_from(sorted(SEEDS.values())))
        at = data.draw(st.integers(0, len(seed)))
        record = place(seed[:at], seed[at:])
        records.append(msgspec.structs.replace(record, exchange=f"e{number}"))
    with TemporaryDirectory() as folder:
        store = Store(folder)
        captures = asyncio.run(write(store, *records))
        assert captures.written == len(PLACES)
        stored = b"".join(piece for name in store.names() for piece in store.pieces(name)).decode()
        read = list(CaptureReader(store))
    assert all(one.redacted for one in read)
    for seed in SEEDS.values():
        assert seed not in stored
        assert not any(seed in text for one in read for text in texts(one))


async def test_batches_end_by_size(tmp_path: Path) -> None:
    """Lines that came later are in later files, whose names sort behind."""
    store = Store(str(tmp_path))
    await write(store, *(line(exchange=f"e{n:02}", at=AT) for n in range(9)), batch_bytes=1000)
    assert len(store.names()) > 1
    assert [one.exchange for one in CaptureReader(store)] == [f"e{n:02}" for n in range(9)]


class Failing(Store):
    """A disk that is full, or hangs until it is let go."""

    hangs: threading.Event | None = None

    def add(self, flow: str, day: date, lines: bytes) -> str:
        """Fail, or hang and then write."""
        if self.hangs is None:
            raise OSError(28, "No space left on device")
        self.hangs.wait()
        return super().add(flow, day, lines)


async def test_a_full_disk_drops_lines_and_counts_them(tmp_path: Path) -> None:
    """No exception reaches what offers them."""
    captures = await write(Failing(str(tmp_path)), line(), line(exchange="e2"))
    assert (captures.written, captures.dropped) == (0, {"store_failed": 2})


async def test_a_store_that_hangs_fills_the_queue_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offering never waits; closing has a limit; what is lost is counted."""
    monkeypatch.setattr("router.captures.writer.CLOSING_SECONDS", 0.01)
    monkeypatch.setattr("router.captures.writer.WAITING_BYTES", 10 * 4096)
    store = Failing(str(tmp_path))
    store.hangs = threading.Event()
    async with Captures(store, None, batch_seconds=0.0) as captures:
        for number in range(12):
            captures.line(line(exchange=f"e{number}"))
    captures.line(line())
    assert captures.dropped["queue_full"] >= 2
    assert captures.dropped["queue_full"] + captures.dropped["closed"] == 13
    store.hangs.set()
    await asyncio.to_thread(captures._thread.join)  # type: ignore[union-attr] # noqa: SLF001


async def test_what_cannot_be_redacted_is_not_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is dropped and counted, and the log does not hold what it was."""

    class Broken(Redactor):
        def line(self, record: RunRecord, served: TapeRecord | None = None) -> RunRecord:
            if record.exchange == "bad":
                raise ValueError("john@example.com")
            return super().line(record, served)

    async with Captures(Store(str(tmp_path)), Broken(b"k")) as captures:
        captures.line(line(exchange="bad"))
        captures.line(line(exchange="huge", at=1 << 70))
        captures.line(line(exchange="good"))
    assert captures.dropped == {"redaction_failed": 1, "not_encodable": 1}
    assert [one.exchange for one in CaptureReader(captures.store)] == ["good"]
    assert "john" not in caplog.text


# Exchanges.


async def says(words: Sequence[str]) -> AsyncIterator[Any]:
    """Say words, then be done."""
    for word in words:
        yield Said(word)
    yield Done()


async def test_a_served_exchange_and_its_shadow_are_two_lines(tmp_path: Path) -> None:
    """The serving run's line holds the tape and stands before the shadow's, without waiting."""
    async with Captures(Store(str(tmp_path)), None) as captures:
        heard = await ask(ASK, Ask("hello"), lambda _: says(["one", " two"]))
        heard.served.versions = {"code": "1.2"}
        captures.served(heard.served)
        played = await heard.shadow(lambda _: says(["one two"]))
        captures.played(heard.served, played)
    serving, shadow = CaptureReader(captures.store)
    assert (serving.role, serving.policy, serving.outcome) == ("serving", "live", Completed())
    assert (shadow.role, shadow.policy, shadow.outcome) == ("shadow", "play", Completed())
    assert serving.tape is not None
    assert shadow.tape is None
    assert (len(serving.frames), len(shadow.frames)) == (3, 2)
    assert serving.versions == shadow.versions == {"code": "1.2"}
    assert abs(serving.at - shadow.at) < 1e6
    assert json.loads(serving.request) == json.loads(shadow.request)
    assert json.loads(serving.request)["text"] == "hello"


async def test_a_shadow_does_not_say_what_a_path_hides_on_the_tape(tmp_path: Path) -> None:
    """What an effect returned is on the serving run's line, and learned for the shadow's."""

    @effect("users.name")
    async def name() -> dict[str, str]:
        return {"name": "Anna Bell"}

    async def greets(_: object) -> AsyncIterator[Any]:
        found = (await name())["name"]
        async for event in says(["Hi An", f"{found[2:]}!"]):
            yield event

    redactor = Redactor(b"k", paths=["results.name"])
    async with Captures(Store(str(tmp_path)), redactor) as captures:
        heard = await ask(ASK, Ask("hello"), greets)
        captures.served(heard.served)
        captures.played(heard.served, await heard.shadow(greets))
    serving, shadow = CaptureReader(captures.store)
    assert serving.redacted
    assert texts(serving)[0] == texts(shadow)[0]
    assert all(word not in encode(one).decode() for one in (serving, shadow) for word in ("Bell",))


async def test_a_takeover_is_a_line_for_each_run(tmp_path: Path) -> None:
    """The first holds the tape and how it failed, the second served."""

    async def breaks(_: object) -> AsyncIterator[Any]:
        yield Said("one")
        raise ZeroDivisionError

    heard = await ask(ASK, Ask("hello"), breaks, lambda _: says(["one", " two"]))
    async with Captures(Store(str(tmp_path)), None) as captures:
        captures.served(heard.served)
    first, second = CaptureReader(captures.store)
    assert isinstance(first.outcome, Failed)
    assert (second.role, second.outcome) == ("fallback", Completed())
    assert first.served == second.served == second.stack


async def test_an_exchange_over_its_limit_is_not_captured(tmp_path: Path) -> None:
    """It is counted; nothing was served of one without runs."""
    captures = Captures(Store(str(tmp_path)), None)
    heard = await ask(ASK, Ask("hello"), lambda _: says(["one"]))
    heard.served.tape.grow(1 << 30)
    captures.served(heard.served)
    heard.served.runs.clear()
    captures.served(heard.served)
    assert captures.dropped == {"tape_overflowed": 1}


# Damage.


def test_damage_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    """Torn and changed files, foreign and later lines, lines that stand twice."""
    store = Store(str(tmp_path))
    whole = [store.add("chat", DAY, lines(f"e{n}")) for n in range(5)]
    torn, changed, empty = (tmp_path / name for name in whole[:3])
    torn.write_bytes(torn.read_bytes()[:-5])
    data = bytearray(changed.read_bytes())
    data[-1] ^= 0xFF
    changed.write_bytes(bytes(data))
    empty.write_bytes(b"")
    later = lines("f1").replace(b'"v":1', b'"v":2')
    store.add("chat", DAY, lines("e3", "g1") + b'no json\n{"a":1}\n' + later + lines("g2")[:-1])
    (tmp_path / "notes.txt").write_text("not mine")
    (tmp_path / "flow=chat" / "date=2026-11-28" / "x.jsonl.zst.tmp").write_bytes(b"half")
    reader = CaptureReader(store)
    names = [one.exchange for one in reader]
    assert {"e3", "e4", "g1"} <= set(names)
    assert reader.damage == {"torn": 4, "foreign": 3, "duplicate": 1}
    assert reader.lines == len(names) == len(set(names))


def test_files_that_were_joined_are_read_to_their_end(tmp_path: Path) -> None:
    """As `cat` joins them; one that is cut off within its last part is torn."""
    store = Store(str(tmp_path))
    first, second = (tmp_path / store.add("chat", DAY, lines(name)) for name in "ab")
    first.write_bytes(first.read_bytes() + second.read_bytes() * 2)
    second.write_bytes(second.read_bytes() * 2 + second.read_bytes()[:-5])
    reader = CaptureReader(store)
    assert [one.exchange for one in reader] == ["a", "b"]
    assert reader.damage == {"torn": 1, "duplicate": 3}


def test_a_growing_store_is_followed(store: Store) -> None:
    """Each line once, as files come; it ends when it is told to."""
    stop, seen = threading.Event(), []
    rounds = iter([lambda: store.add("chat", DAY, lines("b", "c")), stop.set])
    store.add("chat", DAY, lines("a"))
    for record in CaptureReader(store).follow(stop, lambda _: next(rounds)()):
        seen.append(record.exchange)  # noqa: PERF401 - as they come
    assert seen == ["a", "b", "c"]


# Time and people.


def test_old_days_are_swept(store: Store) -> None:
    """By the date of their folder; what is not a file of captures stays."""
    for day in (date(2026, 10, 1), date(2026, 11, 20), date(2026, 11, 21), DAY):
        store.add("chat", day, lines("e"))
    assert store.sweep(7, DAY) == 2
    assert [name.split("/")[1] for name in store.names()] == ["date=2026-11-21", "date=2026-11-28"]
    assert store.sweep(7, DAY) == 0


async def test_a_writer_sweeps(tmp_path: Path) -> None:
    """When it starts; half files of killed writers go as well."""
    store = Store(str(tmp_path))
    store.add("chat", date(2020, 1, 1), lines("old"))
    half = tmp_path / "flow=chat" / f"date={datetime.now(UTC).date()}" / "x.jsonl.zst.tmp"
    half.parent.mkdir()
    half.write_bytes(b"half")
    os.utime(half, (1, 1))
    await write(store, line(at=AT), keep_days=273)
    assert not half.exists()
    assert not list((tmp_path / "flow=chat" / "date=2020-01-01").iterdir())
    assert len(store.names()) == 1


async def test_users_and_conversations_are_forgotten(store: Store) -> None:
    """By ids in requests, arguments, and where a pseudonym stands for them; others stay."""
    requests = {
        "by user": '{"user_id":"u-1","message":"hi"}',
        "by conversation": '{"session":{"id":"s-1"},"message":"hi"}',
        "another": '{"user_id":"u-2","message":"u-1 is someone else"}',
    }
    records = [
        line(exchange=name, request=request, at=AT, flow=f"f{n % 2}")
        for n, (name, request) in enumerate(requests.items())
    ]
    tape = TapeRecord((entry(canonical='{"conversation":"s-1"}'),))
    records += [
        line(exchange="by argument", at=AT, tape=tape),
        line(exchange="by address", at=AT, path="/threads/s-1/runs"),
        line(exchange="by a service's body", at=AT, request='{"content":"{\\"id\\":\\"u-1\\"}"}'),
        line(exchange="by a form", at=AT, request='{"content":"m=hi&id=u-1"}'),
        line(exchange="untouched", at=AT, flow="other"),
    ]
    await write(store, *records)
    assert "u-1" not in [json.loads(one.request).get("user_id") for one in CaptureReader(store)]
    untouched = [name for name in store.names() if "flow=other" in name]
    chats = {("f0", "s-1"), ("f1", "s-1"), ("chat", "s-1")}
    dry = forget(store, {"u-1"}, chats, REDACTOR, dry_run=True)
    assert len(list(CaptureReader(store))) == 8
    done = forget(store, {"u-1"}, chats, REDACTOR)
    assert dry == done
    assert (done.lines, done.left) == (6, [])
    assert {one.exchange for one in CaptureReader(store)} | done.exchanges == {
        *("by user", "by conversation", "by argument", "by address", "by a form"),
        *("by a service's body", "another", "untouched"),
    }
    assert {one.exchange for one in CaptureReader(store)} == {"another", "untouched"}
    assert set(untouched) <= set(store.names())
    assert forget(store, {"u-1"}, chats, REDACTOR) == Removed()


@pytest.mark.parametrize(
    ("known", "request_text"),
    [
        ("u-1", ' {"id":"u-1"}'),
        ("u-1", json.dumps({"content": json.dumps({"id": "u-1"}, indent=1).join("\n\n")})),
        ("u-1", '{"id":"u-1","id":"u-2"}'),
        ("u-1", f'{{"id":"u-1","n":{"9" * 5_000}}}'),
        ("17", '{"id":17.0}'),
    ],
    ids=["space before", "in a text, space before", "a name twice", "a long number", "a fraction"],
)
def test_a_user_is_forgotten_however_a_request_is_written(
    tmp_path: Path, known: str, request_text: str
) -> None:
    """As clients may write JSON; what stands for nothing is no id, whatever it is called."""
    store = Store(str(tmp_path))
    store.add("chat", DAY, lines("a", request=request_text))
    store.add("chat", DAY, lines("b", request='{"id":null,"message":"None, true"}'))
    assert forget(store, {known, "None", "null", "True"}, set()).exchanges == {"a"}


def test_forgetting_names_what_it_cannot_read(tmp_path: Path) -> None:
    """A torn file stays, and is said; a foreign line that holds the id goes."""
    store = Store(str(tmp_path))
    torn = store.add("chat", DAY, lines("a", request='{"id":"u-1"}'))
    (tmp_path / torn).write_bytes((tmp_path / torn).read_bytes()[:-5])
    kept = store.add("chat", DAY, b'{"old":"u-1"}\n{"old":"u-2"}\n')
    assert forget(store, {"u-1"}) == Removed(1, left=[torn])
    assert b"".join(store.pieces(kept)) == b'{"old":"u-2"}\n'


# Kills.


def kill(folder: Path, after: float, batch_seconds: float = 0.05) -> None:
    """Start a writer, kill it, and check what it has left."""
    script = Path(__file__).with_name("writer_process.py")
    process = subprocess.Popen(
        [sys.executable, script, folder, str(batch_seconds)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        text=True,
    )
    assert process.stdout is not None
    offered = [process.stdout.readline().split()]
    until = float(offered[0][1]) + after
    while float(offered[-1][1]) < until:
        offered.append(process.stdout.readline().split())
    process.kill()
    process.wait()
    offered += [one for one in map(str.split, process.stdout) if len(one) == 2]
    process.stdout.close()
    reader = CaptureReader(Store(str(folder)))
    numbers = sorted(int(one.exchange[1:]) for one in reader)
    assert reader.damage == {}
    assert numbers == list(range(len(numbers)))
    # Lost is what was younger than a batch, with a second for a machine that is busy.
    lost = [float(at) for _, at in offered[len(numbers) :]]
    assert not lost or lost[-1] - lost[0] <= batch_seconds + 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [0, *(pytest.param(one, marks=pytest.mark.nightly) for one in range(1, 30))]
)
def test_a_killed_writer_loses_its_last_batch_at_most(tmp_path: Path, number: int) -> None:
    """At any moment: no file is torn, and no line is missing before it."""
    kill(tmp_path / "captures", random.Random(number).uniform(0, 0.5))
