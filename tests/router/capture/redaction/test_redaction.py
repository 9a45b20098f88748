"""Redaction of whole exchanges: everywhere, equal, idempotent, and nothing else changes."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import Fault
from contract.model import AssistantMessage, Chunk, ModelCall, ToolCall, ToolMessage
from contract.records import (
    ErrorRecord,
    FeedbackRecord,
    PlayRecord,
    RunRecord,
    decode_run,
    encode_run,
)
from contract.stores import FoundTurns, PutTurn, ReadHistory, StoredTurn, Turn
from contract.workers import WorkerCall, WorkerResult, WorkerUpdate
from effects.tape import Tape
from router.capture.redaction import Json, Paths, Redactor, Spot, collect, reachable
from router.config.patterns import compile_patterns, luhn
from tests.router.capture.redaction import exchanges as ex
from tests.support.records import raw

EMAIL = "li.lei@example.com"


def redacted(record: RunRecord, *paths: str) -> RunRecord:
    """Redact one record of a growing dialect."""
    return ex.redactor(*paths).exchange([record], ex.GROWING)[0]


PLACES: dict[str, RunRecord] = {
    "request": ex.run(body={"message_id": "m", "content": f"I am {EMAIL}!"}),
    "request key": ex.run(body={"message_id": "m", "prompt_params": {EMAIL: 1}}),
    "prompt": ex.run(ex.model(Chunk(text="ok"), prompt=f"Their address: {EMAIL}.")),
    "tool result": ex.run(
        ex.entry("tools", "run", ToolCall("c", "t", "{}"), {"content": f'{{"to":"{EMAIL}"}}'})
    ),
    "tool call": ex.run(ex.entry("tools", "run", ToolCall("c", "t", f'{{"to":"{EMAIL}"}}'), {})),
    "history": ex.run(
        ex.entry("conversations", "history", {}, {"turns": [{"content": f"({EMAIL})"}]})
    ),
    "fault": ex.run(ex.entry("tools", "list", {}, fault=Fault("deadline", data={"to": EMAIL}))),
    "other arguments": ex.run(
        plays=[PlayRecord(port="memory", op="write", site="s", how="nearest", args=raw([EMAIL]))]
    ),
    "nested": ex.run(
        ex.model(
            Chunk(text="ok"),
            said=msgspec.json.encode({"a": msgspec.json.encode([EMAIL]).decode()}).decode(),
        )
    ),
    "frame not of JSON": ex.run(frames=[f"data: {EMAIL}\n\n"]),
    "frame's other fields": ex.run(
        frames=[f'data: {{"step":"SEND","content":"","tool":{{"name":"{EMAIL}"}}}}\n\n']
    ),
    "frame of a careless encoder": ex.run(
        frames=['data: {"step": "SEND", "content": "li.lei\\u0040example.com"}\n\n']
    ),
    "sentence of a refusal": msgspec.structs.replace(
        ex.run(), outcome="refused", error=ErrorRecord("busy", status=409, detail=f"of {EMAIL}")
    ),
    "instruction": ex.run(ex.entry("workers", "run", WorkerCall("mail", "send", {"to": EMAIL}))),
    "progress of a worker": ex.run(
        ex.entry("workers", "run", {}, WorkerUpdate("reading"), WorkerUpdate(f"asking {EMAIL}"))
    ),
    "result of a worker": ex.run(
        ex.entry(
            "workers",
            "run",
            {},
            WorkerUpdate(result=WorkerResult(ok=True, message=EMAIL, data=[{"to": EMAIL}])),
        )
    ),
    "answer": ex.run(ex.entry("human", "answer", {}, {"action": "edit", "data": {"to": EMAIL}})),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_value_is_found_in_every_place(place: str) -> None:
    """And what comes out is a record like any other."""
    found = redacted(PLACES[place])
    assert EMAIL not in ex.stored(found)
    assert "<email:" in ex.stored(found)
    assert found.redacted
    assert decode_run(encode_run(found)) == found


@pytest.mark.parametrize("place", PLACES)
def test_redacting_again_changes_nothing(place: str) -> None:
    """A pseudonym is no personal data."""
    once = redacted(PLACES[place])
    assert redacted(once) == once


def test_equal_values_have_equal_pseudonyms_everywhere() -> None:
    """Across places, records and exchanges, for as long as the key is the same."""
    records = ex.redactor().exchange(list(PLACES.values()), ex.GROWING)
    names = {
        word
        for record in records
        for word in ex.stored(record).replace("\\", " ").split("<")
        if word.startswith("email:")
    }
    assert {name.split(">")[0] for name in names} == {"email:" + _digits(EMAIL)}


def _digits(value: str) -> str:
    found = ex.redactor().feedback(FeedbackRecord(v=1, exchange="x", score=1, at=1, comment=value))
    return (found.comment or "").removeprefix("<email:").removesuffix(">")


def test_a_name_given_by_a_path_is_found_where_no_pattern_would() -> None:
    """In prompts, answers and frames; not as part of a longer word."""
    record = ex.run(
        ex.model(*ex.text_chunks(["Hi B", "ob, Bobby 说"]), said="[Bob]: 我是Bob吗"),
        body={"message_id": "m", "user_name": "Bob", "content": "我是Bob吗"},
        frames=ex.growing_frames(["Hi B", "ob, Bobby 说"]),
    )
    found = redacted(record)
    left = ex.stored(found)
    assert "Bobby" in left
    assert "Bob" not in left.replace("Bobby", "")
    name = ex.body(found)["user_name"]
    assert name.startswith("<user_name:")
    assert ex.content(found.frames[-1][1]) == f"Hi {name}, Bobby 说"


@pytest.mark.parametrize("name", ["user", "text", "role", "message_id", "SEND", "李", "."])
def test_a_name_that_is_a_word_of_the_protocol_breaks_nothing(name: str) -> None:
    """Records stay readable whatever name a user has."""
    record = ex.run(
        ex.model(Chunk(text="行李 ok."), said=f"[{name}]: hi"),
        body={"message_id": "m", "user_name": name},
        frames=ex.growing_frames(["行李 ok."]),
    )
    found = redacted(record)
    call = msgspec.json.decode((found.tape or ())[0].args, type=ModelCall)
    assert call.messages[1].content != f"[{name}]: hi" or name == "."
    assert msgspec.json.decode((found.tape or ())[0].items[0])["text"] == "行李 ok."
    assert ex.content(found.frames[0][1]) == "行李 ok."
    body = ex.body(found)
    assert set(body) == {"message_id", "user_name"}
    assert body["user_name"].startswith("<user_name:")


def test_overlapping_matches_go_together() -> None:
    """Where two patterns see a value in part, all of it goes."""
    patterns = compile_patterns({"order": "lei@[a-z.]+/[0-9]+"})
    record = ex.run(body={"message_id": "m", "content": "x li.lei@example.com/77 y, /77"})
    found = ex.redactor(patterns=patterns).exchange([record], ex.GROWING)[0]
    text = ex.body(found)["content"]
    assert text.startswith("x <email:")
    assert text.endswith("> y, /77")
    assert "77 y" not in text


def test_numbers_stay_numbers_unless_somebody_typed_them() -> None:
    """Times and counts are not taken for telephones; a typed number is."""
    record = ex.run(
        ex.entry("clock", "now", {}, {"us": 4111111111111111}),
        ex.entry("memory", "write", {"n": 13812345678}, {"written": 13812345678}),
        body={"message_id": "m", "content": EMAIL, "prompt_params": {"tel": 13812345678, "n": 3}},
    )
    found = redacted(record)
    assert found.tape == record.tape
    params = ex.body(found)["prompt_params"]
    assert params["tel"].startswith("<phone:")
    assert params["n"] == 3


def test_data_of_a_turn_is_redacted_and_the_tape_can_be_played() -> None:
    """What patterns find in it, and what a path leads to; the time of the turn stays."""
    turn = Turn(
        message_id="m",
        role="assistant",
        content="done",
        data={"owner": "Li Lei", "disks": [{"mail": EMAIL, "gb": 4}]},
        at=1_790_000_000,
    )
    record = ex.run(
        ex.entry("conversations", "put", PutTurn(turn), StoredTurn(ok=True)),
        ex.entry("conversations", "history", ReadHistory("c", "m", 5), FoundTurns((turn,)), seq=1),
    )
    found = redacted(record, "tape.conversations.*.items.*.turns.*.data.owner")
    assert EMAIL not in ex.stored(found)
    assert "Li Lei" not in ex.stored(found)
    put, history = Tape.load(found.tape or ()).entries
    (read,) = history.items[0].turns
    assert read.data["disks"][0]["gb"] == 4
    assert read == msgspec.json.decode(put.args, type=PutTurn).turn
    assert (read.content, read.at) == ("done", 1_790_000_000)


def test_a_path_may_point_at_anything() -> None:
    """At lists, at numbers, at a streamed field, through any step."""
    record = ex.run(
        ex.entry("memory", "write", {"entries": [{"text": "likes tea", "confidence": 0.5}]}),
        frames=ex.growing_frames(["to", " you"]),
    )
    paths = ("tape.memory.*.args.entries.*.text", "tape.memory.write.args.entries.0.confidence")
    found = redacted(record, *paths, "frames.SEND.content")
    args = msgspec.json.decode((found.tape or ())[0].args)
    assert args["entries"][0]["text"].startswith("<text:")
    assert args["entries"][0]["confidence"].startswith("<confidence:")
    assert all(ex.content(text).startswith("<content:") for _, text in found.frames)


def test_a_path_takes_what_is_streamed_below_it() -> None:
    """A frame, or a chunk, as a whole: no text in it is only searched."""
    record = ex.run(ex.model(*ex.text_chunks(["Hi ", "Bob"])), frames=ex.growing_frames(["Bob"]))
    found = redacted(record, "frames.SEND", "tape.model.stream.items.*")
    assert "Bob" not in ex.stored(found)
    assert ex.content(found.frames[0][1]).startswith("<value:")


def test_a_number_at_a_path_goes_however_it_is_written() -> None:
    """A service behind an address writes JSON of its own."""
    record = ex.run(frames=['data: {"step":"SEND","content":"","salary":1e5}\n\n'])
    (found,) = ex.redactor("frames.SEND.salary").exchange([record], ex.GROWING)
    assert "1e5" not in found.frames[0][1]
    assert "<salary:" in found.frames[0][1]


def test_arguments_in_history_stay_valid_json() -> None:
    """What a model wrote comes back in the next call's messages."""
    arguments = '{"to":"li.lei@example.com","tel":13812345678,"s":"a\\"b"}'
    call = ModelCall(
        model_id="m",
        messages=(
            AssistantMessage(None, (ToolCall("c", "t", arguments),)),
            ToolMessage("c", arguments),
        ),
    )
    found = redacted(ex.run(ex.entry("model", "stream", call)))
    after = msgspec.json.decode((found.tape or ())[0].args, type=ModelCall)
    message = after.messages[0]
    assert isinstance(message, AssistantMessage)
    tree = msgspec.json.decode(message.tool_calls[0].arguments)
    assert tree["s"] == 'a"b'
    assert tree["to"].startswith("<email:")
    assert tree["tel"].startswith("<phone:")


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="@+0123456789"))


@given(texts, st.lists(texts, max_size=6), st.dictionaries(texts, texts, max_size=3))
def test_what_holds_nothing_is_left_alone(
    said: str, pieces: list[str], params: dict[str, str]
) -> None:
    """Not a byte changes, and the record is not marked."""
    record = ex.run(
        ex.model(*ex.text_chunks(pieces), said=said),
        body={"message_id": "m", "content": said, "prompt_params": params},
        frames=ex.growing_frames(pieces),
    )
    assert redacted(record) == record


@given(texts, texts)
def test_around_a_value_nothing_changes(before: str, after: str) -> None:
    """Text before and after stays byte for byte."""
    before, after = f"{before} ", f" {after}"
    record = ex.run(ex.model(*ex.text_chunks([before, EMAIL, after])))
    assert ex.streams(redacted(record))[0] == f"{before}<email:{_digits(EMAIL)}>{after}"


def test_an_image_is_not_searched_but_what_only_looks_like_one_is() -> None:
    """Base64 holds no text; a mark of a data URL hides nothing."""
    image = "data:image/png;base64," + "AKIAIOSFODNN7EXAMPLE" * 8
    body = {"message_id": "m", "image": image, "content": f"data:text/x;base64,{EMAIL}"}
    found = redacted(ex.run(body=body))
    after = ex.body(found)
    assert after["image"] == image
    assert EMAIL not in after["content"]


def test_feedback_comments_are_redacted() -> None:
    """With the same pseudonyms as the exchange."""
    record = FeedbackRecord(
        v=1, exchange="x", score=-1, at=1, comment=f"call {EMAIL} or 13812345678"
    )
    comment = ex.redactor().feedback(record).comment or ""
    assert comment.startswith(f"call <email:{_digits(EMAIL)}> or <phone:")
    silent = FeedbackRecord(v=1, exchange="x", score=1, at=1)
    assert ex.redactor().feedback(silent) is silent


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("+86 138-1234-5678", "phone"),
        ("+1 (415) 555-2671", "phone"),
        ("8613812345678", "phone"),
        ("5500 0000 0000 0004", "card"),
        ("340000000000009", "card"),
        ("110105194912310021", "id_card"),
        ("AKIAIOSFODNN7EXAMPLE", "api_key"),
        ("ghp_" + "a1" * 18, "api_key"),
        ("a.b-c@sub.example.co.uk", "email"),
    ],
)
def test_built_in_patterns_find(text: str, name: str) -> None:
    """The whole value, under its name."""
    found = compile_patterns({}).matches(f"是{text}，")
    assert (1, len(text) + 1, name) in found


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21 21:55:01",
        "4111111111111112",
        "1763762171000000",
        "138123456789",
        "a@b",
        "v1.2.3",
    ],
)
def test_built_in_patterns_pass_over(text: str) -> None:
    """Dates, stamps, numbers of the wrong length or check digit."""
    assert not compile_patterns({}).matches(f"是{text}，")


def test_luhn() -> None:
    """The example of ISO/IEC 7812-1."""
    assert luhn("17893729974")
    assert not luhn("17893729975")


NAME_PATH = "request.body.user_name"


@pytest.mark.parametrize("paths", [(), (NAME_PATH,)], ids=["nothing to redact", "a name"])
def test_a_short_exchange_is_redacted_at_once(paths: tuple[str, ...]) -> None:
    """Where nothing may match, and a name stands at its own place alone; with the same result."""
    run = ex.run(body={"message_id": "m", "user_name": "Ada"}, frames=ex.growing_frames(["hello"]))
    redactor = Redactor(compile_patterns({}), paths, ex.KEY)
    found = redactor.at_once([run], ex.GROWING)
    assert found == redactor.exchange([run], ex.GROWING)
    assert ("Ada" in ex.encoded(found[0])) is not bool(paths)
    assert found[0].redacted is bool(paths)


def test_names_of_both_people_are_redacted_by_default() -> None:
    """Of the user and of whom the model speaks as, wherever a prompt repeats them."""
    body = {"user_name": "Ada", "interlocutor": {"name": "Grace", "relation": "mother"}}
    entry = ex.entry("model", "stream", {"messages": ["You are Grace, Ada's mother."]})
    stored = ex.encoded(redacted(ex.run(entry, body=body)))
    assert "Ada" not in stored
    assert "Grace" not in stored
    assert "mother" in stored


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("write to ada@example.com", NAME_PATH),
        ("4111 1111 1111 1111", NAME_PATH),
        ("hello Ada", NAME_PATH),
        ("hello", "frames.SEND.content"),
    ],
)
def test_an_exchange_with_something_to_search_is_not_redacted_at_once(text: str, path: str) -> None:
    """By what it looks like or where it stands."""
    run = ex.run(body={"message_id": "m", "user_name": "Ada"}, frames=ex.growing_frames([text]))
    redactor = Redactor(compile_patterns({}), (path,), ex.KEY)
    assert redactor.at_once([run], ex.GROWING) is None


def test_a_tape_is_not_redacted_at_once() -> None:
    """There is more in it to be looked at."""
    assert ex.redactor().at_once([ex.run(ex.entry("p", "o", {}))], ex.GROWING) is None


NAMES = ("a", "b", "ü", 'q"', "0", "1")
trees = st.recursive(
    st.sampled_from(["x", 1, None]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=8,
)
some_paths = st.lists(
    st.lists(st.sampled_from((*NAMES, "*")), max_size=3).map(tuple), max_size=3
).map(tuple)


def found(tree: Json, paths: Paths) -> list[tuple[str, str]]:
    """Return what paths lead to."""
    spots: list[Spot] = []
    collect(spots, 0, [tree], 0, paths)
    return [(spot.pointed, spot.text) for spot in spots if spot.pointed]


@given(tree=trees, paths=some_paths, plain=st.booleans())
def test_what_is_left_out_leads_nowhere(tree: Json, paths: Paths, *, plain: bool) -> None:
    """Whether names are written as they are or in escapes."""
    left = reachable(paths, json.dumps(tree, ensure_ascii=plain).encode())
    assert found(tree, left) == found(tree, paths)


def test_a_name_that_does_not_occur_is_not_searched() -> None:
    """That is the use of it."""
    assert reachable((("user_name",),), b'{"content":"hello"}') == ()
