"""Whose lines are found: by the plain id, and by whatever redaction has made of it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.flows.chat import CHAT
from contract.flows.declared import DeclaredFlow, declared_spec
from contract.records import encode_run
from contract.stores import DataSubject
from contract.wire import built_in
from cutover.erasure import SubjectMatcher, declared_fields
from router.capture.pseudonyms import digest
from router.capture.redaction import Redactor
from router.config.patterns import compile_patterns
from tests.support.records import a_request, a_run

KEY = b"a-key"
PATHS = ("request.body.user_name",)


def line(body: Mapping[str, object], paths: tuple[str, ...] = PATHS) -> bytes:
    """Give a captured line, redacted as a router redacts it."""
    redactor = Redactor(compile_patterns({}), paths, KEY)
    return encode_run(redactor.exchange([a_run(request=a_request(body))], CHAT.decoder)[0])


def test_a_pseudonym_is_the_same_on_every_host_with_the_key() -> None:
    """A keyed digest of the value and nothing else: neither process nor time is in it."""
    assert digest(KEY, "ann@example.org") == "0b64bc0363a2"
    assert digest(b"another", "ann@example.org") != digest(KEY, "ann@example.org")


@pytest.mark.parametrize(
    ("user", "body", "paths"),
    [
        ("u1", {"user_id": "u1"}, PATHS),
        ("ann@example.org", {"user_id": "ann@example.org"}, PATHS),
        ("u1", {"user_id": "u1"}, ("request.body.user_id",)),
        ("ann.smith", {"user_id": "ann.smith", "user_name": "ann"}, PATHS),
        ("x 13812345678 ann", {"user_id": "x 13812345678 ann", "user_name": "ann"}, PATHS),
        ('a "quoted"\n\\id 消息', {"user_id": 'a "quoted"\n\\id 消息'}, PATHS),
        ("u1", {"content": "hi", "history": [{"turn": {"user_id": "u1"}}]}, PATHS),
        ("42", {"user_id": 42}, PATHS),
        ("ann", {"approval_id": "a1", "approved": True, "by": "ann"}, PATHS),
    ],
)
def test_a_user_is_found_as_written_down(
    user: str, body: Mapping[str, object], paths: tuple[str, ...]
) -> None:
    """Plain, as a pseudonym, or with pseudonyms inside; no other user is taken for the subject."""
    assert SubjectMatcher(DataSubject("user", user), KEY).matches(line(body, paths))
    assert not SubjectMatcher(DataSubject("user", user + "x"), KEY).matches(line(body, paths))
    assert not SubjectMatcher(DataSubject("user", user[1:]), KEY).matches(line(body, paths))
    assert not SubjectMatcher(DataSubject("chat", user), KEY).matches(line(body, paths))


@pytest.mark.parametrize("key", [b"", b"another"])
def test_without_the_right_key_only_the_plain_id_is_found(key: bytes) -> None:
    """That is why the command asks for it."""
    redacted = line({"user_id": "ann@example.org"})
    assert re.search(rb"<email:[0-9a-f]{12}>", redacted)
    assert not SubjectMatcher(DataSubject("user", "ann@example.org"), key).matches(redacted)
    assert SubjectMatcher(DataSubject("user", "u1"), key).matches(line({"user_id": "u1"}))


def test_what_somebody_only_says_is_nobodys_id() -> None:
    """A field that is quoted in a text is a text."""
    said = line({"user_id": "u2", "content": '{"user_id":"u1"}'})
    assert not SubjectMatcher(DataSubject("user", "u1"), KEY).matches(said)
    assert SubjectMatcher(DataSubject("user", "u2"), KEY).matches(said)


@pytest.mark.parametrize(
    ("whose", "found"),
    [
        (DataSubject("chat", "c1"), True),
        (DataSubject("message", "m1"), True),
        (DataSubject("message", "m0"), True),
        (DataSubject("message", "c1"), False),
        (DataSubject("user", "c1"), False),
    ],
)
def test_chats_and_messages_are_found_by_their_fields(whose: DataSubject, *, found: bool) -> None:
    """A message is also found in whatever replies to it, or holds it as history."""
    body = {"message_id": "m1", "chat_id": "c1", "turn": {"reply_to": "m0"}}
    assert SubjectMatcher(whose, KEY).matches(line(body)) is found


@pytest.mark.untraced
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(min_size=1))
def test_any_id_is_found_however_it_was_redacted(user: str, name: str) -> None:
    """Also where a name is part of it, and where it looks like a pseudonym."""
    if "\x00" in name or not name.isprintable():
        name = "n"
    redacted = line({"user_id": user, "user_name": name})
    assert SubjectMatcher(DataSubject("user", user), KEY).matches(redacted)


@pytest.mark.parametrize("value", [b'"\\ud800"', b'"\xff"', b'"a\nb"', b"012"])
def test_an_id_nobody_can_read_is_nobodys(value: bytes) -> None:
    """Half a character, no UTF-8, no JSON: the subject is found beside it."""
    sought = SubjectMatcher(DataSubject("user", "u1"))
    assert not sought.matches(b'{"user_id":%b}' % value)
    assert sought.matches(b'{"user_id":%b,"turn":{"user_id":"u1"}}' % value)


def test_the_fields_of_declared_flows_are_looked_at_too() -> None:
    """By the last key of the path at which such an id stands in their requests."""
    keys = {"session_id": "metadata.ticket", "user_id": "user"}
    declared = DeclaredFlow(path="/x", dialect=built_in()["openai"], route_keys=keys)
    flows = [CHAT, declared_spec("x", declared)]
    assert declared_fields("user", flows) == {"user"}
    assert declared_fields("message", flows) == frozenset()
    sought = SubjectMatcher(DataSubject("chat", "t1"), KEY, declared_fields("chat", flows))
    assert sought.matches(b'{"body":{"metadata":{"ticket":"t1"}}}')
    assert not sought.matches(b'{"body":{"metadata":{"ticket":"t10"}}}')
