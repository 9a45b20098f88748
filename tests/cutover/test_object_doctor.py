"""`cutover doctor` on an object store of captures: what may be done there, by its permission."""

from __future__ import annotations

import asyncio

import pytest

from contract.flows import SPECS
from cutover.doctor import PartCheck, examine
from effects.places import Place
from router.config.loader import parse_settings
from tests.support.object_server import Fault, ObjectServer

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


def check(path: str) -> PartCheck:
    """Return what the doctor finds of captures at a path."""
    stores = ["conversations", "memory", "pauses"]
    text = "\n".join(f'{name} = "memory://"' for name in stores)
    text = f'[captures]\npath = "{path}"\n[stores]\nhistory = ""\n{text}'
    settings = parse_settings(text, "here", SPECS)
    (found,) = [one for one in asyncio.run(examine(settings, {})) if one.part == "captures"]
    return found


def test_a_place_that_can_be_used_is_good(object_place: str) -> None:
    """And nothing is left there."""
    found = check(object_place)
    assert found.word == "good"
    assert found.detail == f"{object_place}: objects can be written, read, listed and deleted"
    assert not Place(object_place).below(Place(object_place).root)


@pytest.mark.parametrize(
    ("operation", "fault", "words"),
    [
        ("PUT", "deny", "objects cannot be written (as told, s3:PutObject)"),
        ("GET", "deny", "objects cannot be read (as told, s3:GetObject)"),
        ("LIST", "deny", "objects cannot be listed (as told, s3:ListBucket)"),
        ("DELETE", "deny", "objects cannot be deleted (as told, s3:DeleteObject)"),
        ("PUT", "refuse", "objects cannot be written ([Errno 121] as told)"),
    ],
)
def test_a_permission_that_is_missing_is_named(
    s3: ObjectServer, operation: str, fault: Fault, words: str
) -> None:
    """Each by the step that needs it; an object that stays is named, too."""
    s3.fault, s3.failing = fault, operation
    found = check(f"{s3.bucket}/captures")
    assert found.word == "missing"
    assert words in found.detail
    assert ("is left there" in found.detail) == (operation == "DELETE")


def test_no_bucket_is_a_fault(s3: ObjectServer) -> None:
    """In a sentence."""
    found = check(f"{s3.bucket}-absent/captures")
    assert found.word == "missing"
    assert "objects cannot be written" in found.detail


def test_no_credentials_are_a_fault(s3: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of the environment, and nothing of them is printed."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    clients = Place(s3.bucket).system
    clients.clear_instance_cache()  # those that have read the environment before
    found = check(s3.bucket)
    clients.clear_instance_cache()
    assert found.word == "missing"
    assert "NoCredentialsError: Unable to locate credentials" in found.detail


def test_a_bucket_that_keeps_versions_is_noted(s3: ObjectServer) -> None:
    """What is forgotten would stay in it."""
    place = Place(s3.bucket)
    place.system.make_bucket_versioned(s3.bucket.removeprefix("s3://"))
    found = check(f"{s3.bucket}/captures")
    assert found.word == "note"
    assert "what `cutover forget` and keep_days delete stays until" in found.detail


def test_who_may_not_ask_for_versions_is_told_nothing_of_them(s3: ObjectServer) -> None:
    """The permission is needed for nothing else."""
    s3.fault, s3.failing = "deny", "VERSIONING"
    assert check(f"{s3.bucket}/captures").word == "good"


def test_a_library_that_is_missing_is_a_fault() -> None:
    """With what to install, where that is known."""
    found = check("nowhere://box/captures")
    assert found.word == "missing"
    assert "Protocol not known: nowhere" in found.detail
