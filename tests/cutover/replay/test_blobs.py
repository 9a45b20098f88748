"""Blobs: found beside the captures they belong to, and never taken for what they are not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from compare.input.blobs import BlobFolder, BlobMissing
from contract.records import RunRecord
from cutover.flows import SPECS
from cutover.replay.parts import Skipped
from cutover.replay.play import PlayOptions
from cutover.replay.replayer import Replayed, Replayer
from cutover.replay.sides import sides_of
from router.capture.segments import SegmentStore
from router.config.schema import CaptureSettings
from tests.cutover.replay.conftest import store
from tests.support.capture_files import runs, segments
from tests.support.planted_faults import PLAIN

LONG = "图" * 30_000


@pytest.fixture
def captures(alone: list[list[RunRecord]], tmp_path: Path) -> Path:
    """Return the captures of one exchange with a long text in its request."""
    (serving,) = alone[PLAIN]
    assert serving.request is not None
    body = msgspec.json.decode(serving.request.body)
    body["prompt_params"] = {"unused": LONG}
    request = msgspec.structs.replace(serving.request, body=msgspec.Raw(msgspec.json.encode(body)))
    return store([[msgspec.structs.replace(serving, request=request)]], tmp_path / "captures")


def blob_of(captures: Path) -> Path:
    """Return the one blob there is."""
    (path,) = (captures / "blobs").iterdir()
    return path


def test_a_blob_is_read_from_the_captures_of_its_segment(captures: Path) -> None:
    """Its digest is its name."""
    (segment,) = segments(captures)
    digest = blob_of(captures).name.partition(".")[0]
    assert BlobFolder(segment.as_uri()).fetch(digest) == LONG.encode()


@pytest.mark.parametrize("spoil", ["missing", "foreign", "broken"])
def test_a_blob_that_cannot_be_trusted_is_missing(captures: Path, spoil: str) -> None:
    """Gone, holding something else, or no blob at all."""
    (segment,) = segments(captures)
    path = blob_of(captures)
    digest = path.name.partition(".")[0]
    if spoil == "missing":
        path.unlink()
    elif spoil == "broken":
        path.write_bytes(b"?")
    else:
        other = SegmentStore(CaptureSettings(path=str(captures))).blob(b"something else")
        (captures / "blobs" / f"{other}.zst").replace(path)
    with pytest.raises(BlobMissing, match=digest[:12]):
        BlobFolder(segment.as_uri()).fetch(digest)


@pytest.mark.virtual
async def test_an_exchange_whose_blob_is_missing_is_skipped(captures: Path) -> None:
    """Nothing is made up; nor is it a failure of the stack."""
    (segment,) = segments(captures)
    replayer = Replayer(sides_of("legacy"), PlayOptions(), SPECS)
    fetch = BlobFolder(segment.as_uri()).fetch
    blob_of(captures).unlink()
    done = await replayer.replay(tuple(runs(captures)), fetch, {}, lambda *_: None)
    assert not isinstance(done, Replayed)
    assert done == Skipped("a blob is missing")
