"""Ids of exchanges, their receipts, and the keys by which processes verify each other's."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.capture.segments import DiskQuota
from router.exchange_ids import (
    KEY_FILE,
    ExchangeIds,
    Receipt,
    ReceiptKeysUnusable,
    default_receipt_key,
    read_receipt_keys,
)
from router.stack import STACKS, StackName

KEY = b"a key"
IDS = ExchangeIds((KEY,))
FLOWS = ("chat", "ops", "ch")
STACK_NAMES = st.sampled_from(list(STACKS.values()))


@given(st.sampled_from(FLOWS), STACK_NAMES, st.text("0123456789abcdef", min_size=22, max_size=32))
def test_a_receipt_names_the_flow_and_the_assigned_stack(
    flow: str, assigned: StackName, drawn: str
) -> None:
    """Of 40 digits; the first ones, which may name a worker, are those drawn."""
    exchange = ExchangeIds((KEY,), lambda: drawn).new(flow, assigned)
    assert (len(exchange), exchange[:22]) == (40, drawn[:22])
    assert IDS.receipt(exchange, FLOWS) == Receipt(flow, assigned)
    assert IDS.receipt(exchange, [one for one in FLOWS if one != flow]) is None


@given(STACK_NAMES, st.integers(0, 39), st.integers(0, 15))
def test_any_digit_changed_is_refused(assigned: StackName, at: int, digit: int) -> None:
    """Of the digits or of the tag alike."""
    exchange = IDS.new("chat", assigned)
    changed = exchange[:at] + f"{digit:x}" + exchange[at + 1 :]
    assert (IDS.receipt(changed, FLOWS) is None) == (changed != exchange)


@example("\0chat\0graph")
@given(st.text(max_size=128) | st.text("0123456789abcdef", min_size=40, max_size=40))
def test_what_was_not_signed_is_refused(made_up: str) -> None:
    """Whatever it is, also in place of the digits or of the tag, or cut off."""
    exchange = IDS.new("chat", "graph")
    for odd in (made_up, exchange + made_up, exchange[:22] + made_up, made_up + exchange[22:]):
        assert (IDS.receipt(odd, FLOWS) is None) == (odd != exchange)
    assert IDS.receipt(exchange.upper(), FLOWS) is None or exchange.isdigit()


@given(st.integers(1, 4), st.integers(0, 3))
def test_every_key_verifies_and_the_first_one_signs(count: int, old: int) -> None:
    """A new key goes to the front; without the old one its receipts are refused."""
    keys = [f"key {number}".encode() for number in range(count)]
    exchange = ExchangeIds(keys[old % count :]).new("chat", "legacy")
    assert ExchangeIds(keys).receipt(exchange, FLOWS) == Receipt("chat", "legacy")
    rest = [key for key in keys if key != keys[old % count]]
    assert ExchangeIds(rest).receipt(exchange, FLOWS) is None


def test_keys_are_read_in_order() -> None:
    """Those of the variable as often as they are read; no key is used as it stands."""
    first, second = "the first of them", "the second of them"
    keys = read_receipt_keys(f" {first} ,{second},", "KEYS")
    assert keys == read_receipt_keys(f"{first},{second}", "KEYS")
    assert keys[1:] == read_receipt_keys(second, "KEYS")
    assert {len(key) for key in keys} == {32}


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "not set, or empty"), (" , ", "not set, or empty"), (f"{'k' * 16},short", "number 2")],
)
def test_keys_that_cannot_be_used_are_refused(text: str, words: str) -> None:
    """By the variable's name, and without a key in the sentence."""
    with pytest.raises(ReceiptKeysUnusable, match=words) as refused:
        read_receipt_keys(text, "KEYS")
    assert "'KEYS'" in str(refused.value)
    assert "short" not in str(refused.value)


def test_the_key_is_stored_with_the_captures(tmp_path: Path) -> None:
    """Once, for its owner alone: the next process, and one that was slower, read the same."""
    place = tmp_path / "captures"
    key = default_receipt_key(str(place), b"")
    assert default_receipt_key(str(place), b"") == key
    assert default_receipt_key(f"file://{place}", b"") == key
    assert [path.name for path in place.iterdir()] == [KEY_FILE]
    assert stat.S_IMODE((place / KEY_FILE).stat().st_mode) == 0o600


def test_the_key_is_stored_at_an_address() -> None:
    """As any fsspec URL can be."""
    place = "memory://test-exchange-ids"
    assert default_receipt_key(place, b"") == default_receipt_key(place, b"")


def test_the_key_of_pseudonyms_needs_no_file(tmp_path: Path) -> None:
    """The key in use is derived from it."""
    key = default_receipt_key(str(tmp_path), b"configured")
    assert key == default_receipt_key("elsewhere", b"configured")
    assert key != default_receipt_key("elsewhere", b"another")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [None, b"short"], ids=["no folder", "damaged"])
def test_without_a_stored_key_receipts_are_verified_by_this_process(
    tmp_path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The router serves all the same, and says so."""
    place = tmp_path / "file"
    if content is None:
        place.write_bytes(b"")
    else:
        place.mkdir()
        (place / KEY_FILE).write_bytes(content)
    assert default_receipt_key(str(place), b"") != default_receipt_key(str(place), b"")
    assert "exchanges of this process only" in caplog.text


def test_quota_and_age_leave_the_key(tmp_path: Path) -> None:
    """The oldest file of all: without it, feedback on what was served would be refused."""
    default_receipt_key(str(tmp_path), b"")
    quota = DiskQuota(str(tmp_path), 1, 1, lambda: 1e12)
    quota.take(1_000, ())
    quota.expire()
    assert (tmp_path / KEY_FILE).exists()
