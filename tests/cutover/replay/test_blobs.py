"""Blobs: found beside the captures they belong to, and never taken for what they are not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from compare.input.blobs import BlobFolder
from contract.flows import SPECS
from contract.records import RunRecord
from cutover.replay.parts import Skipped
from cutover.replay.play import PlayOptions
from cutover.replay.replayer import Replayed, Replayer
from cutover.replay.sides import sides_of
from tests.cutover.replay.conftest import store
from tests.support.capture_files import runs, segments
from tests.support.commands import run_command
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


@pytest.mark.virtual
async def test_an_exchange_whose_blob_is_missing_is_skipped(captures: Path) -> None:
    """Nothing is made up; nor is it a failure of the stack."""
    (segment,) = segments(captures)
    replayer = Replayer(sides_of("legacy"), PlayOptions(), SPECS)
    fetch = BlobFolder(segment.as_uri()).fetch
    (blob,) = (captures / "blobs").iterdir()
    blob.unlink()
    done = await replayer.replay(tuple(runs(captures)), fetch, {}, lambda *_: None)
    assert not isinstance(done, Replayed)
    assert done == Skipped("a blob is missing", unread=True)


@pytest.mark.slow
def test_captures_without_their_blobs_are_no_pass(
    captures: Path, alone: list[list[RunRecord]], tmp_path: Path
) -> None:
    """What was replayed beside them is equal, and not enough was read."""
    (sound,) = alone[PLAIN]
    store([[msgspec.structs.replace(sound, exchange="sound")]], captures)
    out = "--stack", "legacy", "--processes", "0", "-o"
    for blob in (captures / "blobs").iterdir():
        blob.unlink()
    for options in ((), ("--no-report",)):
        status, said = run_command("replay", captures, *out, tmp_path / f"{options}", *options)
        assert (status, said.splitlines()[0]) == (4, "not enough read")
        assert "damaged: missing" in said
