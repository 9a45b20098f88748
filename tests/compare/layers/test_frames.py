"""Names a text is sent under: they count, where it is cut does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from compare.streams.dialects import find_dialect
from contract.equality import Chunking
from contract.flows import SPECS
from tests.support.recorded_bodies import causes, compared, sse

WIRE = """
framing = "sse"
terminal = ["end"]

[text]
draft = "t"
final = "t"

[reasoning]
thought = "t"

[grammar]
steps = [{ many = ["draft", "final", "thought"] }, { one = "end" }]
"""
END = sse({}, "end")


def told(*pieces: tuple[str, str]) -> bytes:
    """Send pieces of text under names."""
    return b"".join(sse({"t": text}, name) for name, text in pieces) + END


def found(
    folder: Path, legacy: bytes, graph: bytes, chunking: Chunking = "ignore"
) -> list[tuple[str, str, str]]:
    """Compare two bodies on a wire with two names for text."""
    file = folder / "wire.toml"
    file.write_text(WIRE)
    return causes(compared(folder, find_dialect(str(file), SPECS), legacy, graph, chunking))


@pytest.mark.parametrize("chunking", ["ignore", "exact"])
def test_text_sent_under_another_name_is_another_frame(tmp_path: Path, chunking: Chunking) -> None:
    """The text is equal to the letter, and a client that shows drafts otherwise sees it."""
    legacy = told(("draft", "ab"), ("final", "cd"))
    graph = told(("draft", "ab"), ("draft", "cd"))
    assert found(tmp_path, legacy, graph, chunking) == [
        ("frames", "frame_replaced", "frames[1].final→draft")
    ]


def test_under_one_name_text_is_cut_anywhere(tmp_path: Path) -> None:
    """So is reasoning, whatever comes between its pieces."""
    legacy = told(("thought", "xyz"), ("draft", "ab"), ("draft", "cd"), ("final", "ef"))
    graph = told(("thought", "x"), ("draft", "abcd"), ("thought", "yz"), ("final", "ef"))
    assert found(tmp_path, legacy, graph) == []
