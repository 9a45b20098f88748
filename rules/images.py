"""Images in requests: data URLs of whole PNG, JPEG and WebP files, checked without decoding.

Bytes behind the end are accepted: cameras and editors put thumbnails and films there.
"""

from __future__ import annotations

import binascii
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from contract.errors import Refused
from contract.flows.companion import MOST_OF_AN_IMAGE

MOST_PARTS: Final = 10_000
"""Parts that are checked: encoders write them of some kilobytes."""

_PNG_BEGIN: Final = 8
_PNG_FIRST: Final = slice(12, 16)
_PNG_AROUND: Final = 12  # length, type and checksum of a chunk
_PNG_CHUNK: Final = struct.Struct(">I4s")
# Whatever stands before a marker is passed over, as decoders do.
_JPEG_MARKER: Final = re.compile(rb"[^\xff]*+\xff++(.)", re.DOTALL)
_JPEG_LENGTH: Final = struct.Struct(">H")
_JPEG_END: Final = 0xD9
_JPEG_OVER: Final = bytes((0xFF, _JPEG_END))
_JPEG_SCAN: Final = 0xDA
_JPEG_BARE: Final = frozenset({0x00, 0x01, *range(0xD0, 0xD9)})  # markers without a length
_WEBP: Final = struct.Struct("<4sI4s4sI")
_WEBP_BEGIN: Final = 8
_WEBP_FIRST: Final = frozenset({b"VP8 ", b"VP8L", b"VP8X"})


_HEAD = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+);base64", re.IGNORECASE | re.ASCII)
_LONGEST_HEAD: Final = 64
_MOST_ENCODED: Final = -(-MOST_OF_AN_IMAGE // 3) * 4
_MAGIC: Mapping[str, re.Pattern[bytes]] = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}


def png_is_whole(data: bytes) -> bool:
    """Whether its chunks go from IHDR over an IDAT to IEND."""
    at, shown = _PNG_BEGIN, False
    if data[_PNG_FIRST] != b"IHDR":
        return False
    for _ in range(MOST_PARTS):
        if at + _PNG_AROUND > len(data):
            return False
        length, kind = _PNG_CHUNK.unpack_from(data, at)
        at += length + _PNG_AROUND
        if kind == b"IEND":
            return shown and at <= len(data)
        shown = shown or kind == b"IDAT"
    return False


def jpeg_is_whole(data: bytes) -> bool:
    """Whether its segments lead to a scan, and an end stands behind that.

    The thumbnail in a segment has an end of its own. From the first scan on no marker has to be
    told from data: an end cannot stand in a scan, nor in a table between two.
    """
    at = 0
    for _ in range(MOST_PARTS):
        found = _JPEG_MARKER.match(data, at)
        if found is None:
            return False
        marker, at = found[1][0], found.end()
        if marker in _JPEG_BARE:
            continue
        if marker == _JPEG_END or at + _JPEG_LENGTH.size > len(data):
            return False
        at += _JPEG_LENGTH.unpack_from(data, at)[0]
        if marker == _JPEG_SCAN:
            return data.rfind(_JPEG_OVER, at) >= 0
    return False


def webp_is_whole(data: bytes) -> bool:
    """Whether there is as much as its RIFF header says, and room in it for its first chunk."""
    if len(data) < _WEBP.size:
        return False
    _, size, _, kind, first = _WEBP.unpack_from(data)
    whole = size + _WEBP_BEGIN
    return kind in _WEBP_FIRST and _WEBP.size + first <= whole <= len(data)


_WHOLE: Mapping[str, Callable[[bytes], bool]] = {
    "image/png": png_is_whole,
    "image/jpeg": jpeg_is_whole,
    "image/webp": webp_is_whole,
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A checked image: its type, its size in bytes, its SHA-256 in hex."""

    type: str
    size: int
    digest: str


def picture(url: str) -> Picture:
    """Check an image in a data URL; raises `Refused` 413 or 422."""
    head, comma, encoded = url.partition(",")
    declared = _HEAD.fullmatch(head) if comma and len(head) <= _LONGEST_HEAD else None
    if declared is None:
        raise Refused(422, "image_not_data_url", "an image comes as data:image/…;base64,…")
    labelled = declared["type"].lower()
    if labelled not in _MAGIC:
        raise Refused(422, "image_type", "PNG, JPEG and WebP are taken")
    if len(encoded) > _MOST_ENCODED:
        raise _too_large()
    data = _decoded(encoded)
    if len(data) > MOST_OF_AN_IMAGE:
        raise _too_large()
    if _MAGIC[labelled].match(data) is None:
        raise Refused(422, "image_type_mismatch", f"the image is none of type {labelled}")
    if not _WHOLE[labelled](data):
        raise Refused(422, "image_not_whole", "the image is broken, or breaks off")
    return Picture(labelled, len(data), sha256(data).hexdigest())


def _decoded(encoded: str) -> bytes:
    try:
        return binascii.a2b_base64(encoded, strict_mode=True)
    except ValueError as error:
        raise Refused(422, "image_not_base64", "the image is not whole base64") from error


def _too_large() -> Refused:
    return Refused(413, "image_too_large", f"at most {MOST_OF_AN_IMAGE} bytes, decoded, are taken")
