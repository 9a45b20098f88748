"""`cutover serve` as it is typed: what it refuses to start on; memory it gives back."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutover.cli import app
from cutover.server.serve import map_large_allocations
from cutover.server.sockets import PortTaken, listen
from loadtests.processes import child_environment

CONFIGURATION = """
[captures]
path = "{folder}/made/captures"
[stores]
conversations = "sqlite:///{folder}/made/store.sqlite"
memory = "sqlite:///{folder}/made/store.sqlite"
history = ""
pauses = "sqlite:///{folder}/made/store.sqlite"
{more}
"""


def serve(folder: Path, more: str, *arguments: str) -> tuple[int, str]:
    """Start the router on a configuration it refuses; returns exit status and what it said."""
    path = folder / "cutover.toml"
    path.write_text(CONFIGURATION.format(folder=folder, more=more), "utf-8")
    result = CliRunner().invoke(app, ["serve", "--config", str(path), *arguments])
    assert not (folder / "made").exists(), "nothing may be left behind"
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("[flows.chat]\nlanggraph_persent = 3", ("langgraph_persent", "'langgraph_percent'")),
        ("[flows.chta]", ("flows.chta", "'chat'")),
        ("[sevrer]", ("sevrer", "'server'")),
        ("[flows.chat]\nlanggraph_percent = 100.5", ("langgraph_percent = 100.5", "0 to 100")),
        ("[flows.chat.options]\nwire = 'loose'", ("options.wire = 'loose'", "'strict'")),
        ("[server]\nport = 'http'", ("server.port = 'http'",)),
        ("[server", ("not TOML",)),
    ],
)
def test_a_bad_configuration_exits_2_with_file_key_and_hint(
    tmp_path: Path, more: str, words: tuple[str, ...]
) -> None:
    """One sentence: where, what, and what was probably meant; no traceback."""
    status, said = serve(tmp_path, more)
    assert status == 2
    for word in (str(tmp_path / "cutover.toml"), *words):
        assert word in said
    assert "Traceback" not in said
    assert len(said.splitlines()) == 1


def test_a_missing_file_exits_2(tmp_path: Path) -> None:
    """A file that was named must be there."""
    result = CliRunner().invoke(app, ["serve", "--config", str(tmp_path / "absent.toml")])
    assert result.exit_code == 2
    assert "absent.toml" in result.output
    assert "no such file" in result.output


@pytest.mark.sockets
def test_a_port_in_use_exits_2_and_leaves_nothing(tmp_path: Path) -> None:
    """The message names the address and the way out."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = serve(tmp_path, f"[server]\nport = {port}")
    assert status == 2
    assert f"cannot listen on 127.0.0.1:{port}: address already in use; stop what uses" in said
    assert "[server] port" in said


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("host", "port", "why"),
    [
        ("192.0.2.1", 0, "cannot assign requested address; [server] host is to be an address"),
        ("127.0.0.1", 65536, "ports are 0 to 65535"),
    ],
)
def test_an_address_there_is_not_is_refused_with_what_is_wrong(
    host: str, port: int, why: str
) -> None:
    """The advice to stop another process is not given where none listens."""
    with pytest.raises(PortTaken, match=re.escape(f"cannot listen on {host}:{port}: {why}")) as no:
        listen(host, port)
    assert "while" not in str(no.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", ["captures: [captures] pseudonym_key_env names no key"]),
        ('pseudonym_key_env = "NOT_THERE"', ["captures: 'NOT_THERE' is not set"]),
        ('pseudonym_key_env = "PATH"', []),
        ("percent = 0", []),
    ],
)
def test_captures_nobody_will_be_found_in_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, more: str, said: list[str]
) -> None:
    """At the start, before there are any; nothing where nothing is captured."""
    (tmp_path / "cutover.toml").write_text(f"[captures]\n{more}\n", "utf-8")
    CliRunner().invoke(app, ["serve", f"--config={tmp_path / 'cutover.toml'}", "--port=65536"])
    assert [one.getMessage().rpartition(": ")[0] for one in caplog.records] == said


@pytest.mark.sockets
def test_a_key_that_is_not_set_exits_2(tmp_path: Path) -> None:
    """The variable is named, so that one knows what to set."""
    models = '[models."gpt-4.1"]\nprovider = "p"\n'
    provider = '[providers.p]\nbase_url = "http://127.0.0.1:1/v1"\nkey_env = "CUTOVER_UNSET_KEY"\n'
    status, said = serve(tmp_path, models + provider, "--port", "0")
    assert status == 2
    assert "'CUTOVER_UNSET_KEY'" in said


@pytest.mark.sockets
def test_a_stack_that_is_not_there_exits_2(tmp_path: Path) -> None:
    """Also before a store or a capture is made."""
    status, said = serve(tmp_path, '[stacks]\ngraph = "nowhere:FLOWS"', "--port", "0")
    assert status == 2
    assert "'nowhere:FLOWS'" in said


PROGRAM = """
from cutover.server.serve import map_large_allocations

def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

assert map_large_allocations()
small = []
before = held()
for size in (9_000_000, 8_000_000, 7_000_000):
    pieces = []
    for _ in range(20):
        pieces.append(bytes(size))
        small.append(bytes(100_000))
    pieces.clear()
print(held() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's alone")
def test_what_is_large_is_given_back() -> None:
    """Left alone, glibc keeps a good part of it between what is small and still held."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=child_environment(),
        capture_output=True,
        check=True,
        text=True,
    )
    assert int(done.stdout) < 32_000_000, "after all large blocks were released"


@pytest.mark.parametrize("variable", ["MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_who_has_decided_otherwise_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Variables of glibc go before what suits a router."""
    monkeypatch.setenv(variable, "33554432")
    assert not map_large_allocations()


FROZEN = """
import gc
from cutover.server.serve import freeze_garbage_collector
lived = [[] for _ in range(200_000)]
freeze_garbage_collector()
gc.set_threshold(10, 2, 2)
before = gc.get_stats()[2]["collections"]
new = [[] for _ in range(1_000)]
print(gc.get_stats()[2]["collections"] - before)
"""


@pytest.mark.slow
def test_what_was_frozen_puts_off_no_full_collection() -> None:
    """A full collection waits for a quarter as many objects as can be garbage, frozen ones not."""
    done = subprocess.run(
        [sys.executable, "-c", FROZEN],
        env=child_environment(),
        capture_output=True,
        check=True,
        text=True,
    )
    assert int(done.stdout) > 0
