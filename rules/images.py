"""Images in requests: a data URL is read, measured and looked at before anybody is shown it."""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from contract.companion import MOST_OF_AN_IMAGE
from contract.errors import Refused
from rules.image_files import jpeg_is_whole, png_is_whole, webp_is_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_HEAD = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+);base64", re.IGNORECASE | re.ASCII)
_LONGEST_HEAD: Final = 64
_MOST_ENCODED: Final = -(-MOST_OF_AN_IMAGE // 3) * 4

_MAGIC: Mapping[str, re.Pattern[bytes]] = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
_WHOLE: Mapping[str, Callable[[bytes], bool]] = {
    "image/png": png_is_whole,
    "image/jpeg": jpeg_is_whole,
    "image/webp": webp_is_whole,
}


@dataclass(frozen=True, slots=True)
class Picture:
    """An image that was looked at: its type, its size in bytes, its SHA-256 in hex."""

    type: str
    size: int
    digest: str


def picture(url: str) -> Picture:
    """Look at a data URL; raises `Refused` 413 or 422."""
    head, comma, encoded = url.partition(",")
    said = _HEAD.fullmatch(head) if comma and len(head) <= _LONGEST_HEAD else None
    if said is None:
        raise Refused(422, "image_not_data_url", "an image comes as data:image/…;base64,…")
    labelled = said["type"].lower()
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
