"""Token counts: exact with the tokenizer of a model, none without, and never long on the loop."""

from __future__ import annotations

import asyncio
import sys

import pytest

from contract.errors import EffectFailed
from effects.model import ModelEntry, ModelRegistry, Provider, RescuingModel
from effects.model.tokens import AT_ONCE, MOST_CHARACTERS, _tokenizers, count_tokens, encoding_of

# As OpenAI's own library counts them.
KNOWN = [
    ("gpt-4", "hello world", 2),
    ("gpt-4", "tiktoken is great!", 6),
    ("gpt-4o", "tiktoken is great!", 6),
    ("gpt-4", "antidisestablishmentarianism", 6),
    ("gpt-4", "2 + 2 = 4", 7),
    ("gpt-4", "お誕生日おめでとう", 9),
    ("gpt-4o", "お誕生日おめでとう", 8),
    ("gpt-4o", "", 0),
    ("gpt-4o", "<|endoftext|>", 7),
]


@pytest.mark.parametrize(("model", "text", "tokens"), KNOWN)
async def test_counts_are_those_of_the_model(model: str, text: str, tokens: int) -> None:
    """What looks like a control token is text: users can write anything."""
    pytest.importorskip("splintr")
    assert await count_tokens(model, (text, "", text)) == (tokens, 0, tokens)


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        *((name, "o200k_base") for name in ("gpt-4.1", "gpt-4o-mini", "o3", "o4-mini", "gpt-5.1")),
        *((name, "o200k_base") for name in ("openai/gpt-4o", "ft:gpt-4o:acme", "o1-preview")),
        *((name, "cl100k_base") for name in ("gpt-4", "gpt-4-turbo", "gpt-3.5-turbo", "ft:gpt-4")),
        *((name, None) for name in ("qwen3", "gpt-oss-20b", "gpt-4x", "", "my-gpt-4", "o3x")),
    ],
)
def test_a_model_is_known_by_its_name(model: str, encoding: str | None) -> None:
    """Of any other the tokens are not known."""
    assert encoding_of(model) == encoding


async def test_what_cannot_be_counted_has_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another model, too much, half a character, no library."""
    assert await count_tokens("qwen3", ("hello",)) is None
    assert await count_tokens("gpt-4o", ("x" * MOST_CHARACTERS, "x")) is None
    assert await count_tokens("gpt-4o", ("a\ud83d",)) is None
    monkeypatch.setattr("effects.model.tokens._tokenizers", {})
    monkeypatch.setitem(sys.modules, "splintr", None)
    assert await count_tokens("gpt-4o", ("hello",)) is None


async def test_long_texts_are_counted_beside_the_loop() -> None:
    """The loop turns meanwhile, and the count is the same."""
    pytest.importorskip("splintr")
    short, turns = ("word " * 100,), 0
    assert await count_tokens("gpt-4o", short) == (101,)
    counting = asyncio.create_task(count_tokens("gpt-4o", short * (AT_ONCE // 500 + 1)))
    while not counting.done():
        await asyncio.sleep(0)
        turns += 1
    assert set(await counting or ()) == {101}
    assert turns > 1


async def test_texts_are_not_kept() -> None:
    """The library keeps what it has seen; after some hundred texts it starts anew."""
    pytest.importorskip("splintr")
    for number in range(0, 4_000, 100):
        assert await count_tokens("gpt-4o", tuple(f"text {n}" for n in range(number, number + 100)))
    assert _tokenizers["o200k_base"].cache_len < 1_000


async def test_the_port_counts_by_the_providers_name_of_a_model() -> None:
    """And refuses a model that is not registered."""
    pytest.importorskip("splintr")
    provider = Provider("p", "http://127.0.0.1:1/v1")
    registry = ModelRegistry([ModelEntry("ours", provider, "gpt-4o")])
    model = RescuingModel(registry)
    assert await model.count("tokens", "ours", ("tiktoken is great!",)) == (6,)
    with pytest.raises(EffectFailed, match="unknown_model"):
        await model.count("tokens", "gpt-4o", ("x",))
    await registry.aclose()
