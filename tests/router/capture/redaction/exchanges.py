"""Exchanges to redact, and what is left in them."""

import re
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from contract.errors import Fault
from contract.model import Chunk, ModelCall, SystemMessage, ToolCallDelta, UserMessage
from contract.records import EntryRecord, PlayRecord, RunRecord, encode_run
from contract.wire import Dialect, EventDecoder, EventNames, TextPaths
from router.capture.redaction import Json, Redactor
from router.config.patterns import Patterns
from router.config.schema import RedactionSettings
from tests.support.records import a_request, a_run, an_entry, raw

_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.)")
KEY = b"the key of these tests"

DELTAS = EventDecoder(Dialect(text={"text": "content"}, terminal=("done",)))
GROWING = EventDecoder(
    Dialect(
        event=EventNames(path="step"),
        text={"SEND": TextPaths(path="content", growth="cumulative")},
        reasoning={"SEND": TextPaths(path="reason_content", growth="cumulative")},
        terminal=("END",),
    )
)


def redactor(*paths: str, patterns: Patterns | None = None) -> Redactor:
    """Return a redactor with the built-in patterns and paths, and some more."""
    return Redactor(patterns or Patterns(), (*RedactionSettings().paths, *paths), KEY)


def entry(
    port: str, op: str, args: object, *items: object, seq: int = 0, fault: Fault | None = None
) -> EntryRecord:
    """Return a tape entry."""
    end = "error" if fault else "complete"
    return an_entry(
        *map(raw, items), seq=seq, port=port, op=op, at=1, end=end, args=raw(args), fault=fault
    )


def model(*chunks: Chunk, prompt: str = "You are kind.", said: str = "hello") -> EntryRecord:
    """Return a model's stream."""
    call = ModelCall(model_id="m", messages=(SystemMessage(prompt), UserMessage(said)))
    return entry("model", "stream", call, *chunks)


def run(
    *tape: EntryRecord,
    body: object = None,
    frames: Sequence[str] = (),
    plays: Sequence[PlayRecord] = (),
) -> RunRecord:
    """Return the record of a serving run."""
    return a_run(
        request=a_request(body or {"message_id": "m1"}),
        frames=tuple(enumerate(frames)),
        tape=tape,
        plays=tuple(plays),
    )


def delta_frames(pieces: Sequence[str]) -> list[str]:
    """Return the frames of a flow whose text comes in deltas."""
    data = [msgspec.json.encode({"content": piece}).decode() for piece in pieces]
    ends = 'event: done\ndata: {"status":"completed"}\n\n'
    return [*(f"event: text\ndata: {one}\n\n" for one in data), ends]


def plain_frames(pieces: Sequence[str]) -> list[str]:
    """Return the frames of a stream without JSON, a piece in each."""
    lines = [piece.replace("\n", "\ndata: ") for piece in pieces]
    return [": ping\n\n", *(f"data: {one}\n\n" for one in lines), "data: [END]\n\n"]


def growing_frames(pieces: Sequence[str], field: str = "content") -> list[str]:
    """Return the frames of a flow whose text grows."""
    texts = ["".join(pieces[: end + 1]) for end in range(len(pieces))]
    trees = [{"step": "SEND", "content": "", field: text} for text in texts]
    return [f"data: {msgspec.json.encode(tree).decode()}\n\n" for tree in trees]


def text_chunks(pieces: Sequence[str]) -> list[Chunk]:
    """Return chunks of text."""
    return [Chunk(at=at, text=piece) for at, piece in enumerate(pieces)]


def reasoning_chunks(pieces: Sequence[str]) -> list[Chunk]:
    """Return chunks of reasoning."""
    return [Chunk(at=at, reasoning=piece) for at, piece in enumerate(pieces)]


def audio_chunks(pieces: Sequence[str]) -> list[Chunk]:
    """Return chunks of what a tape holds as its provider wrote it."""
    return [
        Chunk(at=at, other={"audio": {"id": "a", "words": [piece, {"transcript": piece}]}})
        for at, piece in enumerate(pieces)
    ]


def argument_chunks(pieces: Sequence[str], index: int = 0) -> list[Chunk]:
    """Return chunks of a tool call's arguments."""
    return [
        Chunk(at=at, tool_calls=(ToolCallDelta(index, arguments=piece),))
        for at, piece in enumerate(pieces)
    ]


def body(record: RunRecord) -> Json:
    """Return the body of a record's request."""
    assert record.request is not None
    return msgspec.json.decode(record.request.body)


def streams(record: RunRecord) -> list[str]:
    """Return every text of a record as it is when its pieces are joined."""
    texts: list[str] = []
    for one in record.tape or ():
        trees = [msgspec.json.decode(item) for item in one.items]
        chunks = [tree for tree in trees if isinstance(tree, dict)]
        texts += (joined(chunks, "text"), joined(chunks, "reasoning"))
        texts.append("".join(call["arguments"] for tree in trees for call in calls(tree)))
        words = [tree["other"]["audio"]["words"] for tree in chunks if "other" in tree]
        texts += ["".join(one for one, _ in words), joined([two for _, two in words], "transcript")]
    texts.append("".join(content(text) for _, text in record.frames))
    texts.append("".join(text for _, text in record.frames))  # as plain text they are its pieces
    return texts


def joined(chunks: Sequence[Json], name: str) -> str:
    """Return what the pieces under a key make."""
    return "".join(chunk.get(name, "") for chunk in chunks)


def calls(tree: Json) -> list[dict[str, str]]:
    """Return the pieces of tool calls in a chunk."""
    found = tree.get("tool_calls", []) if isinstance(tree, dict) else []
    return [call for call in found if "arguments" in call]


def content(frame: str) -> str:
    """Return the text of a frame."""
    data = next((line[6:] for line in frame.split("\n") if line.startswith("data: ")), "{}")
    if not data.startswith("{"):
        return data if data != "{}" else ""
    return str(msgspec.json.decode(data).get("content", ""))


def stored(record: RunRecord) -> str:
    """Return everything that would be stored, and every joined text, escapes undone."""
    views = [encode_run(record).decode()]
    for _ in range(3):
        views.append(_ESCAPE.sub(_meaning, views[-1]))
    return "\n".join([*views, *streams(record)])


def _meaning(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else found[2]


def encoded(record: RunRecord) -> str:
    """Return the line that would be stored."""
    return encode_run(record).decode()


def pieces_of(text: str, cuts: Sequence[int]) -> list[str]:
    """Cut a text."""
    bounds = [0, *sorted(set(cuts)), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]
