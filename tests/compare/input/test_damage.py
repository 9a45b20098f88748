"""Damaged captures: what can be read is read, what cannot is counted and named."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from compare.captures import Question, compare_captures
from compare.input.batches import Batch, decompressed, frame_end
from compare.input.damage import Damage
from compare.input.segments import LINE_AT_MOST, CapturedLine, split_lines
from compare.tally import Tally
from compare.verdict import verdict_on
from contract.flows.chat import CHAT
from cutover.selftest.exchanges import batch, exchange, lines, store

FIRST, SECOND, THIRD = (batch(exchange(number=number)) for number in range(3))
HALF = len(FIRST) // 2


def flipped(data: bytes, at: int) -> bytes:
    """Spoil one byte."""
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


def compared(folder: Path, content: bytes, name: str = "s.jsonl.zst") -> Tally:
    """Compare a folder with one segment."""
    return compare_captures(str(store(folder, content, name=name)), Question({"chat": CHAT}))


def read(*pieces: bytes) -> list[Batch | Damage]:
    """Decompress pieces of a file."""
    return list(decompressed(pieces, "memory"))


@pytest.mark.parametrize(
    ("content", "equal", "named"),
    [
        (FIRST + flipped(SECOND, HALF) + THIRD, 2, f"batch at byte {len(FIRST)}: "),
        (FIRST + SECOND[:HALF], 1, f"batch at byte {len(FIRST)}: it does not end"),
        (FIRST + SECOND[:HALF] + THIRD, 2, f"batch at byte {len(FIRST)}: it does not end"),
        (b"", 0, "the file is empty"),
        (b"this is no zstd file, but it is longer than a header", 0, "batch at byte 0: no zstd"),
        (FIRST + b"\0" * 4096, 1, f"batch at byte {len(FIRST)}: no zstd frame begins there"),
        (b"\0" * 64 + FIRST, 1, "batch at byte 0: no zstd frame begins there"),
        (FIRST[2:] + SECOND, 1, "batch at byte 0: no zstd frame begins there"),
    ],
    ids=["flip", "cut", "cut, then more", "empty", "not zstd", "NULs", "NULs first", "no head"],
)
def test_damaged_batches_are_named_and_the_rest_is_read(
    tmp_path: Path, content: bytes, equal: int, named: str
) -> None:
    """One damage, one name: which file, which byte, and why."""
    result = compared(tmp_path, content)
    assert (result.equal, result.different, dict(result.damage)) == (equal, 0, {"torn": 1})
    [damage] = result.named
    assert damage.place.endswith("s.jsonl.zst")
    assert damage.detail.startswith(named)
    assert "1 damaged file, batch or line passed over" in verdict_on(result).reasons


WHOLE = lines(exchange(number=0))
RUN, SHADOW = WHOLE.splitlines(keepends=True)


@pytest.mark.parametrize(
    ("spoilt", "kind", "named"),
    [
        (RUN[:-40], "torn", "line 3 does not end"),
        (b"[1,2]\n", "broken", "line 3: Expected `object`, got `array`"),
        (b'{"v":1,"text":"of another shape"}\n', "broken", "line 3: Object missing"),
        (b'{"v":2,"anything":true}\n', "foreign", "line 3: version 2, not 1"),
        (b'{"v":"next"}\n', "foreign", "line 3: version 'next', not 1"),
        (RUN.replace(b'"v":1,', b'"v":2,'), "foreign", "line 3: version 2, not 1"),
        (b"\0\0\0\0\n", "broken", "line 3: "),
        (b"{oops\n", "broken", "line 3: "),
        (RUN.replace(b'"frames":[[1', b'"frames":[["1"', 1), "broken", "line 3: "),
        (RUN.replace(b'"frames":[[', b'"frames":[[9' + b"0" * 18, 1), "broken", "line 3: Expected"),
        (RUN.replace(b'"frames":[[', b'"frames":[[1,5],[', 1), "broken", "line 3: Expected `str`"),
        (RUN.replace(b'"frames":[[', b'"frames":[[1,"\\ud800"],[', 1), "broken", "line 3: "),
        (b'{"v":1,"a":' + b"[" * 9_999 + b"]" * 9_999 + b"}\n", "broken", "line 3: maximum"),
    ],
    ids=[
        "half",
        "array",
        "other shape",
        "version",
        "version text",
        "readable version",
        "NULs",
        "no JSON",
        "bad frame",
        "late",
        "number",
        "half a character",
        "deep",
    ],
)
def test_damaged_lines_are_named_and_the_rest_is_read(
    tmp_path: Path, spoilt: bytes, kind: str, named: str
) -> None:
    """Lines alone in a batch, and the same lines in a file that is not packed."""
    packed = zstandard.ZstdCompressor().compress(WHOLE + spoilt)
    result = compared(tmp_path / "packed", packed + SECOND)
    plain = compared(tmp_path / "plain", WHOLE + spoilt, name="s.jsonl")
    if spoilt.endswith(b"\n"):
        assert (result.equal, dict(result.damage)) == (2, {kind: 1})
        assert result.named[0].detail.startswith(f"batch at byte 0, {named}")
    assert (plain.equal, dict(plain.damage)) == (1, {kind: 1})
    assert plain.named[0].detail.startswith(named)


@pytest.mark.parametrize(("word", "damaged"), [("风", 2), ("助", 1)], ids=["frames", "tape"])
def test_bytes_that_are_no_text_are_damage_on_both_sides_alike(
    tmp_path: Path, word: str, damaged: int
) -> None:
    """Runs that are equal at a glance are not read, and yet not passed with what cannot be."""
    spoilt = WHOLE.replace(word.encode(), b"\xff")
    result = compared(tmp_path, spoilt, name="s.jsonl")
    assert (result.equal, result.different, dict(result.damage)) == (0, 0, {"broken": damaged})


def test_a_last_line_without_its_newline_may_be_whole(tmp_path: Path) -> None:
    """What an editor left out costs no exchange."""
    result = compared(tmp_path, WHOLE.rstrip(), name="s.jsonl")
    assert (result.equal, dict(result.damage)) == (1, {})


def test_an_exchange_that_lost_a_line_says_so(tmp_path: Path) -> None:
    """A run that is alone because its twin was damaged is no exchange without a shadow."""
    text = RUN + b"{oops\n" + lines(exchange(number=1)) + lines(exchange(number=2)[:1])
    result = compared(tmp_path, text, name="s.jsonl")
    assert result.equal == 1
    assert result.not_comparable == {"one run only, beside damage": 1, "one run only": 1}


def test_lines_of_one_exchange_around_damage_belong_together(tmp_path: Path) -> None:
    """A broken line between two runs does not part them."""
    result = compared(tmp_path, RUN + b"\xff\xfe\n" + SHADOW, name="s.jsonl")
    assert (result.equal, dict(result.damage)) == (1, {"broken": 1})


def test_the_lines_of_a_batch_that_was_cut_off_are_read(tmp_path: Path) -> None:
    """Blocks that are whole hold whole lines; the rest of the batch is lost."""
    data = b"".join(lines(exchange(number=number)) for number in range(300))
    compressor = zstandard.ZstdCompressor(level=1).compressobj()
    packed = compressor.compress(data) + compressor.flush()
    result = compared(tmp_path, packed[: len(packed) * 2 // 3])
    assert result.damage["torn"] == 1
    assert 100 < result.equal < 300


def test_a_file_that_cannot_be_opened_does_not_stop_the_others(tmp_path: Path) -> None:
    """A folder with the name of a segment, a link to nowhere."""
    store(tmp_path, FIRST)
    (tmp_path / "flow=chat" / "date=2026-11-21" / "gone.jsonl.zst").symlink_to(tmp_path / "no")
    result = compare_captures(str(tmp_path), Question({"chat": CHAT}))
    assert result.equal == 1
    assert dict(result.damage) in ({"unreadable": 1}, {})


def unsized(content: bytes) -> bytes:
    """Pack content as a stream does: its size is not known when it begins."""
    compressor = zstandard.ZstdCompressor().compressobj()
    return compressor.compress(content) + compressor.flush()


MIXED = b"".join(
    (
        FIRST,
        b"\x53\x2a\x4d\x18\x05\0\0\0hello",
        SECOND,
        zstandard.ZstdCompressor().compress(b""),
        unsized(WHOLE),
        THIRD,
    )
)


@given(st.data())
def test_batches_survive_any_cut_of_their_bytes(data: st.DataObject) -> None:
    """In pieces or at once, with what parallel compressors put between frames."""
    cuts = data.draw(st.lists(st.integers(0, len(MIXED)), max_size=8))
    pieces = [MIXED[a:b] for a, b in pairwise([0, *sorted(cuts), len(MIXED)])]
    assert read(*pieces) == read(MIXED)


def test_batches_are_read_byte_by_byte() -> None:
    """Frames to skip, empty ones and ones without a size among them."""
    found = read(*(MIXED[k : k + 1] for k in range(len(MIXED))))
    assert found == read(MIXED)
    texts = [item.data for item in found if isinstance(item, Batch)]
    assert b"".join(texts) == lines(*(exchange(number=number) for number in (0, 1, 0, 2)))
    assert len(texts) == len(found)


@pytest.mark.parametrize(
    "spoil", [lambda d: d, lambda d: d[:-9], lambda d: flipped(d, len(d) // 2)]
)
def test_a_batch_too_long_to_be_kept_is_read_as_it_comes(spoil: Callable[[bytes], bytes]) -> None:
    """What stands behind it is read, whatever has become of it."""
    text = b"".join(b"%d\n" % (k * k * 7919) for k in range(4000))
    long = spoil(zstandard.ZstdCompressor(write_checksum=True).compress(text))
    file = long + THIRD
    pieces = [file[k : k + 700] for k in range(0, len(file), 700)]
    found = list(decompressed(pieces, "memory", retained=1_000))
    whole = spoil(text) == text
    assert any(isinstance(item, Damage) for item in found) is not whole
    last = [item.data for item in found if isinstance(item, Batch)][-1]
    assert last == lines(exchange(number=2))
    if whole:
        assert (
            b"".join(item.data for item in found if isinstance(item, Batch))[: -len(last)] == text
        )


def test_a_byte_order_mark_before_plain_lines_is_taken_off(tmp_path: Path) -> None:
    """Of a file that went through an editor."""
    result = compared(tmp_path, BOM_UTF8 + WHOLE, name="s.jsonl")
    assert (result.equal, result.damage) == (1, {})


def test_a_wrong_checksum_is_named() -> None:
    """The router writes one with every batch: what decompresses to something else is not read."""
    found = read(flipped(FIRST, len(FIRST) - 1) + THIRD)
    assert [type(item) for item in found] == [Damage, Batch]
    assert isinstance(found[0], Damage)
    assert (found[0].kind, "checksum" in found[0].detail) == ("torn", True)


def test_the_end_of_a_frame_is_told_from_its_headers() -> None:
    """And that there is none yet."""
    for frame in (FIRST, unsized(WHOLE), zstandard.ZstdCompressor().compress(b"a" * 500_000)):
        assert frame_end(frame + THIRD) == len(frame)
        assert all(frame_end(frame[:k]) is None for k in range(len(frame)))
    with pytest.raises(zstandard.ZstdError):
        frame_end(b"x" * 40)


def test_a_line_without_end_is_given_up_and_named() -> None:
    """A file can be anything; memory stays bounded."""
    piece = b"x" * (LINE_AT_MOST // 4)
    batches = [Batch(None, piece) for _ in range(6)] + [Batch(None, b"\nnext\n")]
    damage, line = split_lines(batches, "memory")
    assert isinstance(damage, Damage)
    assert "line 1 is over" in damage.detail
    assert isinstance(line, CapturedLine)
    assert (line.number, line.data) == (2, b"next")
