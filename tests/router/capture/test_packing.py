"""Packing: what may be done in the turn of the loop, and what another thread has to do."""

from __future__ import annotations

import msgspec
import pytest

from contract.records import EntryRecord, RequestRecord, RunRecord, decode_run
from cutover.flows import SPECS
from router.capture.redaction import Redactor
from router.capture.writer import Packed, RecordPacker, size
from router.config import compile_patterns

RAW = msgspec.Raw(b"{}")


def packing(*paths: str) -> RecordPacker:
    """Make one that redacts what these paths lead to, beside the usual."""
    return RecordPacker(Redactor(compile_patterns({}), paths, b"key"), SPECS, lambda _: "digest")


def at_once(run: RunRecord, *paths: str) -> Packed | None:
    """Pack the only run of an exchange on the spot."""
    return packing(*paths).at_once([run], size(run))


def a_run(text: str, body: bytes = b'{"message_id":"m","user_name":"Ada"}') -> RunRecord:
    """Make the record of a run that says a text."""
    return RunRecord(
        v=1,
        exchange="e",
        flow="chat",
        role="serving",
        stack="legacy",
        assigned="legacy",
        served="legacy",
        began=1_700_000_000_000_000,
        outcome="completed",
        request=RequestRecord(msgspec.Raw(body), msgspec.Raw(b"{}")),
        frames=((5, f'data: {{"step":"SEND","content":"{text}"}}\n\n'),),
    )


def test_a_short_exchange_without_anything_to_redact_is_packed_at_once() -> None:
    """As it would be otherwise."""
    found = at_once(a_run("hello"))
    assert found is not None
    assert found == packing().exchange([a_run("hello")])
    assert found.folder == "flow=chat/date=2023-11-14"
    assert [decode_run(line) for line in found.lines] == [a_run("hello")]


def test_a_name_at_its_own_place_is_replaced_at_once() -> None:
    """Where it occurs nowhere else."""
    found = at_once(a_run("hello"), "request.body.user_name")
    assert found is not None
    assert found == packing("request.body.user_name").exchange([a_run("hello")])
    assert b"Ada" not in found.lines[0]
    assert b'"redacted":true' in found.lines[0]


def test_a_tape_is_left_to_the_thread() -> None:
    """There is more in it to be looked at."""
    entry = EntryRecord(seq=0, port="p", op="o", site="s", at=0, end="complete", args=RAW)
    assert at_once(msgspec.structs.replace(a_run("hello"), tape=(entry,))) is None


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("write to ada@example.com", ()),
        ("4111 1111 1111 1111", ()),
        ("hello Ada", ("request.body.user_name",)),
        ("hello", ("frames.SEND.content",)),
        ("a" * 70_000, ()),
    ],
)
def test_all_others_are_left_to_the_thread(text: str, paths: tuple[str, ...]) -> None:
    """Those with something to redact, by what it looks like or where it is; and long ones."""
    assert at_once(a_run(text), *paths) is None


def test_a_long_request_is_left_to_the_thread() -> None:
    """Its texts become files."""
    body = b'{"message_id":"m","content":"%b"}' % (b"a" * 70_000)
    assert at_once(a_run("hello", body)) is None
    assert b'"blob":"digest"' in packing().exchange([a_run("hello", body)]).lines[0]
