"""The table at the end of an object: where its batches begin, in the seekable format of zstd."""

from __future__ import annotations

import pytest
import zstandard

from contract.capture_files import DAY, read_seek_table, seek_table

PARTS = (b"one\n", b"two and\nthree\n", b"four\n" * 100)
FRAMES = [zstandard.ZstdCompressor().compress(part) for part in PARTS]
SIZES = [(len(frame), len(part)) for frame, part in zip(FRAMES, PARTS, strict=True)]
OBJECT = b"".join((*FRAMES, seek_table(SIZES)))


def test_the_table_is_read_from_the_end() -> None:
    """The whole object, or so much of it as holds the table."""
    assert read_seek_table(OBJECT, len(OBJECT)) == SIZES
    assert read_seek_table(OBJECT[-60:], len(OBJECT)) == SIZES


def test_a_decompressor_skips_it() -> None:
    """What any zstd makes of an object is its lines."""
    reader = zstandard.ZstdDecompressor().stream_reader(OBJECT, read_across_frames=True)
    assert reader.read() == b"".join(PARTS)


@pytest.mark.parametrize(
    ("tail", "size"),
    [
        (b"", 0),
        (b"too short", 9),
        (b"".join(FRAMES), len(OBJECT)),
        (OBJECT[-40:], len(OBJECT)),
        (OBJECT, len(OBJECT) + 1),
        (OBJECT[:-1] + b"\0", len(OBJECT)),
        (OBJECT[:-5] + b"\x80" + OBJECT[-4:], len(OBJECT)),
        (b"\0" * (len(OBJECT) - 41) + OBJECT[-41:], len(OBJECT)),
        (b"\0" * 200 + seek_table([])[-9:], 209),
    ],
    ids=[
        "empty",
        "short",
        "none",
        "begins before",
        "of another object",
        "no magic",
        "with checksums",
        "frames that are none",
        "no head",
    ],
)
def test_what_is_no_table_of_the_object_is_none(tail: bytes, size: int) -> None:
    """The object is read as one then."""
    found = read_seek_table(tail, size)
    assert found is None or found == SIZES
    assert (found == SIZES) == (tail[:4] == b"\0" * 4 and size == len(OBJECT))


@pytest.mark.parametrize(
    ("path", "day"),
    [
        ("bucket/x/flow=chat/date=2026-11-18/a.jsonl.zst", "2026-11-18"),
        ("bucket/x/feedback/date=2026-11-18", "2026-11-18"),
        ("bucket/x/flow=chat/date=today/a", None),
        ("bucket/x/blobs/a.zst", None),
    ],
)
def test_the_day_of_a_path(path: str, day: str | None) -> None:
    """Of a file, and of its folder."""
    found = DAY.search(path)
    assert (found[1] if found else None) == day
