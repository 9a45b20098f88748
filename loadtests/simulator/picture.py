"""What the simulated model sees in a picture: facts of the file, and a scene drawn from it."""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from hashlib import blake2b

import msgspec

from loadtests.simulator.draw import pick
from loadtests.simulator.language import Language

DATA_URL = re.compile(r"data:image/([a-z+.-]+);base64,(.*)", re.DOTALL)
PNG = b"\x89PNG\r\n\x1a\n"
WIDTH = slice(16, 20)
HEIGHT = slice(20, 24)


class Picture(msgspec.Struct, frozen=True):
    """A picture's kind (`png`, `jpeg`, …), bytes, size in pixels where readable, and digest."""

    kind: str
    length: int
    size: tuple[int, int] | None
    digest: bytes


def read(url: str) -> Picture:
    """Read a data URL; anything else is a picture of unknown kind, never fetched."""
    match = DATA_URL.match(url)
    raw = _decoded(match[2]) if match else b""
    size = None
    if raw.startswith(PNG) and len(raw) >= HEIGHT.stop:
        size = (int.from_bytes(raw[WIDTH], "big"), int.from_bytes(raw[HEIGHT], "big"))
    digest = blake2b(url.encode(), digest_size=16).digest()
    return Picture(match[1] if match else "unknown", len(raw), size, digest)


def describe(picture: Picture, language: Language, scenes: tuple[str, ...]) -> str:
    """Describe a picture; equal pictures are described equally."""
    size = f"{picture.size[0]}×{picture.size[1]}" if picture.size else f"{picture.length} B"
    scene = pick(picture.digest, "scene", scenes)
    kind = picture.kind.upper()
    if language == "zh":
        return f"这是一张 {kind} 图片（{size}）。{scene}"
    return f"This is a {kind} picture ({size}). {scene}"


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Base64Error:
        return b""
