"""Editing cutover.toml: what people wrote stays, and what cannot be used is not written."""

from __future__ import annotations

import fcntl
import os
import stat
import threading
import tomllib
from decimal import Decimal
from pathlib import Path

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from contract.flows.chat import CHAT
from router.admin import config_file
from router.admin.config_file import EditRefused, NotWritten, Tables, edit_flow, edit_tables
from router.config.errors import ConfigRefused
from router.config.loader import load_settings

SPECS = {"chat": CHAT}
OFF = {"enable_langgraph": False}
FULL = """# our rollout
[rollout]
salt = "2026-11-chat"   # never change

[flows.chat]
enable_langgraph = true
langgraph_percent = 10.0  # since Monday

[flows.chat.options]
wire = "extended"
"""
PIECES = [
    "[rollout]\nsalt = 's'  # salt\n",
    "[flows.chat]\nlanggraph_percent = 1.5  # share\n",
    "[flows.chat.options]\nwire = 'extended'\n",
    "[server]\n# a port\nport = 1\n",
    '[providers.p]\nbase_url = "http://127.0.0.1:1/v1"\n',
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a real file."""
    file = tmp_path / "cutover.toml"
    file.write_text(FULL, "utf-8")
    return file


def left(path: Path) -> list[str]:
    """Return what lies beside the file, but for the lock."""
    others = {path.name, f".{path.name}.lock"}
    return [one.name for one in path.parent.iterdir() if one.name not in others]


def test_a_value_is_set_and_everything_else_stays(path: Path) -> None:
    """Comments, order and blanks; the values before and after are told."""
    edited = edit_flow(path, SPECS, "chat", {"langgraph_percent": Decimal("25.125")})
    assert path.read_text("utf-8") == FULL.replace("10.0", "25.125") == edited.text
    assert (dict(edited.before), dict(edited.after)) == (
        {"langgraph_percent": Decimal("10.000")},
        {"langgraph_percent": Decimal("25.125")},
    )
    assert edited.settings == load_settings(path, SPECS)
    assert left(path) == []


def test_the_same_again_touches_nothing(path: Path) -> None:
    """Not even the time stamp."""
    assert edit_flow(path, SPECS, "chat", OFF).changed
    before = path.stat()
    assert not edit_flow(path, SPECS, "chat", OFF).changed
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


@pytest.mark.untraced
@given(st.lists(st.sampled_from(PIECES), unique=True), st.sampled_from([0, 7.25, 100]))
def test_any_order_of_tables_can_be_edited(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], percent: float
) -> None:
    """Together, apart, or not there at all: only the values asked for are other ones."""
    path = tmp_path_factory.mktemp("any") / "cutover.toml"
    path.write_text("".join(pieces), "utf-8")
    wanted: dict[str, bool | Decimal] = {
        "enable_langgraph": True,
        "langgraph_percent": Decimal(str(percent)),
    }
    edit_flow(path, SPECS, "chat", wanted)
    text = path.read_text("utf-8")
    assert all(piece.partition("#")[2] in text for piece in pieces)
    expected = tomllib.loads("".join(pieces))
    chat = expected.setdefault("flows", {}).setdefault("chat", {})
    chat |= {"enable_langgraph": True, "langgraph_percent": chat.get("langgraph_percent", 0)}
    found = tomllib.loads(text)
    assert found["flows"]["chat"].pop("langgraph_percent", 0) == percent
    del chat["langgraph_percent"]
    assert found == expected


@pytest.mark.parametrize(
    "text",
    [
        "flows.chat.langgraph_percent = 10\n",
        "flows = {chat = {langgraph_percent = 10}}\n",
        "[flows]\nchat.langgraph_percent = 10\n",
        "[flows.chat]\r\nlanggraph_percent = 10\r\n",
        "",
    ],
)
def test_any_spelling_can_be_edited(path: Path, text: str) -> None:
    """Dotted, inline, with other line ends, or nothing at all."""
    path.write_text(text, "utf-8", newline="")
    edit_flow(path, SPECS, "chat", {"enable_langgraph": True})
    flow = load_settings(path, SPECS).flows["chat"]
    assert flow.enable_langgraph
    assert flow.langgraph_percent == (10 if text else 0)
    assert (b"\r\n" in path.read_bytes()) == ("\r\n" in text)


@pytest.mark.parametrize(
    ("text", "flow", "values"),
    [
        (FULL, "chta", OFF),
        (FULL, "chat", {"langgraph_percent": Decimal("100.5")}),
        (FULL, "chat", {"langgraph_percent": Decimal("0.0005")}),
        (FULL + "[sevrer]\n", "chat", OFF),
        ("[flows", "chat", OFF),
    ],
)
def test_what_would_be_refused_is_not_written(
    path: Path, text: str, flow: str, values: dict[str, bool | Decimal]
) -> None:
    """A file that cannot be read is not edited: the refusal says what is wrong."""
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigRefused, match=r"cutover\.toml"):
        edit_flow(path, SPECS, flow, values)
    assert path.read_text("utf-8") == text
    assert left(path) == []


def test_links_and_modes_stay(path: Path, tmp_path: Path) -> None:
    """A link still leads to the file, and who could read it still can."""
    path.chmod(0o640)
    link = tmp_path / "linked.toml"
    link.symlink_to(path)
    edit_flow(link, SPECS, "chat", OFF)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert not load_settings(path, SPECS).flows["chat"].enable_langgraph


def test_an_edit_by_hand_meanwhile_is_not_lost(path: Path) -> None:
    """An editor does not know the lock: who calls is told to do so again."""
    by_hand = MODELS + "# by hand\n"
    path.write_text(MODELS, "utf-8")
    with pytest.raises(NotWritten, match="edited meanwhile; repeat the request"):
        edit_tables(path, SPECS, lambda _: NEW, lambda _: path.write_text(by_hand, "utf-8"))
    assert path.read_text("utf-8") == by_hand
    assert left(path) == []


def test_two_writers_do_not_lose_an_edit(path: Path) -> None:
    """One after the other: both edits are in the file."""
    edits = [
        {"langgraph_percent": Decimal(n)} if n % 2 else {"shadow_percent": Decimal(n)}
        for n in range(1, 13)
    ]
    threads = [
        threading.Thread(target=edit_flow, args=(path, SPECS, "chat", values)) for values in edits
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    flow = load_settings(path, SPECS).flows["chat"]
    assert flow.langgraph_percent % 2 == 1
    assert flow.shadow_percent % 2 == 0
    assert flow.shadow_percent > 0


def test_a_writer_that_does_not_end_is_not_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, and the file is as it was."""
    monkeypatch.setattr(config_file, "LOCK_SECONDS", 0.0)
    with path.with_name(".cutover.toml.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(NotWritten, match="another process is writing it"):
            edit_flow(path, SPECS, "chat", OFF)
    assert path.read_text("utf-8") == FULL
    edit_flow(path, SPECS, "chat", OFF)


def test_an_edit_that_would_change_more_is_not_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever an editor of TOML may get wrong, the rest of the file means what it meant."""

    def careless(_: object) -> str:
        return FULL.replace("10.0", "20.0").replace("extended", "strict")

    monkeypatch.setattr(tomlkit, "dumps", careless)
    with pytest.raises(NotWritten, match="more than it should"):
        edit_flow(path, SPECS, "chat", {"langgraph_percent": Decimal(20)})
    assert path.read_text("utf-8") == FULL


def test_a_failing_disk_leaves_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole or not at all, and no rest beside it."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotWritten, match="no space left"):
        edit_flow(path, SPECS, "chat", OFF)
    assert path.read_text("utf-8") == FULL
    assert left(path) == []


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """It is not made: a router reads another one."""
    with pytest.raises(ConfigRefused, match="no such file"):
        edit_flow(tmp_path / "absent.toml", SPECS, "chat", OFF)


MODELS = """# ours
[providers.p]
base_url = "http://127.0.0.1:1/v1"  # here

[models."gpt-4.1"]
provider = "p"
input_price = 2.0   # dollars
output_price = 8.0
"""
NEW: Tables = {
    ("models", "a/b:1.5"): {"provider": "q", "fallbacks": ["gpt-4.1"]},
    ("providers", "q"): {"base_url": "http://127.0.0.1:2/v1", "idle_seconds": 5.0},
}
GONE: Tables = {("models", "gpt-4.1"): None}


def put(path: Path, tables: Tables) -> config_file.Edited:
    """Replace tables of the file."""
    return edit_tables(path, SPECS, lambda _: tables, lambda _: None)


def test_a_table_is_added_at_the_end_and_removed_whole(path: Path) -> None:
    """What people wrote stays as it is; what changed is told by key, without what stays unset."""
    path.write_text(MODELS, "utf-8")
    edited = put(path, NEW)
    assert path.read_text("utf-8") == edited.text
    assert edited.text.startswith(MODELS)
    assert edited.settings == load_settings(path, SPECS)
    assert edited.after["models.a/b:1.5.provider"] == "q"
    assert edited.before["models.a/b:1.5.provider"] is None
    assert "models.a/b:1.5.input_price" not in edited.after
    assert not put(path, NEW).changed
    put(path, {**dict.fromkeys(NEW), ("models", "gpt-4.1"): {"provider": "p"}})
    assert path.read_text("utf-8").rstrip() == MODELS.partition("input_price")[0].rstrip()


def test_a_table_is_replaced_with_the_comments_of_what_stays(path: Path) -> None:
    """Keys that are left out go."""
    path.write_text(MODELS, "utf-8")
    table = {"provider": "p", "input_price": 2.0, "output_price": 9.0}
    edited = put(path, {("models", "gpt-4.1"): table})
    assert path.read_text("utf-8") == MODELS.replace("8.0", "9.0")
    assert (edited.before, edited.after) == (
        {"models.gpt-4.1.output_price": 8.0},
        {"models.gpt-4.1.output_price": 9.0},
    )


BLOCKS = {
    '[models."gpt-4.1"]': 'provider = "p"\n# input_price = 1.0\n',
    "[models.b]  # the second": 'provider = "p"\n\n',
    "[flows.chat]": "enable_langgraph = true\n",
    "[flows.chat.options]": 'wire = "extended"\n',
    "[server]": "port = 1\n",
    "[providers.p]": 'base_url = "http://127.0.0.1:1/v1"\n',
}


@pytest.mark.untraced
@given(st.permutations(list(BLOCKS)), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_a_comment_stays_above_what_it_is_about(
    tmp_path_factory: pytest.TempPathFactory, headers: list[str], end: str, blank: bool
) -> None:
    """Whatever is added to the table before it, or removed; line ends stay those of the file."""
    path = tmp_path_factory.mktemp("any") / "cutover.toml"
    text = "".join(f"{chr(10) * blank}# on {one}\n{one}\n{BLOCKS[one]}" for one in headers)
    path.write_text(f"{text}# the end", "utf-8", newline=end)
    edit_flow(path, SPECS, "chat", {"langgraph_percent": Decimal(5)})
    table = {"provider": "p", "input_price": 2.0, "output_price": 3.0}
    put(path, {("models", "b"): table, ("models", "gpt-4.1"): None})
    written = path.read_bytes().decode()
    assert written.count("\n") == written.count(end)
    lines = [line for line in written.splitlines() if line]
    above = {line: lines[number - 1] for number, line in enumerate(lines) if line[0] == "["}
    assert above == {one: f"# on {one}" for one in headers if "gpt" not in one}
    assert {'# on [models."gpt-4.1"]', "# the end"} < set(lines)


@pytest.mark.parametrize(
    "text",
    [
        'models."gpt-4.1".provider = "p"\nproviders.p.base_url = "http://127.0.0.1:1/v1"\n',
        'models = {"gpt-4.1" = {provider = "p"}}\n[providers]\np.base_url = "http://h/v1"\n',
        """
        [models."gpt-4.1"]
        provider = "p"
        [server]
        port = 1
        [models.x]
        provider = "p"
        [providers.p]
        base_url = "http://h/v1"
        """,
        '[providers.p]\r\nbase_url = "http://h/v1"\r\n[models."gpt-4.1"]\r\nprovider = "p"\r\n',
    ],
    ids=["dotted", "inline", "apart", "line ends"],
)
def test_any_spelling_of_models_can_be_edited(path: Path, text: str) -> None:
    """Added and removed, and nothing else."""
    path.write_text(text, "utf-8", newline="")
    wanted = {*load_settings(path, SPECS).models, "a/b:1.5"}
    assert put(path, NEW).settings.models.keys() == wanted
    added = path.read_bytes()
    assert (b"\r\n" in added) == (b"\r\n" in text.encode())
    assert b"\r\n" not in added or added.count(b"\n") == added.count(b"\r\n")
    table: Tables = {("models", "a/b:1.5"): {"provider": "q"}}
    assert put(path, table).changed
    assert put(path, GONE).settings.models.keys() == wanted - {"gpt-4.1"}


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        ({("models", "x"): {"provider": "absent"}}, "models.x.provider = 'absent': unknown"),
        ({("models", "x"): {"provider": "p", "fallbacks": ["y"]}}, "unknown model"),
        ({("models", "x"): {"provider": "p", "input_price": -1.0}}, "models.x.input_price"),
        ({("providers", "p"): None}, "models.gpt-4.1.provider"),
    ],
)
def test_models_that_would_be_refused_are_not_written(path: Path, tables: Tables, why: str) -> None:
    """The refusal says what is wrong, and the file is as it was."""
    path.write_text(MODELS, "utf-8")
    with pytest.raises(EditRefused, match=why):
        put(path, tables)
    assert path.read_text("utf-8") == MODELS
