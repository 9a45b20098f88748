"""Encrypted pauses: nothing in the tables can be read, and nothing is decrypted by halves."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import EffectFailed, Fault
from contract.human import Form, FormField, HumanAnswer, OpenQuestion
from effects.stores import (
    Encryption,
    InvalidKeys,
    Pause,
    PauseStore,
    Plaintext,
    SqlPauses,
    read_keys,
)
from effects.stores.pauses.aes import AesEncryption
from tests.support.postgres import PLACES, empty_place, execute
from tests.support.records import a_pause

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
SECRET = "月光酒店"
YES = HumanAnswer("edit", {"city": SECRET})


@dataclass(frozen=True)
class Place:
    """One place pauses are kept in, opened with one key and then another."""

    address: str

    def opened(
        self, encryption: Encryption | None = None
    ) -> AbstractAsyncContextManager[PauseStore]:
        """Open the store."""
        return SqlPauses.open_store(self.address, now, encryption)

    def row(self) -> dict[str, bytes]:
        """Read what is stored of the pause, as a reader of the table would."""
        columns = ("question", "tape", "answer", "digest")
        (values,) = execute(self.address, f"SELECT {', '.join(columns)} FROM graph_checkpoints")
        kept = (one.encode() if isinstance(one, str) else one for one in values)
        return dict(zip(columns, kept, strict=True))

    def write(self, column: str, value: bytes) -> None:
        """Change a column behind the store's back."""
        execute(self.address, f"UPDATE graph_checkpoints SET {column} = ?", value)


@pytest.fixture(params=PLACES)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Give a place of each kind."""
    async with empty_place(request, tmp_path) as address:
        yield Place(address)


def now() -> float:
    """Tell the time: always the same."""
    return 0.0


def paused(hitl_id: str = "h1") -> Pause:
    """Make a pause that says the secret in its question and in its tape."""
    form = Form(SECRET, (FormField("city", "城市", "text", required=True, value=SECRET),))
    question = OpenQuestion(form, "confirm", "s1")
    tape = SECRET.encode() * 3
    return a_pause(hitl_id=hitl_id, session_id="s1", question=question, tape=tape, expires_at=100.0)


async def refusal(pauses: PauseStore) -> dict[str, object]:
    """Read the pause and say why it did not open."""
    with pytest.raises(EffectFailed) as failed:
        await pauses.get("h1")
    assert failed.value.fault.code == "pause_sealed"
    return dict(failed.value.fault.data)


async def test_what_is_stored_says_nothing(place: Place) -> None:
    """Neither tape, question and answer, nor what identifies a short answer."""
    async with place.opened(AesEncryption([OLD])) as pauses:
        await pauses.open(paused())
        assert await pauses.respond("h1", YES) == "accepted"
        row = place.row()
        digest = (await pauses.get("h1") or paused()).digest
        assert digest
        for column, stored in row.items():
            assert SECRET.encode() not in stored, column
            assert digest.encode() not in stored, column
        found = await pauses.get("h1")
        assert found == msgspec.structs.replace(
            paused(), state="answered", answer=YES, digest=digest
        )
        assert [await pauses.respond("h1", one) for one in (YES, HumanAnswer("reject"))] == [
            "same",
            "conflict",
        ]
        await pauses.claim("h1", "x1", 60.0)
        await pauses.finish("h1", "x1")
        assert await pauses.respond("h1", YES) == "same"
        assert {name: place.row()[name] for name in ("question", "tape", "answer")} == {
            "question": b"null",
            "tape": b"",
            "answer": b"null",
        }


async def test_without_the_key_nothing_opens_and_nothing_is_answered(place: Place) -> None:
    """Expiring, listing and sweeping need no key."""
    async with place.opened(AesEncryption([OLD])) as pauses:
        await pauses.open(paused())
    for encryption, why in (
        (None, "no_key"),
        (Plaintext(), "no_key"),
        (AesEncryption([NEW]), "wrong_key"),
    ):
        async with place.opened(encryption) as pauses:
            assert await refusal(pauses) == {"reason": why}
            for call in (pauses.respond("h1", YES), pauses.pending()):
                with pytest.raises(EffectFailed) as failed:
                    await call
                assert failed.value.fault.code == "pause_sealed"
            assert [waiting.hitl_id for waiting in await pauses.waiting()] == ["h1"]
            assert await pauses.sweep() == (0, 0)
    async with place.opened() as pauses:
        assert await pauses.expire("h1") == "expired"


async def test_keys_are_changed_by_a_new_one_in_front(place: Place) -> None:
    """What the old one sealed opens as long as it is there; what is new is sealed by the first."""
    async with place.opened(AesEncryption([OLD])) as pauses:
        await pauses.open(paused())
    async with place.opened(AesEncryption([NEW, OLD])) as pauses:
        assert await pauses.respond("h1", YES) == "accepted"
        found = await pauses.get("h1")
        assert found is not None
        assert (found.tape, found.answer) == (paused().tape, YES)
        assert await pauses.replace_tape("h1", b"longer")
    async with place.opened(AesEncryption([OLD])) as pauses:
        assert await refusal(pauses) == {"reason": "wrong_key"}


async def test_what_was_stored_before_there_was_a_key_is_read(place: Place) -> None:
    """Unless the configuration is strict; what has ended says nothing, and is read then too."""
    async with place.opened() as pauses:
        await pauses.open(paused())
    async with place.opened(AesEncryption([NEW])) as pauses:
        assert await pauses.get("h1") == paused()
    strict = AesEncryption([NEW], strict=True)
    async with place.opened(strict) as pauses:
        assert await refusal(pauses) == {"reason": "plain"}
        assert await pauses.expire("h1") == "expired"
        found = await pauses.get("h1")
        assert found is not None
        assert (found.state, found.tape) == ("expired", b"")


@pytest.mark.parametrize("column", ["question", "tape", "answer"])
async def test_sealed_bytes_open_in_their_own_place_alone(place: Place, column: str) -> None:
    """Neither changed, nor cut, nor from another column or another pause."""
    async with place.opened(AesEncryption([OLD])) as pauses:
        await pauses.open(paused("h2"))
        foreign = place.row()
        await pauses.expire("h2")
        await pauses.erase([], ["s1"])
        await pauses.open(paused())
        await pauses.respond("h1", YES)
        row = place.row()
        stored = row[column]
        changed = stored[:-1] + bytes([stored[-1] ^ 1])
        others = [row["tape" if column == "question" else "question"], foreign["tape"]]
        for wrong in (changed, stored[:20], *others):
            place.write(column, wrong)
            assert await refusal(pauses) == {"reason": "damaged"}
        place.write(column, stored)
        assert (await pauses.get("h1") or paused()).answer == YES


async def test_a_row_that_is_damaged_is_a_fault(place: Place) -> None:
    """Whether or not it was ever sealed."""
    async with place.opened() as pauses:
        await pauses.open(paused())
        place.write("question", b"{")
        with pytest.raises(EffectFailed) as failed:
            await pauses.get("h1")
        assert failed.value.fault == Fault("store_failed", data={"reason": "row"})


@given(st.binary(), st.text(), st.sampled_from(["tape", "question"]))
def test_what_is_sealed_opens(plain: bytes, hitl_id: str, column: str) -> None:
    """Any bytes, and never the same twice."""
    hitl_id = hitl_id.encode("utf-8", "replace").decode()
    seals = AesEncryption([NEW, OLD])
    one, two = (seals.seal(plain, hitl_id, column) for _ in range(2))
    assert seals.open(one, hitl_id, column) == seals.open(two, hitl_id, column) == plain
    assert (one == two) == (plain in {b"", b"null"})


def test_keys_are_read_in_base64() -> None:
    """The first one seals; spaces and an empty entry do no harm."""
    text = f" {b64encode(NEW).decode()} , {b64encode(OLD).decode()},"
    assert read_keys(text, "KEYS") == (NEW, OLD)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not set, or empty"),
        (" , ", "not set, or empty"),
        ("not base64!", "number 1 is not base64"),
        (f"{b64encode(OLD).decode()},c2hvcnQ=", "number 2 has 5 bytes, 32 are due"),
    ],
)
def test_keys_that_are_none_are_refused(text: str, why: str) -> None:
    """The variable is named, and no key."""
    with pytest.raises(InvalidKeys) as refused:
        read_keys(text, "PAUSE_KEYS")
    assert why in str(refused.value)
    assert "PAUSE_KEYS" in str(refused.value)
    assert "c2hvcnQ" not in str(refused.value)
