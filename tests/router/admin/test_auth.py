"""Tokens: who is who, and sentences that name no token."""

from __future__ import annotations

import pytest

from router.admin.auth import TokensUnusable, read_tokens

ALICE = "a" * 16
OPS = "b" * 40


def test_each_token_stands_for_a_name() -> None:
    """Several people, one of them with two tokens while hers is changed; no one else."""
    tokens = read_tokens(f"alice:{ALICE}, ops:{OPS},alice:{'c' * 16}", "T")
    assert [tokens.who(one) for one in (ALICE, OPS, "c" * 16)] == ["alice", "ops", "alice"]
    for wrong in ("", "a" * 15, ALICE + "a", f"alice:{ALICE}", "alice", "字"):
        assert tokens.who(wrong) is None


def test_a_single_token_is_enough() -> None:
    """Its owner is called admin."""
    assert read_tokens(f" {OPS}\n", "T").who(OPS) == "admin"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not set, or empty"),
        (" , ", "not set, or empty"),
        ("short", "has 5 characters, it needs 16"),
        (f"alice:{ALICE},bob", "that of 'bob' has 0 characters"),
        (f"al ice:{ALICE}", "entry 1 is not name:token"),
        (f":{ALICE}", "entry 1 is not name:token"),
        (f"alice:{ALICE[:-1]}字", "that no header can hold"),
        (f"alice:{ALICE[:8]} {ALICE[:8]}", "that no header can hold"),
        (f"alice:{ALICE},bob:{ALICE}", "a token has two names"),
    ],
)
def test_what_cannot_be_used_is_refused_without_naming_it(text: str, words: str) -> None:
    """The variable and the entry are named, the token is not."""
    with pytest.raises(TokensUnusable) as caught:
        read_tokens(text, "OPS_TOKENS")
    said = str(caught.value)
    assert "'OPS_TOKENS'" in said
    assert ALICE[:8] not in said
    assert words in said
