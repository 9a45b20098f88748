"""Redaction: what is found, wherever it stands and however it is cut."""

import itertools
import json
import re
import string
import time
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutover import normal_form
from cutover.records import FrameRecord, RunRecord, TapeRecord, decode, encode
from router.captures import PathRefused, PatternRefused, Redactor
from router.captures.kinds import BUILT_IN, NOT_FOUND, SECRETS, PatternTooSlow
from tests.router.captures.records import (
    FILL,
    PLACES,
    SEEDS,
    delta,
    entry,
    line,
    on_tape,
    sse,
    stream,
    texts,
)

KEY = b"a key of a test"
REDACTOR = Redactor(KEY)
HEXES = "0123456789abcdef" * 3

_ROWS = tomllib.loads(Path(__file__).with_name("examples.toml").read_text("utf-8"))
EXAMPLES: Mapping[str, Sequence[str]] = _ROWS["kinds"]
SECRET_EXAMPLES: Mapping[str, Sequence[str]] = {
    name: [one.format(fill=FILL, hex=HEXES, aws="IOSFODNN7EXAMPLE") for one in examples]
    for name, examples in _ROWS["secrets"].items()
}


def rows(examples: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Return pairs of a name and an example."""
    return [(name, one) for name, many in examples.items() for one in many]


def redacted(record: RunRecord) -> RunRecord:
    """Return a line as it is stored and read."""
    return decode(encode(REDACTOR.line(record)), RunRecord)


@pytest.mark.parametrize(("name", "value"), rows(EXAMPLES))
@pytest.mark.parametrize("around", ["{}", "see {}, please", "请看{}。"])
def test_kinds_are_found(name: str, value: str, around: str) -> None:
    """By themselves, and in sentences; what stands around stays."""
    message = json.dumps({"message": around.format(value)}, ensure_ascii=False)
    request = redacted(line(request=message)).request
    assert f"<{name}:" in request
    digits = re.sub(r"\W", "", value)[-6:]
    assert digits not in request
    before, after = around.split("{}")
    assert f'"{before}' in request or value.startswith("用户@")  # where does the name begin?
    assert f'{after}"' in request
    if name not in {"login", "password", "url_key"}:  # these follow something
        assert len(re.sub(r"<\w+:\w+>", "", json.loads(request)["message"])) <= len(before + after)


@pytest.mark.parametrize("between", [" ", " / ", ")", ", ", "; ", " - "])
@pytest.mark.parametrize("second", ["138 0013 8000", "415-555-2671", "+44 20 7946 0958"])
def test_two_telephone_numbers_in_a_row_are_found_whole(between: str, second: str) -> None:
    """The first may look as if it went on with the second one's area code."""
    found = redacted(line(request=json.dumps(f"call +49 30 1234567{between}{second} now")))
    left = re.sub(r"<phone:\w+>", "", json.loads(found.request))
    assert not re.search(r"\d", left)


@pytest.mark.parametrize(("name", "value"), rows(SECRET_EXAMPLES))
def test_secrets_are_found(name: str, value: str) -> None:
    """Every shape that the documents name, whole."""
    assert any(one.startswith(name) for one in SECRETS)
    message = json.loads(redacted(line(request=json.dumps({"m": f"it is {value} here"}))).request)
    assert re.search(r"<(secret|password):", message["m"])
    assert FILL[:12] not in message["m"]
    assert value[-12:] not in message["m"]


def test_every_kind_and_secret_has_examples() -> None:
    """A row of the documents is a row here."""
    assert {kind.name for kind in BUILT_IN} == set(EXAMPLES)
    for one in SECRETS:
        assert any(one.startswith(name) for name in SECRET_EXAMPLES), one


@pytest.mark.parametrize("value", NOT_FOUND.values(), ids=NOT_FOUND)
def test_what_the_documents_say_is_not_found_is_not(value: str) -> None:
    """The documents promise no more."""
    assert not REDACTOR.line(line(request=json.dumps({"m": value}))).redacted


@pytest.mark.parametrize("value", _ROWS["others"])
def test_what_is_nobodys_stays(value: str) -> None:
    """Moments, ids, amounts and pseudonyms."""
    assert not REDACTOR.line(line(request=json.dumps({"m": value}))).redacted
    if value.isdigit():
        assert not REDACTOR.line(line(request=f'{{"m":{value}}}')).redacted


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_value_is_found_wherever_it_stands(place: object, seed: str) -> None:
    """Cut in the middle where the place has two halves; a pseudonym stands for it once."""
    assert callable(place)
    at = len(seed) // 2
    found = redacted(place(seed[:at], seed[at:]))
    stored = encode(found).decode()
    assert found.redacted
    assert seed not in stored
    assert re.search(r"<[a-z_]+:[0-9a-f]{12}>", "".join([stored, *texts(found)]))
    for text in texts(found):
        assert seed not in text


SECRET_SEEDS = st.sampled_from(sorted(SEEDS.values()))
WORDS = st.text(string.ascii_lowercase + " ,.\n\"'\\你好", max_size=6)


@given(st.data())
def test_no_seeded_secret_is_stored_however_it_is_cut(data: st.DataObject) -> None:
    """Anywhere in a stream of pieces cut at random, or in any place, or both."""
    seed = data.draw(SECRET_SEEDS)
    before, after = data.draw(WORDS), data.draw(WORDS)
    text = f"{before} {seed} {after}"
    cuts = sorted({0, len(text), *data.draw(st.lists(st.integers(0, len(text)), max_size=9))})
    pieces = [text[a:b] for a, b in itertools.pairwise(cuts)]
    field = data.draw(st.sampled_from(["content", "refusal", "reasoning", "x"]))
    frames = sse(*(delta(**{field: piece}) for piece in pieces))
    place = data.draw(st.sampled_from(sorted(PLACES)))
    at = data.draw(st.integers(0, len(seed)))
    other = PLACES[place](seed[:at], seed[at:])
    answer = entry(name="model.chat", items=frames)
    both = msgspec.structs.replace(
        other,
        frames=tuple(FrameRecord.of(at, raw) for at, raw in enumerate(frames)),
        tape=TapeRecord((answer, *(other.tape.entries if other.tape else ()))),
    )
    for record in (other, both):
        found = redacted(record)
        assert seed not in encode(found).decode()
        assert all(seed not in one for one in texts(found))


def test_equal_values_stay_equal() -> None:
    """Written otherwise, in another line, cut otherwise; another key makes other pseudonyms."""
    phone, mail = "+1 (415) 555-2671", "John@Example.com"
    other = "+14155552671 john@example.com"
    one = json.loads(redacted(line(request=json.dumps({"m": f"{phone} {mail}"}))).request)["m"]
    two = json.loads(redacted(line(request=json.dumps({"m": other}))).request)["m"]
    cut = texts(redacted(stream(*(delta(content=c) for c in other))))
    assert one == two
    assert two in cut
    assert Redactor(b"another").line(line(request=json.dumps({"m": other}))).request != two


def test_a_stream_keeps_its_events_and_what_is_said_around() -> None:
    """The pseudonym goes whole where the value ends; the events are as many, at their times."""
    pieces = ["write to jo", "hn@exa", "mple.com", " soon"]
    record = stream(*(delta(content=one) for one in pieces))
    found = redacted(record)
    said = [json.loads(f.data[6:])["choices"][0]["delta"]["content"] for f in found.frames]
    assert said[0] == "write to "
    assert said[1] == ""
    assert re.fullmatch(r"<email:[0-9a-f]{12}>", said[2])
    assert said[3] == " soon"
    assert [frame.at for frame in found.frames] == [frame.at for frame in record.frames]


def test_a_line_without_personal_data_is_stored_byte_for_byte() -> None:
    """Spaces, numbers and escapes as they came, and `redacted` off."""
    record = line(
        request='{"a" : 1.10, "b":"\\u00e4 1e400"}', frames=[b'data:{"p": NaN,"t":1E5}\r\n\r\n']
    )
    assert REDACTOR.line(record) is record


def test_what_is_rewritten_stays_as_it_is_beside_the_value() -> None:
    """Fractions, spaces and escapes verbatim, no name moved."""
    record = line(
        request='{"z": 1.10, "a": -1e400, "m": "\\u00e4 john@example.com", "big": 98765432109876}'
    )
    assert re.fullmatch(
        r'\{"z": 1.10, "a": -1e400, "m": "\\u00e4 <email:\w{12}>", "big": 98765432109876\}',
        redacted(record).request,
    )


def test_a_number_stays_a_number() -> None:
    """In the request, and in JSON that is a text, so that it can still be decoded."""
    phone = 13812345678
    record = line(request=json.dumps({"phone": phone, "args": json.dumps({"to": [phone]})}))
    found = json.loads(redacted(record).request)
    assert json.loads(found["args"])["to"] == [found["phone"]]
    assert len(str(found["phone"])) == 11
    assert found["phone"] != phone


def test_paths_lead_to_what_no_pattern_knows() -> None:
    """And what they lead to is replaced wherever it stands, but not within words or as a role."""
    redactor = Redactor(KEY, paths=["request.user.name", "results.*.owner"])
    record = line(
        request=json.dumps({"user": {"name": "Anna"}, "role": "Anna", "m": "Hannah, Anna!"}),
        frames=sse(delta(content="Hi An"), delta(content="na, An"), delta(content="nabel")),
        tape=TapeRecord((entry(items=[b'[{"owner":"Bob Ray","n":1}]'], canonical='["Bob Ray"]'),)),
    )
    found = redactor.line(record)
    name = redactor.pseudonym(BUILT_IN[0], "").replace("secret", "name")
    request = json.loads(found.request)
    assert request["user"]["name"].startswith("<name:")
    assert len(request["user"]["name"]) == len(name)
    assert request["m"] == f"Hannah, {request['user']['name']}!"
    assert request["role"] == "Anna"
    said = "".join(json.loads(f.data[6:])["choices"][0]["delta"]["content"] for f in found.frames)
    assert said == f"Hi {request['user']['name']}, Annabel"
    assert found.tape is not None
    assert "Bob" not in encode(found).decode()


@pytest.mark.parametrize("name", ["小明😀", "Zoë 𝒳", 'An"na\\B', "An\u200bna", "a\u00ad\u2060b c"])
def test_a_value_is_one_however_json_spells_it(name: str) -> None:
    """In ASCII, where some characters are two escapes, and as it is."""
    spelled = [
        json.dumps({"name": name}, ensure_ascii=ascii_alone) for ascii_alone in (True, False)
    ]
    for request, said in (spelled, spelled[::-1]):
        frames = [f"data: {said.replace('name', 'content')}\n\n".encode()]
        found = Redactor(KEY, paths=["request.name"]).line(line(request=request, frames=frames))
        content = json.loads(found.frames[0].data[6:])["content"]
        assert content.startswith("<name:")
        assert content == json.loads(found.request)["name"]


def test_secrets_are_known_by_their_names() -> None:
    """Whatever their shape is; a limit of tokens is none."""
    request = {"headers": {"Authorization": "x1 y2"}, "api_key": "k", "password": "pw"}
    found = json.loads(redacted(line(request=json.dumps(request | {"max_tokens": "12"}))).request)
    assert found["headers"]["Authorization"].startswith("<secret:")
    assert found["api_key"].startswith("<secret:")
    assert found["password"].startswith("<secret:")
    assert found["max_tokens"] == "12"
    for name in (*_ROWS["secret_names"], *_ROWS["other_names"]):
        found = json.loads(redacted(line(request=json.dumps({name: "zq-ab"}))).request)
        assert (found[name] == "zq-ab") == (name in _ROWS["other_names"]), name


def test_own_patterns_are_added_replace_and_remove() -> None:
    """By name."""
    own = {"badge": r"B-\d{5}", "email": "", "phone": r"tel-\d+"}
    found = Redactor(KEY, patterns=own).line(
        line(request='{"m":"B-12345 john@example.com tel-1 13812345678"}')
    )
    assert re.fullmatch(
        r'\{"m":"<badge:\w+> john@example.com <phone:\w+> 13812345678"\}', found.request
    )


@pytest.mark.parametrize(
    ("name", "expression"), [("Bad name", "x"), ("a", "("), ("a", "x*")], ids=str
)
def test_bad_patterns_are_refused(name: str, expression: str) -> None:
    """Before anything is captured."""
    with pytest.raises(PatternRefused, match=re.escape(repr(name))):
        Redactor(KEY, patterns={name: expression})


@pytest.mark.parametrize("path", ["body.x", "request", "", "frames"])
def test_bad_paths_are_refused(path: str) -> None:
    """They name where paths begin."""
    with pytest.raises(PathRefused, match="request"):
        Redactor(KEY, paths=[path])


def test_a_value_that_a_stream_breaks_off_in_is_cut() -> None:
    """Half of what is known from elsewhere is as good as all of it."""
    record = msgspec.structs.replace(
        stream(delta(content="write to john.d"), delta(content="oe@exam")),
        request=json.dumps({"m": SEEDS["email"]}),
    )
    said = "".join(texts(redacted(record)))
    assert "john.d" not in said
    assert "write to " in said


def test_base64_is_left_alone() -> None:
    """A picture is neither searched nor changed, whatever it holds."""
    picture = "data:image/png;base64," + "QUtJQUlPU0ZPRE5ON0VYQU1QTEU" * 90 + "13812345678="
    assert not REDACTOR.line(line(request=json.dumps({"image": picture}))).redacted


def test_the_keys_of_changed_requests_fit_what_replays_will_ask() -> None:
    """A replay asks with pseudonyms: of an effect, and of a model with its dates folded."""
    asked = '{"to":"john@example.com"}'
    effect = entry(canonical=asked, key=blake2b(asked.encode(), digest_size=16).hexdigest())
    body = b'{"model":"m","messages":[{"role":"user","content":"2026-11-28 john@example.com"}]}'
    read = normal_form.read("POST", "/v1/chat/completions", "application/json", body)
    model = entry(name=read.name, canonical=read.canonical.decode(), key=read.key.hex())
    found = redacted(line(tape=TapeRecord((effect, model))))
    assert found.tape is not None
    one, two = found.tape.entries
    assert one.key == blake2b(one.canonical.encode(), digest_size=16).hexdigest()
    again = normal_form.read(
        "POST", "/v1/chat/completions", "application/json", two.canonical.encode()
    )
    assert two.key == again.key.hex()
    assert {one.key, two.key}.isdisjoint({effect.key, model.key})


def test_unchanged_requests_keep_their_keys() -> None:
    """Whatever made them."""
    found = redacted(on_tape(key="ab", items=[b'"john@example.com"']))
    assert found.tape is not None
    assert found.tape.entries[0].key == "ab"


def test_redacting_twice_changes_nothing() -> None:
    """Pseudonyms are no personal data."""
    for place in PLACES.values():
        once = redacted(place("john@exam", "ple.com or 13812345678"))
        assert msgspec.structs.replace(redacted(once), redacted=True) == once


def test_hostile_texts_take_no_longer_than_others() -> None:
    """Nested beyond every limit, or made of digits, signs and escapes alone."""
    for text in ("[" * 20_000, "1 " * 20_000, "a@" * 20_000, "\\" * 20_000, "+1" * 20_000):
        record = line(request=text, frames=[f"data: {text}\n\n".encode()])
        began = time.thread_time()
        with suppress(PatternTooSlow):  # such a line is not stored
            REDACTOR.line(record)
        assert time.thread_time() - began < 3
