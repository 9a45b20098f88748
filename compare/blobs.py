"""Blobs: long texts that were stored apart, put back where a comparison looks into them."""

from __future__ import annotations

import re
from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import fsspec
import msgspec
import zstandard

from compare.damage import Damage

if TYPE_CHECKING:
    from contract.records import EntryRecord, PlayRecord, RunRecord

KEPT_AT_MOST = 1 << 25
_REFERENCE = b'{"blob":'
_KEYS = {"blob", "bytes"}
_DIGEST = re.compile(r"[0-9a-f]{64}")
_DIGEST_BYTES = 32
_FLOW = "/flow="


class Blobs:
    """The blobs beside a segment; the ones used last are kept, up to `at_most` characters.

    What cannot be put back stays a reference, and is named once in `damage`.
    """

    def __init__(self, segment: str, at_most: int = KEPT_AT_MOST) -> None:
        self._at_most = at_most
        folder = segment.rpartition(_FLOW)[0] or segment.rpartition("/")[0]
        self._folder = f"{folder}/blobs"
        self._segment = segment
        self.kept: OrderedDict[str, str] = OrderedDict()
        self._lost: set[str] = set()
        self.damage: list[Damage] = []

    def restored(self, run: RunRecord) -> RunRecord:
        """Give a run with the long texts of its calls' arguments put back."""
        plays = tuple(self._play(play) for play in run.plays)
        tape = run.tape and tuple(self._entry(entry) for entry in run.tape)
        return msgspec.structs.replace(run, plays=plays, tape=tape)

    def _play(self, play: PlayRecord) -> PlayRecord:
        if play.args is None or _REFERENCE not in bytes(play.args):
            return play
        return msgspec.structs.replace(play, args=self._raw(play.args))

    def _entry(self, entry: EntryRecord) -> EntryRecord:
        if _REFERENCE not in bytes(entry.args):
            return entry
        return msgspec.structs.replace(entry, args=self._raw(entry.args))

    def _raw(self, raw: msgspec.Raw) -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(self._tree(msgspec.json.decode(raw))))

    def _tree(self, value: Any) -> Any:  # noqa: ANN401 (JSON)
        if isinstance(value, dict):
            if value.keys() == _KEYS and _DIGEST.fullmatch(str(value["blob"])):
                return self._text(value["blob"], value)
            return {key: self._tree(child) for key, child in value.items()}
        if isinstance(value, list):
            return [self._tree(child) for child in value]
        return value

    def _text(self, digest: str, reference: dict[str, Any]) -> str | dict[str, Any]:
        if digest not in self.kept and not self._fetched(digest):
            return reference
        self.kept.move_to_end(digest)
        text = self.kept[digest]
        while len(self.kept) > 1 and sum(map(len, self.kept.values())) > self._at_most:
            self.kept.popitem(last=False)
        return text

    def _fetched(self, digest: str) -> bool:
        """Read a blob, or note why it cannot be."""
        if digest in self._lost:
            return False
        try:
            with fsspec.open(f"{self._folder}/{digest}.zst", "rb") as file:
                content = zstandard.ZstdDecompressor().decompress(file.read())
        except FileNotFoundError:
            return self._lose(digest, "is not there")
        except (OSError, ValueError, zstandard.ZstdError) as trouble:
            return self._lose(digest, f"cannot be read: {trouble}")
        if blake2b(content, digest_size=_DIGEST_BYTES).hexdigest() != digest:
            return self._lose(digest, "does not hold what its name says")
        self.kept[digest] = content.decode("utf-8", "replace")
        return True

    def _lose(self, digest: str, why: str) -> bool:
        self._lost.add(digest)
        self.damage.append(Damage("missing", self._segment, f"blob {digest} {why}"))
        return False
