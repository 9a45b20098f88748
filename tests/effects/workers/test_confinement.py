"""Confinement to a folder: whatever a path is made of, nothing outside the root is touched."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effects.workers.action import ActionFailed
from effects.workers.confinement import (
    MAX_DEPTH,
    NotSearched,
    OutsideRoot,
    delete_file,
    delete_matching,
    entries_beneath,
    files_beneath,
    parts_beneath,
)

PIECES = [
    "..",
    ".",
    "",
    "folder",
    "file",
    "out",  # a link to the folder outside
    "up",  # a link to the root's parent
    "passed",  # a link to a file outside
    "loop",
    "secret",
    "outside",
    "root",
    "~",
    "$(rm -rf .)",
    "; rm *",
    "`id`",
    "%2e%2e",
    "\u2024\u2024",
    "*",
    "\n",
]


@contextmanager
def tree() -> Iterator[Path]:
    """Make a root with files, folders and links that lead out of it, beside what is outside."""
    with TemporaryDirectory() as place:
        outside, root = Path(place, "outside"), Path(place, "root")
        for folder in (outside, root, root / "folder"):
            folder.mkdir()
            for name in ("file", "secret", "$(rm -rf .)", "; rm *", "*"):
                (folder / name).write_text(name)
        for folder in (root, root / "folder"):
            (folder / "out").symlink_to(outside)
            (folder / "up").symlink_to("..")
            (folder / "passed").symlink_to(outside / "secret")
            (folder / "loop").symlink_to("loop")
        yield root


def content(folder: Path) -> dict[str, str]:
    """Return the files of a folder with their text."""
    return {str(one): one.read_text() for one in sorted(folder.rglob("*")) if one.is_file()}


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(PIECES) | st.text(st.characters(exclude_characters="\0"), max_size=3)),
    st.sampled_from(["", "/", "{root}/", "{outside}/", "//", "{root}/../"]),
)
def test_no_path_leads_out(pieces: list[str], begins: str) -> None:
    """A file is deleted only where it stands beneath the root, under the name that was given."""
    with tree() as root:
        outside = root.parent / "outside"
        path = begins.format(root=root, outside=outside) + "/".join(pieces)
        before, inside = content(outside), set(content(root))
        with suppress(ActionFailed, OSError):
            delete_file(root, parts_beneath(root, path))
            gone = inside - set(content(root))
            assert [os.path.normpath(root / path)] == sorted(gone)
        assert content(outside) == before
        assert (root / "passed").is_symlink()
        assert (root / "out").is_symlink()


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret",
        "folder/../../outside/secret",
        "folder/../file",
        "/outside/secret",
        "out/secret",
        "folder/out/secret",
        "up/outside/secret",
        "passed",
        "loop",
        "loop/file",
    ],
)
def test_an_escape_is_refused_by_its_code(path: str) -> None:
    """By `..`, by an absolute path, by a link to a folder or to a file."""
    with tree() as root, pytest.raises(OutsideRoot) as refusal:
        delete_file(root, parts_beneath(root, path))
    assert refusal.value.code == "outside_root"


def test_an_absolute_path_beneath_the_root_is_beneath_it(tmp_path: Path) -> None:
    """As the root is written, and as its links resolve; a name that only begins alike is not."""
    root, link = tmp_path / "root", tmp_path / "link"
    root.mkdir()
    link.symlink_to(root)
    assert parts_beneath(link, f"{link}/a/b") == ("a", "b")
    assert parts_beneath(link, f"{root}/a") == ("a",)
    assert parts_beneath(link, "") == ()
    with pytest.raises(OutsideRoot):
        parts_beneath(link, f"{root}-other/a")


def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere() -> None:
    """Another thread replaces it again and again: no file outside is ever deleted."""
    with tree() as root:
        outside, folder, aside = root.parent / "outside", root / "folder", root / "aside"
        before = content(outside)
        over = threading.Event()

        def swap() -> None:
            while not over.is_set():
                folder.rename(aside)
                folder.symlink_to(outside)
                folder.unlink()
                aside.rename(folder)

        swapping = threading.Thread(target=swap)
        swapping.start()
        try:
            for _ in range(500):
                with suppress(ActionFailed):
                    delete_file(root, ("folder", "secret"))
                with suppress(ActionFailed, OSError):
                    list(delete_matching(root, "file", lambda: False))
        finally:
            over.set()
            swapping.join()
        assert content(outside) == before


def test_a_search_does_not_follow_what_was_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link takes its place after it was looked at, and before it is opened."""
    with tree() as root:
        outside, folder, aside = root.parent / "outside", root / "folder", root / "aside"
        before, opened = content(outside), os.open

        def swapped(path: str, flags: int, *mode: int, dir_fd: int | None = None) -> int:
            if path == "folder" and not aside.exists():
                folder.rename(aside)
                folder.symlink_to(outside)
            return opened(path, flags, *mode, dir_fd=dir_fd)

        monkeypatch.setattr(os, "open", swapped)
        deleted = [parts[0] for parts, _ in delete_matching(root, "secret", lambda: False)]
        assert "folder" not in deleted
        assert aside.exists()
        assert content(outside) == before


def test_a_pattern_is_matched_with_names_alone() -> None:
    """In every folder beneath the root, not behind links; `$`, `;` and blanks are characters."""
    with tree() as root:
        before = content(root.parent / "outside")
        deleted = list(delete_matching(root, "; *", lambda: False))
        assert sorted(deleted) == [(("; rm *",), 6), (("folder", "; rm *"), 6)]
        assert list(delete_matching(root, "$(rm*", lambda: True)) == []
        assert content(root.parent / "outside") == before


def test_special_files_are_neither_opened_nor_deleted(tmp_path: Path) -> None:
    """A pipe without a writer would block its reader for ever."""
    os.mkfifo(tmp_path / "pipe")
    assert list(files_beneath(tmp_path, (), lambda: False)) == []
    with pytest.raises(ActionFailed, match="there is no file 'pipe'"):
        delete_file(tmp_path, ("pipe",))


def test_a_search_has_a_depth(tmp_path: Path) -> None:
    """Deeper folders are passed over, and refused where everything is due."""
    deep = tmp_path.joinpath(*["d"] * (MAX_DEPTH + 1))
    deep.mkdir(parents=True)
    (deep / "file").touch()
    (deep.parent / "file").touch()
    found = [len(one.parts) for one in files_beneath(tmp_path, (), lambda: False)]
    assert found == [MAX_DEPTH + 1]
    with pytest.raises(NotSearched, match=f"deeper than {MAX_DEPTH} folders"):
        list(entries_beneath(tmp_path, (), lambda: False, strict=True))
