"""Scripts: every row of the answers' table, always the same, and when chunks are due."""

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.simulator import (
    Complete,
    Cut,
    Ending,
    ErrorEvent,
    HttpError,
    NoDone,
    Profile,
    Reset,
    SilentBeforeFirst,
    Stall,
    script_for,
)
from loadtests.simulator.script import TimedChunk, due_times, merged_chunks
from tests.loadtests.simulator.asking import (
    ALL,
    asked,
    called,
    calls,
    choices,
    events,
    finish,
    parts,
    text,
)

PLAIN = Profile()
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)
PROFILES = st.builds(
    Profile,
    ttft_ms=st.integers(0, 500),
    rate=st.integers(0, 500),
    jitter_ms=st.integers(0, 100),
    tokens=st.integers(0, 80),
    chunk=st.integers(1, 5),
    reasoning=st.integers(0, 20),
    split=st.booleans(),
    ending=st.sampled_from([Complete(), NoDone(), Cut(3), Stall(0), ErrorEvent(500)]),
)


@given(st.text(), PROFILES)
def test_the_same_request_always_gets_the_same_bytes(content: str, profile: Profile) -> None:
    """A script is a function of request and profile; its moments never go back."""
    script = script_for(asked(content, offer=ALL), profile)
    assert script == script_for(asked(content, offer=ALL), profile)
    due = [chunk.due_us for chunk in script.chunks]
    assert due == sorted(due)


@pytest.mark.slow
def test_another_process_says_the_same() -> None:
    """Nothing comes from Python's salted `hash()`."""
    code = (
        "from tests.loadtests.simulator.test_script import PLAIN, asked, script_for\n"
        "print(script_for(asked('How do I grow tomatoes?'), PLAIN).chunks[0].wire.hex())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7"},
    )
    wire = script_for(asked("How do I grow tomatoes?"), PLAIN).chunks[0].wire
    assert ran.stdout.strip() == wire.hex()


@given(st.text())
def test_stream_and_body_say_the_same(content: str) -> None:
    """Text, calls, finish reason, usage and id do not depend on streaming."""
    usage = {"include_usage": True}
    streamed = script_for(asked(content, offer=ALL, stream_options=usage), PLAIN)
    whole = script_for(asked(content, offer=ALL, stream=False), PLAIN)
    body = msgspec.json.decode(whole.chunks[0].wire)
    choice = body["choices"][0]
    assert (choice["message"]["content"] or "") == text(streamed)
    assert choice["finish_reason"] == finish(streamed)
    assert [
        (call["function"]["name"], call["function"]["arguments"])
        for call in choice["message"].get("tool_calls", [])
    ] == calls(streamed)
    assert events(streamed)[-1]["usage"] == body["usage"]
    assert events(streamed)[0]["id"] == body["id"]


@pytest.mark.parametrize(
    ("question", "word"),
    [("How do I grow tomatoes on a balcony?", "tomatoes"), ("怎么在阳台上种番茄？", "番茄")],
)
def test_plain_answers_take_up_the_question(question: str, word: str) -> None:
    """Prose in the language of the question, 40 to 64 deltas, with its words."""
    script = script_for(asked(question), PLAIN)
    assert word in text(script)
    assert finish(script) == "stop"
    assert 40 <= len([choice for choice in choices(script) if choice.delta.content]) <= 64


@given(st.integers(1, 300), st.integers(1, 7))
def test_the_number_of_tokens_can_be_set(tokens: int, chunk: int) -> None:
    """`tokens` tokens come in deltas of `chunk`."""
    script = script_for(asked("How do I grow tomatoes?"), Profile(tokens=tokens, chunk=chunk))
    said = [choice for choice in choices(script) if choice.delta.content]
    assert len(said) == -(-tokens // chunk)


def test_a_stream_has_the_shape_of_real_ones() -> None:
    """Role, text, finish, usage without choices, `[DONE]`."""
    request = asked("Hello there", stream_options={"include_usage": True})
    script = script_for(request, PLAIN)
    read = events(script)
    first, *_, last = choices(script)
    assert (first.delta.role, first.delta.content) == ("assistant", "")
    assert last.finish_reason == "stop"
    assert read[-1]["choices"] == []
    assert all(event["usage"] is None for event in read[:-1])
    assert script.chunks[-1].wire.endswith(b"data: [DONE]\n\n")


def test_without_include_usage_there_is_no_usage() -> None:
    """No chunk mentions usage."""
    assert all("usage" not in event for event in events(script_for(asked("Hello there"), PLAIN)))


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is 12 * (3 + 4)?", [("calculate", '{"expression":"12 * (3 + 4)"}')]),
        ("15 加 27 是多少？", [("calculate", '{"expression":"15 + 27"}')]),
        ("现在几点了？", [("current_time", "{}")]),
        ("what time is it in Tokyo?", [("current_time", '{"zone":"Asia/Tokyo"}')]),
        (
            "5 公斤等于多少磅？",
            [("convert_units", '{"value":5,"from_unit":"kg","to_unit":"lb"}')],
        ),
        ("你还记得我的猫吗？", [("search_memory", '{"query":"还记得我的猫吗"}')]),
        ("use no such tool", [("no_such_tool", "{}")]),
        ("参数写坏", [("calculate", '{"expression": ')]),
    ],
)
def test_tasks_become_calls(question: str, expected: list[tuple[str, str]]) -> None:
    """What a text asks of a tool is called, in both languages."""
    script = script_for(asked(question, offer=ALL), PLAIN)
    assert calls(script) == expected
    assert finish(script) == "tool_calls"


def test_several_tasks_are_called_at_once_and_interleaved() -> None:
    """Ids and names only in the first part of an index; arguments in several, taking turns."""
    question = "What is 12 * 7, what time is it in Paris, and how many miles is 42 km?"
    streamed = parts(script_for(asked(question, offer=ALL), PLAIN))
    assert [part.function.name for part in streamed[:3]] == [
        "calculate",
        "current_time",
        "convert_units",
    ]
    assert all(part.id is None and part.function.name is None for part in streamed[3:])
    assert [part.index for part in streamed[3:9]] == [0, 1, 2, 0, 1, 2]
    assert len({part.id for part in streamed[:3]}) == 3


@pytest.mark.parametrize(("kind", "different"), [("missing", 1), ("duplicate", 1), ("unique", 2)])
def test_ids_of_calls_can_be_wrong(kind: str, different: int) -> None:
    """Some providers leave ids out or repeat them."""
    profile = msgspec.convert({"call_ids": kind}, Profile)
    streamed = parts(script_for(asked("3 + 4 and 5 + 6", offer=ALL), profile))
    assert len({part.id for part in streamed[:2]}) == different
    assert (streamed[0].id is None) == (kind == "missing")


def test_results_are_quoted() -> None:
    """After the tools have answered, the model tells their results and is done."""
    round_ = called(("c1", "calculate", '{"expression":"12 * 7"}'), result="84")
    script = script_for(asked("What is 12 * 7?", *round_, offer=ALL), PLAIN)
    assert text(script).startswith("The result is 84.")
    assert finish(script) == "stop"


def test_failed_tools_are_quoted_as_failed() -> None:
    """An error result is not presented as a result."""
    round_ = called(("c1", "calculate", '{"expression":"1 / 0"}'), result="Error: tool_failed")
    script = script_for(asked("1 / 0 等于多少", *round_, offer=ALL), PLAIN)
    assert text(script).startswith("这一次没有成功（Error: tool_failed）。")


def test_then_means_another_round_that_knows_the_result() -> None:
    """Chained tasks are called one round after the other."""
    question = "先算 15 加 27，然后再把结果乘以 3"
    round_ = called(("c1", "calculate", "{}"), result="42")
    assert calls(script_for(asked(question, offer=ALL), PLAIN)) == [
        ("calculate", '{"expression":"15 + 27"}')
    ]
    second = asked(question, *round_, offer=ALL)
    assert calls(script_for(second, PLAIN)) == [("calculate", '{"expression":"42 * 3"}')]
    assert not calls(script_for(asked(question, *round_, *round_, offer=ALL), PLAIN))


def test_some_questions_have_no_last_round() -> None:
    """Only the client's limit of rounds ends them."""
    rounds = called(("c1", "current_time", "{}"), result="12:00") * 7
    assert calls(script_for(asked("keep checking", *rounds, offer=ALL), PLAIN))
    ended = asked("keep checking", *rounds, offer=ALL, tool_choice="none")
    assert not calls(script_for(ended, PLAIN))


def test_tools_not_offered_are_not_called() -> None:
    """No tools, other tools, or `tool_choice: "none"`: text."""
    question = "What is 12 * 7?"
    assert not calls(script_for(asked(question), PLAIN))
    assert not calls(script_for(asked(question, offer=("current_time",)), PLAIN))
    assert not calls(script_for(asked(question, offer=ALL, tool_choice="none"), PLAIN))


def test_a_demanded_call_is_made() -> None:
    """`tool_choice` may demand any call, or one by name, though nothing in the text does."""
    named = {"type": "function", "function": {"name": "current_time"}}
    anything = script_for(asked("Hello", offer=ALL, tool_choice="required"), PLAIN)
    one = script_for(asked("Hello", offer=ALL, tool_choice=named), PLAIN)
    assert calls(anything) == [("calculate", "{}")]
    assert calls(one) == [("current_time", "{}")]


def test_some_calls_have_text_before_them() -> None:
    """Content and calls in one answer, for some requests and not for others."""
    scripts = [script_for(asked(f"What is 12 * {n}?", offer=ALL), PLAIN) for n in range(20)]
    prefaced = [script for script in scripts if text(script)]
    assert 0 < len(prefaced) < len(scripts)
    assert all(calls(script) for script in scripts)


@pytest.mark.parametrize("question", ["写一篇很长的小说", "Tell me a very long story"])
def test_long_answers_end_by_length(question: str) -> None:
    """After the provider's limit, or the request's smaller one."""
    assert finish(script_for(asked(question), PLAIN)) == "length"
    short = script_for(asked(question, max_tokens=7), PLAIN)
    assert len([choice for choice in choices(short) if choice.delta.content]) == 7
    assert text(script_for(asked(question), PLAIN)).startswith(text(short))


def test_any_answer_ends_by_length_when_it_must() -> None:
    """`max_tokens` cuts a plain answer too; usage says what was sent."""
    usage = {"include_usage": True}
    script = script_for(asked("Hello", max_completion_tokens=5, stream_options=usage), PLAIN)
    assert finish(script) == "length"
    counted = msgspec.convert(events(script)[-1]["usage"], dict[str, object])
    assert counted["completion_tokens"] == 5


@pytest.mark.parametrize("question", ["聊聊违禁话题", "Let us enter a Forbidden Topic"])
def test_refused_topics_end_by_the_filter(question: str) -> None:
    """Some text, then `content_filter`, even where tools could be called."""
    script = script_for(asked(question + " 1 + 1", offer=ALL), PLAIN)
    assert finish(script) == "content_filter"
    assert text(script)


def test_reasoning_comes_first() -> None:
    """In the field the profile names, with null content."""
    thinking = script_for(asked("Hello there"), Profile(reasoning=9))
    thoughts = [choice for choice in choices(thinking) if choice.delta.reasoning_content]
    assert len(thoughts) == 9
    assert choices(thinking)[1 : 1 + 9] == thoughts
    assert text(thinking) == text(script_for(asked("Hello there"), PLAIN))
    other = script_for(asked("Hello there"), Profile(reasoning=9, reasoning_field="reasoning"))
    assert choices(other)[1].delta.reasoning


def test_pictures_are_described() -> None:
    """The same picture is described in the same way, with its size."""
    content = [
        {"type": "text", "text": "What is in the picture?"},
        {"type": "image_url", "image_url": {"url": PIXEL}},
    ]
    request = asked("", messages=[{"role": "user", "content": content}])
    assert "PNG picture (1×1)" in text(script_for(request, PLAIN))


@pytest.mark.parametrize("url", ["http://127.0.0.1/cat.png", "data:image/webp;base64,###"])
def test_pictures_that_cannot_be_read_are_described_too(url: str) -> None:
    """Nothing is fetched, nothing fails."""
    content = [{"type": "image_url", "image_url": {"url": url}}]
    request = asked("", messages=[{"role": "user", "content": content}])
    assert "(0 B)" in text(script_for(request, PLAIN))


def test_json_answers_are_json() -> None:
    """With a response format the text is one object."""
    script = script_for(
        asked("Summarise the harvest", response_format={"type": "json_object"}), PLAIN
    )
    assert set(msgspec.json.decode(text(script))) == {
        "answer",
        "language",
        "topics",
        "confidence",
        "memories",
    }


@pytest.mark.parametrize(
    ("ending", "deltas", "finished", "done"),
    [
        (Complete(), 64, True, True),
        (NoDone(), 64, True, False),
        (Cut(0), 0, False, False),
        (Cut(10), 10, False, False),
        (Stall(10), 10, False, False),
        (Cut(999), 64, False, False),
        (ErrorEvent(10), 10, False, False),
    ],
)
def test_endings_of_streams(ending: Ending, deltas: int, *, finished: bool, done: bool) -> None:
    """A fault strikes after so many deltas; all of them begin like the whole answer."""
    script = script_for(asked("Hello there"), Profile(tokens=64, ending=ending))
    whole = script_for(asked("Hello there"), Profile(tokens=64))
    assert len([choice for choice in choices(script) if choice.delta.content]) == deltas
    assert (finish(script) == "stop") is finished
    assert script.chunks[-1].wire.endswith(b"[DONE]\n\n") is done
    assert text(whole).startswith(text(script))


def test_an_error_event_is_the_last() -> None:
    """The error of a stream is an object of its own, with its code."""
    script = script_for(asked("Hello"), Profile(ending=ErrorEvent(3, "overloaded")))
    error = msgspec.convert(events(script)[-1]["error"], dict[str, object])
    assert error["code"] == "overloaded"


def test_http_errors_have_a_body_and_perhaps_a_wait() -> None:
    """Status, `Retry-After`, and OpenAI's error shape."""
    script = script_for(asked("Hello"), Profile(ending=HttpError(429, 1.5)))
    assert script.status == 429
    assert script.headers == ((b"retry-after", b"1.5"),)
    error = msgspec.json.decode(script.chunks[0].wire)["error"]
    assert error["type"] == "rate_limit_error"
    assert script_for(asked("Hello"), Profile(ending=HttpError(503))).headers == ()


@pytest.mark.parametrize("ending", [SilentBeforeFirst(), SilentBeforeFirst(headers=True), Reset()])
def test_silence_has_no_chunks(ending: Ending) -> None:
    """Nothing is ever sent."""
    assert script_for(asked("Hello"), Profile(ending=ending)).chunks == ()


@pytest.mark.parametrize("ending", [Cut(), Stall()])
def test_a_body_breaks_off_in_its_middle(ending: Ending) -> None:
    """What is not streamed is cut at half its length."""
    whole = script_for(asked("Hello", stream=False), PLAIN).chunks[0].wire
    script = script_for(asked("Hello", stream=False), Profile(ending=ending))
    assert script.chunks[0].wire == whole[: len(whole) // 2]


def test_a_body_fails_where_a_stream_has_an_error_event() -> None:
    """Without a stream the in-band error is a status."""
    script = script_for(asked("Hello", stream=False), Profile(ending=ErrorEvent(code="overloaded")))
    assert script.status == 500


HERE = b"here"


def test_delays_do_not_add_up() -> None:
    """Delta k is due at ttft + k / rate, rounded once."""
    due = due_times(Profile(ttft_ms=200, rate=3), HERE, 301)
    assert (due[0], due[1], due[2], due[300]) == (200_000, 533_333, 866_667, 100_200_000)


def test_larger_chunks_take_longer() -> None:
    """A delta of four tokens is as slow as four tokens."""
    assert due_times(Profile(rate=100, chunk=4), HERE, 3) == [0, 40_000, 80_000]


@given(st.binary(), st.integers(0, 100), st.integers(0, 1000))
def test_jitter_is_drawn_and_bounded(digest: bytes, jitter: int, rate: int) -> None:
    """At most `jitter_ms` later, never out of order, the same for the same request."""
    due = due_times(Profile(jitter_ms=jitter, rate=rate), digest, 20)
    plain = due_times(Profile(rate=rate), digest, 20)
    assert due == sorted(due)
    assert due == due_times(Profile(jitter_ms=jitter, rate=rate), digest, 20)
    assert all(
        p <= d <= plain[k] + jitter * 1000 + 1
        for k, (d, p) in enumerate(zip(due, plain, strict=True))
    )


def test_what_is_due_together_goes_out_together() -> None:
    """Unless the profile splits."""
    chunks = [TimedChunk(0, b"a"), TimedChunk(0, b"b"), TimedChunk(5, b"c")]
    assert merged_chunks(chunks) == (TimedChunk(0, b"ab", 2), TimedChunk(5, b"c", 1))
    assert len(script_for(asked("Hello"), Profile(tokens=8)).chunks) == 1
    assert len(script_for(asked("Hello"), Profile(tokens=8, split=True)).chunks) == 1 + 8 + 2


def test_the_role_goes_out_with_the_first_delta_and_the_end_with_the_last() -> None:
    """Ten tokens at ten a second: ten moments."""
    script = script_for(asked("Hello"), Profile(ttft_ms=500, rate=10, tokens=10))
    assert [chunk.due_us for chunk in script.chunks] == [500_000 + k * 100_000 for k in range(10)]
    assert [chunk.count for chunk in script.chunks] == [2, *[1] * 8, 3]
