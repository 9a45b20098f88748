"""Normal form of passed calls: what libraries write otherwise is one call, all else is not."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.normalisation import FOLDS, folds_between, normal_args, normal_call

JSON = dict[str, Any]

texts = st.text(max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
tool_rounds = st.lists(
    st.tuples(texts.filter(bool), st.dictionaries(texts, values, max_size=3), texts), max_size=3
)


@st.composite
def conversations(draw: st.DrawFn) -> list[JSON]:
    """Draw the messages of a chat completion: texts, and rounds of tools."""
    messages: list[JSON] = [{"role": "system", "content": draw(texts)}]
    for number in range(draw(st.integers(0, 3))):
        calls = draw(tool_rounds)
        if calls:
            ids = [f"call_{number}_{at}" for at in range(len(calls))]
            named = zip(ids, calls, strict=True)
            made = [tool_call(one, name, arguments) for one, (name, arguments, _) in named]
            messages.append({"role": "assistant", "content": None, "tool_calls": made})
            messages += [
                {"role": "tool", "tool_call_id": one, "content": result}
                for one, (_, _, result) in zip(ids, calls, strict=True)
            ]
        messages.append({"role": "user", "content": draw(texts)})
    return messages


def tool_call(name: str, tool: str, arguments: JSON) -> JSON:
    """Make a tool call as it stands in a message."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"id": name, "type": "function", "function": function}


def args(messages: list[JSON], model: str = "m", **more: Any) -> bytes:
    """Write the arguments of a passed call."""
    return json.dumps({"model_id": model, "messages": messages, "more": more}).encode()


def rewritten(messages: list[JSON], draw: st.DataObject) -> list[JSON]:
    """Write a conversation as another library would: each habit, or not."""
    flag = st.booleans()
    others: dict[str, str] = {}
    for message in (made := copy.deepcopy(messages)):
        if "tool_calls" in message:
            message["content"] = draw.draw(st.sampled_from([None, ""]))
            if draw.draw(flag):
                del message["content"]
            for number, call in enumerate(message["tool_calls"]):
                others.setdefault(call["id"], f"id-{len(others)}")
                call["id"] = others[call["id"]]
                if draw.draw(flag):
                    call["index"] = number
                if draw.draw(flag):
                    text = json.loads(call["function"]["arguments"], parse_int=float)
                    call["function"]["arguments"] = json.dumps(text, separators=(",", ":"))
                if call["function"]["arguments"] == "{}":
                    call["function"]["arguments"] = draw.draw(st.sampled_from(["", "{ }"]))
        elif draw.draw(flag):
            message["content"] = [{"type": "text", "text": message["content"]}]
        if "tool_call_id" in message:
            message["tool_call_id"] = others[message["tool_call_id"]]
        for name in ("refusal", "name", "audio"):
            if draw.draw(flag):
                message[name] = None
        if draw.draw(flag):
            message["annotations"] = []
    return [dict(reversed(message.items())) if draw.draw(flag) else message for message in made]


@given(conversations(), st.data())
def test_a_conversation_written_otherwise_is_the_same_call(
    messages: list[JSON], data: st.DataObject
) -> None:
    """Whichever habits a library has, in every combination."""
    more: JSON = {name: None for name in ("stop", "user") if data.draw(st.booleans())}
    tools = data.draw(st.lists(values, max_size=1))
    if tools:
        more["tool_choice"] = data.draw(st.sampled_from(["auto", None]))
    one = args(messages, seed=7, temperature=1, max_tokens=9, tools=tools)
    habits: JSON = {"seed": 7.0, "temperature": 1.0, "max_completion_tokens": 9, "n": 1}
    other = args(rewritten(messages, data), **more, **habits, tools=tools)
    assert normal_args(one) == normal_args(other)
    assert normal_args(normal_args(one)) == normal_args(normal_args(other))


def _last_text(messages: list[JSON]) -> None:
    messages[-1]["content"] += "."


def _argument(messages: list[JSON]) -> None:
    messages[1]["tool_calls"][0]["function"]["arguments"] = '{"city": "Bonn"}'


def _number_as_text(messages: list[JSON]) -> None:
    messages[1]["tool_calls"][0]["function"]["arguments"] = '{"city": "Ulm", "days": "2"}'


def _broken_arguments(messages: list[JSON]) -> None:
    messages[1]["tool_calls"][0]["function"]["arguments"] = '{"city": "Ulm", "days": 2'


def _index_of_another(messages: list[JSON]) -> None:
    messages[1]["tool_calls"][0]["index"] = 1


def _arguments_as_object(messages: list[JSON]) -> None:
    messages[1]["tool_calls"][0]["function"]["arguments"] = {"city": "Ulm", "days": 2}


def _results_swapped(messages: list[JSON]) -> None:
    first, second = messages[2:4]
    first["tool_call_id"], second["tool_call_id"] = second["tool_call_id"], first["tool_call_id"]


def _unknown_id(messages: list[JSON]) -> None:
    messages[2]["tool_call_id"] = "other"


def _calls_swapped(messages: list[JSON]) -> None:
    messages[1]["tool_calls"].reverse()


def _empty_user(messages: list[JSON]) -> None:
    messages[-1]["content"] = ""


def _two_parts(messages: list[JSON]) -> None:
    text = messages[-1]["content"]
    halves = (text[:2], text[2:])
    messages[-1]["content"] = [{"type": "text", "text": half} for half in halves]


def _marked_part(messages: list[JSON]) -> None:
    part = {"type": "text", "text": messages[-1]["content"], "cache_control": {"type": "ephemeral"}}
    messages[-1]["content"] = [part]


def _said_beside_calls(messages: list[JSON]) -> None:
    messages[1]["content"] = "Let me see."


def _role(messages: list[JSON]) -> None:
    messages[0]["role"] = "developer"


def _dropped(messages: list[JSON]) -> None:
    del messages[0]


def _named(messages: list[JSON]) -> None:
    messages[-1]["name"] = "ann"


SEEDED = [
    *(
        _last_text,
        _argument,
        _number_as_text,
        _broken_arguments,
        _index_of_another,
        _arguments_as_object,
        _results_swapped,
    ),
    *(
        _unknown_id,
        _calls_swapped,
        _empty_user,
        _two_parts,
        _marked_part,
        _said_beside_calls,
        _role,
    ),
    *(_dropped, _named),
]
MESSAGES: list[JSON] = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            tool_call("a", "weather", {"city": "Ulm", "days": 2}),
            tool_call("b", "clock", {}),
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "sunny"},
    {"role": "tool", "tool_call_id": "b", "content": "12:00"},
    {"role": "user", "content": "And tomorrow?"},
]


@pytest.mark.parametrize("change", SEEDED, ids=lambda change: change.__name__)
def test_what_is_asked_otherwise_is_another_call(change: Callable[[list[JSON]], None]) -> None:
    """No fold hides what a prompt says."""
    messages = copy.deepcopy(MESSAGES)
    change(messages)
    assert normal_args(args(messages)) != normal_args(args(MESSAGES))


@pytest.mark.parametrize(
    "more",
    [
        *({"temperature": 0}, {"n": 2}, {"stop": []}, {"tools": []}, {"seed": 8}),
        *({"tool_choice": "auto"}, {"max_tokens": 9, "max_completion_tokens": 8}),
    ],
)
def test_parameters_count(more: JSON) -> None:
    """Only what is null, or says what is so without it, is as if not sent."""
    assert normal_args(args(MESSAGES, **more)) != normal_args(args(MESSAGES))


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("0", "0.0", True),
        ("0.5", "5e-1", True),
        ("0", "0.5", False),
        ("9007199254740993", "9007199254740993.0", False),
        ("0", "1e999", False),
    ],
)
def test_numbers_count_by_their_value(one: str, other: str, alike: bool) -> None:
    """As far as a float has that value, in settings and in arguments of tools."""
    plain = args(MESSAGES, seed=55)
    in_call = json.dumps({"days": 55}).encode()
    for call, here in ((plain, b"55"), (args(_with_arguments(in_call)), b"55")):
        forms = [normal_args(call.replace(here, number.encode())) for number in (one, other)]
        assert (forms[0] == forms[1]) == alike


def _with_arguments(text: bytes) -> list[JSON]:
    messages = copy.deepcopy(MESSAGES)
    messages[1]["tool_calls"][0]["function"]["arguments"] = text.decode()
    return messages


def test_a_developer_is_the_system_of_the_o_models_alone() -> None:
    """ChatOpenAI renames the role for these, by their names."""
    other = copy.deepcopy(MESSAGES)
    other[0]["role"] = "developer"
    for model, alike in (("o3-mini", True), ("gpt-4o", False), ("olmo", False)):
        forms = {normal_args(args(messages, model)) for messages in (MESSAGES, other)}
        assert (len(forms) == 1) == alike


def test_nulls_inside_schemas_and_arguments_count() -> None:
    """They are values of the service's own."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"default": None}}}
    bare = copy.deepcopy(tool)
    bare["function"]["parameters"] = {}  # type: ignore[index]
    assert normal_args(args([], tools=[tool])) != normal_args(args([], tools=[bare]))


@given(st.binary(max_size=40) | values.map(lambda value: json.dumps(value).encode()))
def test_what_is_no_call_stays_as_it_is(data: bytes) -> None:
    """Whatever it is, nothing is raised."""
    found = normal_call(data)
    assert found.args == normal_args(found.args)


def test_each_fold_is_told() -> None:
    """With what it took from which side."""
    other = copy.deepcopy(MESSAGES)
    other[1]["content"] = ""
    other[-1] |= {"content": [{"type": "text", "text": "And tomorrow?"}], "refusal": None}
    other[1]["tool_calls"][0]["function"]["arguments"] = '{"days":2,"city":"Ulm"}'
    for message in other[1:4]:
        for call in message.get("tool_calls", [message]):
            name = "id" if "id" in call else "tool_call_id"
            call[name] += "1"
    other[0]["role"] = "developer"
    one = normal_call(args(MESSAGES, "o3", temperature=1, max_tokens=9))
    changed = normal_call(args(other, "o3", temperature=1.0, max_completion_tokens=9))
    assert one.args == changed.args
    assert folds_between(one, changed) == set(FOLDS)
    assert folds_between(one, one) == set()
