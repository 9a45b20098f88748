"""Long texts that were stored apart are compared as if they had not been."""

from __future__ import annotations

from pathlib import Path

import msgspec
import zstandard

from compare.captures import Question, compare_captures
from compare.input.blobs import Blobs
from compare.tally import Tally
from contract.blobs import without_blobs
from contract.flows.chat import CHAT
from contract.records import PlayRecord, RunRecord, encode_run
from cutover.selftest.exchanges import Script, exchange
from router.capture.segments import SegmentStore
from router.config.schema import CaptureSettings

LONG = "这是一个很长的提示。" * 4_000
FOLDER = "flow=chat/date=2026-11-21"


def captured(folder: Path, *exchanges: tuple[RunRecord, ...]) -> SegmentStore:
    """Store exchanges as the router does: long texts become files of their own."""
    stored = SegmentStore(CaptureSettings(path=str(folder)))
    for runs in exchanges:
        written = b"".join(encode_run(without_blobs(run, stored.blob)) for run in runs)
        stored.write(FOLDER, written)
    stored.close()
    return stored


def compared(folder: Path) -> Tally:
    """Compare what a folder holds."""
    return compare_captures(str(folder), Question({"chat": CHAT}))


def test_a_difference_in_a_long_prompt_is_shown_as_text(tmp_path: Path) -> None:
    """Not as two digests."""
    captured(tmp_path, exchange(Script(system=LONG), Script(system=LONG + "冷")))
    result = compared(tmp_path)
    assert (result.different, dict(result.damage)) == (1, {})
    [cluster] = result.clusters.ordered()
    [finding] = cluster.exemplars[0].findings
    assert (cluster.kind, cluster.path) == (
        "prompt_changed",
        "model.stream@reply[].messages[].system",
    )
    assert finding.graph is not None
    assert finding.graph.endswith("冷")


def test_equal_long_prompts_need_no_blob(tmp_path: Path) -> None:
    """A blob that is not read is not fetched."""
    captured(tmp_path, exchange(Script(system=LONG)))
    for path in (tmp_path / "blobs").iterdir():
        path.unlink()
    result = compared(tmp_path)
    assert (result.equal, dict(result.damage)) == (1, {})


def test_a_blob_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    """The pair differs all the same, and the rest of it is compared."""
    long, other = Script(system=LONG), Script(system=LONG + "冷", final="Never.")
    captured(tmp_path, exchange(long, other), exchange(long, other, number=1))
    blobs = sorted((tmp_path / "blobs").iterdir())
    blobs[0].unlink()
    blobs[1].write_bytes(zstandard.ZstdCompressor().compress(b"something else"))
    result = compared(tmp_path)
    assert (result.different, dict(result.damage)) == (2, {"missing": 2})
    gone, foreign = (path.name.partition(".")[0] for path in blobs[:2])
    assert {damage.detail for damage in result.named} == {
        f"blob {gone} is not there",
        f"blob {foreign} does not hold what its name says",
    }
    assert {cluster.layer for cluster in result.clusters.ordered()} == {"text", "effects"}


def test_a_blob_that_cannot_be_unpacked_is_named(tmp_path: Path) -> None:
    """Half a file."""
    captured(tmp_path, exchange(Script(system=LONG), Script(system="冷")))
    [path] = (tmp_path / "blobs").iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    result = compared(tmp_path)
    assert dict(result.damage) == {"missing": 1}
    assert "cannot be read" in result.named[0].detail


def test_only_references_are_taken_for_one(tmp_path: Path) -> None:
    """A tool may speak of blobs of its own."""
    blobs = Blobs(f"{tmp_path}/{FOLDER}/s.jsonl.zst")
    own = msgspec.Raw(b'{"blob":"kept","bytes":4}')
    play = PlayRecord(port="tools", op="run", site="t", how="missed", args=own)
    run = msgspec.structs.replace(exchange()[1], plays=(play,))
    restored = blobs.restored(run).plays[0].args
    assert restored is not None
    assert bytes(restored) == bytes(own)
    assert not blobs.damage


def test_blobs_kept_in_memory_are_bounded(tmp_path: Path) -> None:
    """The ones used last stay."""
    size = 100_000
    texts = [f"{n}" * size for n in range(4)]
    stored = SegmentStore(CaptureSettings(path=str(tmp_path)))
    blobs = Blobs(f"{tmp_path}/{FOLDER}/s.jsonl.zst", at_most=2 * size)
    for text in texts:
        reference = {"blob": stored.blob(text.encode()), "bytes": size}
        args = msgspec.Raw(msgspec.json.encode(reference))
        play = PlayRecord(port="tools", op="run", site="t", how="missed", args=args)
        run = msgspec.structs.replace(exchange()[1], plays=(play,))
        restored = blobs.restored(run).plays[0].args
        assert restored is not None
        assert msgspec.json.decode(restored) == text
    assert len(blobs.kept) == 2
