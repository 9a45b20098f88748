"""Images: data URLs of whole files are accepted, files that break off anywhere are refused."""

from __future__ import annotations

import struct
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contract.errors import Refused
from contract.flows.companion import MOST_OF_AN_IMAGE
from rules.images import MOST_PARTS, jpeg_is_whole, picture, png_is_whole, webp_is_whole
from tests.support.pictures import JPEG, PNG, WEBP, url

if TYPE_CHECKING:
    from collections.abc import Callable


Check = tuple[bytes, "Callable[[bytes], bool]"]

SOI, EOI = b"\xff\xd8", b"\xff\xd9"
SIGNATURE = b"\x89PNG\r\n\x1a\n"
BYTES = st.binary(max_size=40)
# What looks like an end, a part or another picture stands in the parts, too.
INSIDE = BYTES | st.sampled_from([EOI, JPEG, PNG, b"\x00\x00\x00\x00IEND\xaeB`\x82"])


def chunk(kind: bytes, data: bytes) -> bytes:
    """Write a chunk of a PNG; its checksum is not looked at."""
    return struct.pack(">I", len(data)) + kind + data + b"\x00" * 4


def segment(marker: int, data: bytes) -> bytes:
    """Write a segment of a JPEG."""
    return bytes((0xFF, marker)) + struct.pack(">H", len(data) + 2) + data


def scanned(data: bytes) -> bytes:
    """Write the data of a scan: no marker in it but restarts."""
    return data.replace(b"\xff", b"\xff\x00") + b"\xff\xd0\x12"


def riff(kind: bytes, data: bytes) -> bytes:
    """Write a WebP of one chunk."""
    inside = b"WEBP" + kind + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(inside)) + inside


PNGS = st.builds(
    lambda before, shown: b"".join(
        [
            SIGNATURE,
            chunk(b"IHDR", b"\x00" * 13),
            *(chunk(b"tEXt", data) for data in before),
            *(chunk(b"IDAT", data) for data in shown),
            chunk(b"IEND", b""),
        ]
    ),
    st.lists(INSIDE, max_size=3),
    st.lists(INSIDE, min_size=1, max_size=3),
)
TABLES = st.binary(max_size=20).map(lambda data: segment(0xC4, data.replace(b"\xff", b"")))
SCANS = st.builds(
    lambda table, head, data: table + segment(0xDA, head) + scanned(data),
    TABLES | st.just(b""),
    INSIDE,
    BYTES,
)
JPEGS = st.builds(
    lambda heads, fill, scans: b"".join(
        [SOI, *(segment(0xE1, data) for data in heads), b"\xff" * fill, *scans, EOI]
    ),
    st.lists(INSIDE, min_size=1, max_size=3),
    st.integers(0, 3),
    st.lists(SCANS, min_size=1, max_size=3),
)
WEBPS = st.builds(riff, st.sampled_from([b"VP8 ", b"VP8L", b"VP8X"]), INSIDE)
DRAWN = st.one_of(
    st.tuples(PNGS, st.just(png_is_whole)),
    st.tuples(JPEGS, st.just(jpeg_is_whole)),
    st.tuples(WEBPS, st.just(webp_is_whole)),
)


@given(DRAWN, BYTES)
@example((PNG, png_is_whole), b"")
@example((JPEG, jpeg_is_whole), EOI)
@example((WEBP, webp_is_whole), b"\x00")
def test_a_whole_one_is_whole_whatever_stands_behind_it(drawn: Check, behind: bytes) -> None:
    """Thumbnails inside and films behind are no matter."""
    data, is_whole = drawn
    assert is_whole(data)
    assert is_whole(data + behind)


@given(DRAWN, st.data())
def test_one_that_breaks_off_is_not_whole(drawn: Check, data: st.DataObject) -> None:
    """Wherever it does."""
    whole, is_whole = drawn
    assert not is_whole(whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize(
    "check", [(PNG, png_is_whole), (JPEG, jpeg_is_whole), (WEBP, webp_is_whole)]
)
def test_a_real_one_breaks_off_at_every_byte(check: Check) -> None:
    """To the last."""
    whole, is_whole = check
    assert not any(is_whole(whole[:size]) for size in range(len(whole)))


@given(st.binary(max_size=200), DRAWN)
def test_any_bytes_are_looked_at(data: bytes, drawn: Check) -> None:
    """Nothing is raised, whatever they are."""
    whole, is_whole = drawn
    for given_bytes in (data, whole[:12] + data, whole[:20] + data):
        assert is_whole(given_bytes) in {True, False}


HEAD = SIGNATURE + chunk(b"IHDR", b"\x00" * 13)
BROKEN = {
    "png: no header": SIGNATURE + chunk(b"IDAT", b"") + chunk(b"IEND", b""),
    "png: nothing shown": HEAD + chunk(b"IEND", b""),
    "png: too many parts": HEAD + chunk(b"IDAT", b"") * MOST_PARTS + chunk(b"IEND", b""),
    "jpeg: nothing shown": SOI + segment(0xE0, b"") + EOI,
    "jpeg: too many parts": SOI + segment(0xE0, b"") * MOST_PARTS + segment(0xDA, b"") + EOI,
    "webp: no picture": riff(b"XMP ", b"text"),
    "webp: a part longer than all": b"RIFF\x16\x00\x00\x00WEBPVP8 \xff\x00\x00\x00" + b"0" * 10,
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_one_is_not_whole(case: str) -> None:
    """Though it has an end."""
    checks = {"png": png_is_whole, "jpeg": jpeg_is_whole, "webp": webp_is_whole}
    assert not checks[case.partition(":")[0]](BROKEN[case])


REFUSED = [
    ("", 422, "image_not_data_url"),
    ("https://example.com/a.png", 422, "image_not_data_url"),
    ("data:image/png,abc", 422, "image_not_data_url"),
    (url(b"GIF89a", "image/gif"), 422, "image_type"),
    (url(PNG, "image/jpeg"), 422, "image_type_mismatch"),
    (url(b"hello"), 422, "image_type_mismatch"),
    (url(b""), 422, "image_type_mismatch"),
    (url(PNG[:-1]), 422, "image_not_whole"),
    (url(JPEG[:-1], "image/jpeg"), 422, "image_not_whole"),
    (url(WEBP[:-1], "image/webp"), 422, "image_not_whole"),
    (url(PNG)[:-3], 422, "image_not_base64"),
    (url(PNG) + "!", 422, "image_not_base64"),
    (url(PNG) + "é", 422, "image_not_base64"),
    (url(PNG + b"0" * MOST_OF_AN_IMAGE), 413, "image_too_large"),
    (url(PNG + b"0" * (MOST_OF_AN_IMAGE + 1 - len(PNG))), 413, "image_too_large"),
]


@pytest.mark.parametrize(
    ("data", "kind"),
    [(PNG, "image/png"), (JPEG, "image/jpeg"), (WEBP, "image/webp"), (PNG, "IMAGE/PNG")],
)
def test_an_image_is_taken(data: bytes, kind: str) -> None:
    """With its type, size and digest."""
    seen = picture(url(data, kind))
    assert (seen.type, seen.size) == (kind.lower(), len(data))
    assert seen.digest == sha256(data).hexdigest()


@pytest.mark.parametrize(("given", "status", "code"), REFUSED)
def test_an_image_is_refused(given: str, status: int, code: str) -> None:
    """With a code that says why."""
    with pytest.raises(Refused) as told:
        picture(given)
    assert (told.value.status, told.value.code) == (status, code)


def test_the_largest_image_is_taken() -> None:
    """To the byte."""
    assert picture(url(PNG.ljust(MOST_OF_AN_IMAGE, b"0"))).size == MOST_OF_AN_IMAGE
