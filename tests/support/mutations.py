"""Changes of bytes as fuzzers make them: cut, doubled, flipped, and joined with nasty pieces."""

import random
from collections.abc import Sequence

NASTY = (
    *(b"\x00", b"\r", b"\n", b"\r\n\r\n", b"\n\n", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf"),
    *(b"{", b"[" * 2_000, b'{"a":' * 1_500, b"}", b'"', b"\\u0000", b"\\ud800", b"null", b"true"),
    *(b"-0", b"1e999", b"NaN", b"-Infinity", b"9" * 400, b"0.1", b"[]", b"{}", b'""', b"''"),
    *(b"data:", b"event:", b"id: \x00", b": ", b"[DONE]", b"http://[", b"%00", b"%ff", b"../"),
    *(b"\xc2\xb2", b"\xd9\xa3", b"x" * 5_000, b"chunked", b"gzip", b"*/*;q=x", b"=?", b"\t"),
)


def mutated(drawn: random.Random, seeds: Sequence[bytes], most: int = 4) -> bytes:
    """Return one of several seeds with one to `most` changes."""
    data = bytearray(drawn.choice(seeds))
    for _ in range(drawn.randint(1, most)):
        at = drawn.randint(0, len(data))
        to = min(len(data), at + drawn.choice((1, 2, 8, 64)))
        match drawn.randrange(6):
            case 0:
                del data[at:to]
            case 1:
                data[at:at] = data[at:to]
            case 2:
                data[at:to] = drawn.choice(NASTY)
            case 3:
                data[at:at] = drawn.choice(NASTY)
            case 4:
                other = drawn.choice(seeds)
                data[at:to] = other[drawn.randint(0, len(other)) :][: drawn.choice((4, 32, 256))]
            case _:
                if at < len(data):
                    data[at] ^= 1 << drawn.randrange(8)
    return bytes(data)
