"""The stores of a deployment: where pauses are, what seals them, and the token of a service."""

from __future__ import annotations

from base64 import b64encode
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from contract.errors import EffectFailed
from cutover.stores import NoSuchStore, conversations_token, open_pauses, pause_encryption
from effects.model.registry import KeyUnusable
from effects.stores import InvalidKeys, Plaintext
from effects.stores.pauses.aes import AesEncryption
from effects.stores.pauses.encryption import ENCRYPTED
from router.config.errors import ConfigRefused
from router.config.schema import ConversationSettings, PauseSettings
from tests.support.postgres import own_schema
from tests.support.records import a_pause

KEYS = {"KEYS": b64encode(bytes(32)).decode()}


@pytest.mark.parametrize(
    "address", ["memory://", "sqlite://", pytest.param("postgresql://", marks=pytest.mark.sockets)]
)
async def test_a_store_is_opened_by_its_address(
    request: pytest.FixtureRequest, tmp_path: Path, address: str
) -> None:
    """Each kind keeps a pause; what is sealed comes back."""
    async with AsyncExitStack() as stack:
        if address == "sqlite://":
            address = f"sqlite:///{tmp_path}/made/pauses.db"
        elif address == "postgresql://":
            schema = own_schema(request.getfixturevalue("postgres_dsn"))
            address = await stack.enter_async_context(schema)
        sealing = pause_encryption(PauseSettings(key_env="KEYS"), KEYS)
        pauses = await open_pauses(address, stack, sealing)
        assert await pauses.open(a_pause())
        assert await pauses.get("h1") == a_pause()


async def test_a_foreign_address_is_refused() -> None:
    """With the kinds there are."""
    async with AsyncExitStack() as stack:
        with pytest.raises(NoSuchStore, match="memory, sqlite, postgresql"):
            await open_pauses("http://127.0.0.1:1", stack, Plaintext())


def test_the_key_comes_from_the_environment() -> None:
    """None named: not sealed; named and not there: refused."""
    assert isinstance(pause_encryption(PauseSettings(), {}), Plaintext)
    sealing = pause_encryption(PauseSettings(key_env="KEYS"), KEYS)
    assert isinstance(sealing, AesEncryption)
    assert sealing.seal(b"tape", "h1", "tape").startswith(ENCRYPTED)
    assert sealing.open(b"tape", "h1", "tape") == b"tape"
    strict = pause_encryption(PauseSettings(key_env="KEYS", strict=True), KEYS)
    with pytest.raises(EffectFailed):
        strict.open(b"tape", "h1", "tape")
    with pytest.raises(InvalidKeys, match="'KEYS' cannot be used: it is not set"):
        pause_encryption(PauseSettings(key_env="KEYS"), {})


def test_the_token_of_a_service_comes_from_its_variable() -> None:
    """None is configured by default; one that is named has to be there, and fit into a header."""
    assert conversations_token(ConversationSettings(), {}) == ""
    section = ConversationSettings(token_env="MEMORY_TOKEN")
    assert conversations_token(section, {"MEMORY_TOKEN": "t0ken"}) == "t0ken"
    with pytest.raises(ConfigRefused, match="MEMORY_TOKEN"):
        conversations_token(section, {})
    with pytest.raises(KeyUnusable) as refused:
        conversations_token(section, {"MEMORY_TOKEN": "t0ken\nx: y"})
    assert "t0ken" not in str(refused.value)
