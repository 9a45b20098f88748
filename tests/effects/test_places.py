"""Places: what a store raises, forgets and compares comes out the same of each."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from contract.errors import MissingExtra
from effects import places
from effects.places import ObjectChanged, Place, changed_at
from tests.support.object_server import ObjectServer

pytestmark = pytest.mark.sockets

MOMENT = datetime(2026, 11, 26, 12, tzinfo=UTC)


def test_a_folder_is_a_place(tmp_path: Path) -> None:
    """By its path, and by its URL."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.txt").write_bytes(b"content")
    for url in (str(tmp_path), f"file://{tmp_path}"):
        place = Place(url)
        assert (place.local, place.root) == (True, str(tmp_path))
        assert list(place.below(place.root)) == [str(tmp_path / "a" / "b.txt")]
        assert place.children(place.root) == ([str(tmp_path / "a")], {})
        assert b"".join(place.pieces(f"{place.root}/a/b.txt", 1, 4)) == b"ont"
        assert not place.keeps_versions()


def test_objects_are_put_listed_read_and_removed(object_place: str) -> None:
    """One level, all below, and nothing where there is nothing."""
    place = Place(object_place)
    assert not place.local
    assert place.children(place.root) == ([], {})
    assert not place.below(place.root)
    for name in ("a", "x/b", "x/y/c"):
        place.put(f"{place.root}/{name}", name.encode())
    folders, files = place.children(place.root)
    assert folders == [f"{place.root}/x"]
    assert [*files] == [f"{place.root}/a"]
    assert sorted(place.below(f"{place.root}/x")) == [f"{place.root}/x/b", f"{place.root}/x/y/c"]
    assert place.read(f"{place.root}/x/y/c", -1) == b"c"
    assert place.exists(f"{place.root}/x/y")
    for _ in range(2):
        place.remove(f"{place.root}/a")
        place.remove_all([f"{place.root}/x/b", f"{place.root}/x/y/c", f"{place.root}/none"])
    assert not place.below(place.root)


def test_what_exists_is_not_remembered(object_place: str) -> None:
    """Another process may have removed it, or put it there."""
    place, other = Place(object_place), Place(object_place)
    path = f"{place.root}/a"
    place.put(path, b"1")
    assert place.below(place.root)
    other.remove(path)
    assert not place.exists(path)
    other.put(path, b"22")
    assert place.info(path)["size"] == 2


def test_a_new_object_replaces_none(object_place: str) -> None:
    """It is refused, and the first stays."""
    place = Place(object_place)
    path = f"{place.root}/key"
    place.put(path, b"first", new=True)
    with pytest.raises(FileExistsError):
        place.put(path, b"second", new=True)
    assert place.read(path) == b"first"


def test_a_version_that_is_gone_is_not_replaced(s3: ObjectServer) -> None:
    """Whether another one took its place, or none."""
    place = Place(s3.bucket)
    path = f"{place.root}/a"
    place.put(path, b"1")
    tag = place.tag(place.info(path))
    assert tag
    place.put(path, b"2", tag=tag)
    with pytest.raises(ObjectChanged):
        place.put(path, b"3", tag=tag)
    assert place.read(path) == b"2"
    place.remove(path)
    with pytest.raises(FileNotFoundError):
        place.put(path, b"3", tag=tag)


def test_a_short_object_takes_one_request_whatever_it_has_become(
    s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it has grown beyond what one request asks for."""
    monkeypatch.setattr(places, "FETCHED", 100)
    place = Place(s3.bucket)
    path = f"{place.root}/a"
    for content, requests in ((b"x" * 99, {"GET": 1}), (b"y" * 250, {"GET": 4, "HEAD": 1})):
        place.put(path, content)
        s3.requests.clear()
        assert b"".join(place.pieces(path, size=99)) == content
        assert s3.counts() == requests


@pytest.mark.slow
def test_server_and_region_are_those_of_the_environment(
    s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As are the credentials: nothing of a client is configured."""
    clients = Place(s3.bucket).system
    clients.clear_instance_cache()  # they have read the environment before
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    Place(s3.bucket).put(f"{Place(s3.bucket).root}/a", b"1")
    assert {one.region for one in s3.requests} == {"eu-central-1"}
    clients.clear_instance_cache()


@pytest.mark.slow
def test_no_credentials_are_an_oserror(s3: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library raises an error of its own, which nothing expects."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    clients = Place(s3.bucket).system
    clients.clear_instance_cache()
    place = Place(s3.bucket)
    with pytest.raises(OSError, match="NoCredentialsError: Unable to locate credentials"):
        place.put(f"{place.root}/a", b"1")
    clients.clear_instance_cache()


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an extra where it is one of ours."""
    for library in ("s3fs", "gcsfs"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=r"cutover\[s3\]"):
        Place("s3a://bucket/x")  # an address by which no other test has imported it
    with pytest.raises(ImportError, match="gcsfs") as refused:
        Place("gs://bucket/x")
    assert not isinstance(refused.value, MissingExtra)
    with pytest.raises(ValueError, match="Protocol not known: nowhere"):
        Place("nowhere://x")


@pytest.mark.parametrize(
    ("info", "seconds"),
    [
        ({"LastModified": MOMENT}, MOMENT.timestamp()),
        ({"last_modified": MOMENT}, MOMENT.timestamp()),
        ({"mtime": 5}, 5.0),
        ({"LastModified": "", "created": 6.5}, 6.5),
        ({}, None),
    ],
)
def test_the_age_of_a_file_has_many_names(info: Mapping[str, Any], seconds: float | None) -> None:
    """One for each library."""
    assert changed_at(info) == seconds
