"""Ids of exchanges, and the key by which processes know each other's."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.capture.segments import DiskQuota
from router.exchange_ids import KEY_FILE, ExchangeIds, exchange_key

IDS = ExchangeIds(b"a key")


def test_an_id_is_known_by_its_key() -> None:
    """Of as many digits as any; the first ones, which may name a worker, are those drawn."""
    drawn = ExchangeIds(b"a key", lambda: "abcdef" + "0" * 26).new()
    assert (len(drawn), drawn[:22]) == (32, "abcdef" + "0" * 16)
    assert IDS.drawn(drawn)
    assert not ExchangeIds(b"another key").drawn(drawn)
    assert not ExchangeIds().drawn(drawn)


@given(st.text(max_size=128) | st.text("0123456789abcdef", min_size=32, max_size=32))
def test_what_was_not_drawn_is_not_known(made_up: str) -> None:
    """Whatever it is, and also in place of the digits or of the tag of one that was."""
    drawn = IDS.new()
    assert IDS.drawn(drawn)
    for odd in (made_up, drawn + made_up, drawn[:22] + made_up, made_up + drawn[22:]):
        assert IDS.drawn(odd) == (odd == drawn)


def test_the_key_is_stored_with_the_captures(tmp_path: Path) -> None:
    """Once, for its owner alone: the next process, and one that was slower, read the same."""
    place = tmp_path / "captures"
    key = exchange_key(str(place), b"")
    assert exchange_key(str(place), b"") == key
    assert exchange_key(f"file://{place}", b"") == key
    assert [path.name for path in place.iterdir()] == [KEY_FILE]
    assert stat.S_IMODE((place / KEY_FILE).stat().st_mode) == 0o600


def test_the_key_is_stored_at_an_address() -> None:
    """As any fsspec URL can be."""
    place = "memory://test-exchange-ids"
    assert exchange_key(place, b"") == exchange_key(place, b"")


def test_a_configured_key_needs_no_file(tmp_path: Path) -> None:
    """The key in use is not the configured one, which makes pseudonyms."""
    key = exchange_key(str(tmp_path), b"configured")
    assert key == exchange_key("elsewhere", b"configured")
    assert key != exchange_key("elsewhere", b"another")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [None, b"short"], ids=["no folder", "damaged"])
def test_without_a_stored_key_ids_are_known_to_this_process(
    tmp_path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The router serves all the same, and says so."""
    place = tmp_path / "file"
    if content is None:
        place.write_bytes(b"")
    else:
        place.mkdir()
        (place / KEY_FILE).write_bytes(content)
    assert exchange_key(str(place), b"") != exchange_key(str(place), b"")
    assert "exchanges of this process only" in caplog.text


def test_quota_and_age_leave_the_key(tmp_path: Path) -> None:
    """The oldest file of all: without it, feedback on what was served would be refused."""
    exchange_key(str(tmp_path), b"")
    quota = DiskQuota(str(tmp_path), 1, 1, lambda: 1e12)
    quota.take(1_000, ())
    quota.expire()
    assert (tmp_path / KEY_FILE).exists()
