"""Images: the label, the bytes and the size have to agree."""

from __future__ import annotations

from hashlib import sha256

import pytest

from contract.errors import Refused
from contract.flows.companion import MOST_OF_AN_IMAGE
from rules.images import picture
from tests.pictures import JPEG, PNG, WEBP, url

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
