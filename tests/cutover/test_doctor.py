"""`cutover doctor`: what it finds, what it says of the set-up, and its exit status."""

from __future__ import annotations

import socket
import sys
from base64 import b64encode
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutover.cli import app
from cutover.doctor import PartCheck, examine
from router.config.schema import ServerSettings
from tests.support.deployment import KEY, deployed

pytestmark = pytest.mark.sockets

RUNGS = ("mirror", "gateway", "replay", "failover", "takeover")
GOOD = """
[captures]
path = "{folder}/captures"
{captures}
[stores]
{stores}
conversations = "sqlite:///{folder}/made/store.sqlite"
memory = "memory://"
pauses = "memory://"
[providers.near]
base_url = "http://127.0.0.1:{port}/v1"
[models."gpt-4.1"]
provider = "near"
"""
BOTH = """
[stacks]
legacy = "http://127.0.0.1:{port}/chat/sse"
[stacks.graph]
url = "http://127.0.0.1:{port}/"
shadow_safe = true
[flows.chat]
enable_langgraph = true
langgraph_percent = 10
shadow_percent = 100
"""


def doctor(
    folder: Path, more: str = "", *, port: int = 1, stores: str = "", captures: str = ""
) -> tuple[int, str]:
    """Examine a configuration; something listens on `port`. Returns status and output."""
    path = folder / "cutover.toml"
    text = (GOOD + more).format(folder=folder, port=port, stores=stores, captures=captures)
    path.write_text(text, "utf-8")
    result = CliRunner().invoke(app, ["doctor", "--config", str(path)], env={"COLUMNS": "300"})
    assert [one.name for one in folder.iterdir()] == ["cutover.toml"], "nothing is made"
    return result.exit_code, result.output


def test_a_sound_set_up_exits_0(tmp_path: Path) -> None:
    """Built-in stacks, a provider that is there, stores that can be written."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        status, said = doctor(tmp_path, port=server.getsockname()[1])
    assert status == 0, said
    assert "good    stacks.legacy: legacy:FLOWS, fingerprint " in said
    assert "/v1: reachable" in said
    assert "/chat/sse, chat (configured: off), served by legacy" in said
    assert "missing" not in said


def test_flows_that_no_stack_has_are_no_fault(tmp_path: Path) -> None:
    """They are off: their default models are not asked for; that of the flow there is."""
    more = """
[stacks]
legacy = "tests.cutover.replay.stacks:OLD_CRASHING"
graph = "tests.cutover.replay.stacks:CHANGED_PROMPT"
[flows.chat]
enable_langgraph = true
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        status, said = doctor(tmp_path, more, port=port)
        assert (status, "missing" in said) == (0, False), said
        assert "companion, ops, pipeline, session, which are off" in said
        status, said = doctor(tmp_path, more + "[flows.chat.options]\nmodel_id = 'x'", port=port)
        assert status == 1
        assert "missing models: flows.chat.options.model_id = 'x' is none of them\n" in said
        other = more.replace(
            "[flows.chat]", "[flows.companion.options]\nmodel_id='x'\n[flows.chat]"
        )
        assert doctor(tmp_path, other, port=port)[0] == 0


async def test_a_running_router_is_asked_what_it_needs_a_restart_for(tmp_path: Path) -> None:
    """Its keys are named until the edit is taken back, as in `/readyz`; none of it is a fault."""
    async with deployed(tmp_path) as place:
        path, port = place.watched.path, int(place.url.rpartition(":")[2])
        before = path.read_text("utf-8")
        changed = before.replace("[captures]", "[captures]\npercent = 50.0")
        for text, words in (
            (before, "no change waits for a restart"),
            (changed, "captures.percent changed since the start: restart cutover serve"),
            (before, "no change waits for a restart"),
        ):
            place.edit(text)
            server = ServerSettings(port=port)
            settings = place.watched.settings().model_copy(update={"server": server})
            checks = await examine(settings, {KEY: "key"})
            [router] = (check for check in checks if check.part == "router")
            assert router == PartCheck("router", ok=True, detail=f"{place.url}: {words}")
            found = (await place.get("/readyz"))["faults"].get("restart")
            assert found == (words if text == changed else None)


def test_a_router_that_does_not_run_is_no_fault(tmp_path: Path, unused_port: int) -> None:
    """An edit is in force when it starts."""
    said = doctor(tmp_path, f"[server]\nport = {unused_port}\n")[1]
    assert f"note    router: none runs at http://127.0.0.1:{unused_port}\n" in said


def test_a_store_of_no_known_kind_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The router would not start: that it lasts as long as a process is no answer."""
    monkeypatch.setenv("PINS", "memcached://127.0.0.1")
    status, said = doctor(tmp_path, stores='pins = "env:PINS"')
    assert status == 1
    assert "missing stores.pins: pins cannot be kept in 'memcached'; known are process" in said


def test_whether_captures_can_be_searched_for_somebody_is_said(tmp_path: Path) -> None:
    """Without a key pseudonyms are equal only within one process."""
    said = doctor(tmp_path)[1]
    assert "note    pseudonyms: [captures] pseudonym_key_env names no key" in said
    assert "`cutover forget` refuses, or with --plain finds plain ids alone" in said
    assert "pseudonyms:" not in doctor(tmp_path, captures='pseudonym_key_env = "PATH"')[1]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (None, "note    receipts: [server] receipt_key_env names no key: one is stored in"),
        ("k" * 16, "good    receipts: signed by the first of 1 in KEYS"),
        ("short", "missing receipts: the keys of receipts in 'KEYS' cannot be used"),
    ],
)
def test_which_key_signs_receipts_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str | None, words: str
) -> None:
    """That none is configured is no fault; one that cannot be used is."""
    monkeypatch.setenv("KEYS", keys or "")
    more = "" if keys is None else '[server]\nreceipt_key_env = "KEYS"'
    assert words in doctor(tmp_path, more)[1]


def test_the_models_whose_tokens_are_counted_exactly_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where their tokenizers are there; that they are not is no fault."""
    pytest.importorskip("splintr")
    more = '[models."local"]\nprovider = "near"\n'
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        found = [doctor(tmp_path, more, port=port)]
        monkeypatch.setitem(sys.modules, "splintr", None)
        found.append(doctor(tmp_path, more, port=port))
    assert [status for status, _ in found] == [0, 0]
    assert "good    tokens: counted exactly for gpt-4.1\n" in found[0][1]
    assert "tokens: estimated, also for gpt-4.1: the extra 'tokens' is not" in found[1][1]


def test_what_is_missing_exits_1(tmp_path: Path, unused_port: int) -> None:
    """Each with its part and the reason."""
    more = """
[server]
qa_key_env = "NOT_SET_HERE"
[tracing]
endpoint_env = "NOR_THIS"
[stacks]
legacy = "http://127.0.0.1:{port}"
graph = "nowhere:FLOWS"
"""
    status, said = doctor(tmp_path, more, port=unused_port)
    assert status == 1
    here = f"http://127.0.0.1:{unused_port}"
    unanswered = f"no server listens at 127.0.0.1:{unused_port}"
    for words in (
        f"missing stacks.legacy: {here}/api/chat, ",
        f"{here}/api/v1/chat, ",
        f"{here}/chat/sse, {here}/ops/react: {unanswered}",
        "missing stacks.graph: stack 'graph' cannot be loaded from 'nowhere:FLOWS'",
        f"missing providers.near: {here}/v1: {unanswered}",
        "missing server.qa_key_env: environment: NOT_SET_HERE: not set",
        "missing tracing.endpoint_env: environment: NOR_THIS: not set",
    ):
        assert words in said


@pytest.mark.parametrize(
    ("more", "status", "words"),
    [
        ("", 0, "note    pauses: not encrypted: [pauses] key_env names no key"),
        ('[pauses]\nkey_env = "KEYS"', 0, "good    pauses: sealed by the first key in KEYS; what"),
        ('[pauses]\nkey_env = "KEYS"\nstrict = true', 0, "stored without one is refused"),
        ('[pauses]\nkey_env = "SHORT"', 1, "missing pauses: the keys in 'SHORT' cannot be used"),
        ('[pauses]\nkey_env = "UNSET"', 1, "missing pauses: the keys in 'UNSET' cannot be used"),
    ],
)
def test_whether_pauses_are_sealed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, status: int, words: str
) -> None:
    """Without a key it is no fault, with one that cannot be used it is."""
    monkeypatch.setenv("KEYS", b64encode(bytes(32)).decode())
    monkeypatch.setenv("SHORT", b64encode(bytes(8)).decode())
    with socket.create_server(("127.0.0.1", 0)) as server:
        found, said = doctor(tmp_path, more, port=server.getsockname()[1])
    assert found == status, said
    assert words in said


@pytest.mark.parametrize(
    ("more", "status", "words"),
    [
        ("system = true", 0, "good    workers: system.disk, system.memory, system.processes\n"),
        ('root = "{folder}"\nhosts = ["*"]', 0, "workers: system.large_files, network.reach\n"),
        ('root = "{folder}/no"', 1, "/no: no folder, and workers.root names it"),
        ('engine = "unix://{folder}/no"', 1, "there is no container engine: its socket takes no"),
        (
            '[workers.deploy]\nroot = "{folder}/a"\nsource = "/usr"\ncheck = ["no-such"]',
            1,
            "missing workers: no-such: no program, and workers.deploy.check names it",
        ),
        (
            '[workers.deploy]\nroot = "{folder}/a"\nsource = "/usr"\ncheck = ["./of/the/release"]',
            0,
            "deploy.verify",
        ),
    ],
)
def test_what_workers_can_do_is_listed(tmp_path: Path, more: str, status: int, words: str) -> None:
    """Once their folders, programs and engine are there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found, said = doctor(tmp_path, f"[workers]\n{more}\n", port=port)
    assert found == status, said
    assert words in said


def test_a_refused_configuration_exits_1(tmp_path: Path) -> None:
    """With the reason the router would refuse it for."""
    status, said = doctor(tmp_path, BOTH.replace("shadow_safe = true", ""))
    assert status == 1
    assert "refused" in said
    assert "graph is behind an address and not declared shadow_safe" in said


@pytest.mark.parametrize("wrong", ["@127.0.0.1:99999", "@127.0.0.1:none", "@[::1", "/@127.0.0.1"])
def test_an_address_that_is_none_is_said(tmp_path: Path, wrong: str) -> None:
    """A variable may hold anything; the secret in it is not shown."""
    path = tmp_path / "cutover.toml"
    path.write_text('[stores]\nconversations = "env:PLACE"\n', "utf-8")
    environ = {"COLUMNS": "300", "PLACE": f"postgresql://u:secret{wrong}/store"}
    result = CliRunner().invoke(app, ["doctor", "--config", str(path)], env=environ)
    assert result.exit_code == 1
    assert "missing stores.conversations: env:PLACE: " in result.output
    assert "secret" not in result.output


def test_what_can_and_cannot_be_done_is_said_by_who_serves(tmp_path: Path) -> None:
    """Two services: the table of the design, line by line; limits are no fault."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        status, said = doctor(tmp_path, BOTH, port=server.getsockname()[1])
    assert status == 0, said
    table, _, steps = said.partition("companion")[0].partition(" what each step gives")
    by_legacy, by_graph = table.split("served by legacy")[1].split("served by graph")
    legacy = [line.split(None, 2) for line in by_legacy.splitlines() if line.startswith(" ")]
    graph = [line.split(None, 2) for line in by_graph.splitlines() if line.startswith(" ")]
    assert [row[:2] for row in legacy] == [
        ["fallback", "off"],
        ["takeover", "off"],
        ["shadow", "yes"],
        ["replay", "no"],
    ]
    assert [row[:2] for row in graph] == [
        ["fallback", "yes"],
        ["takeover", "no"],
        ["shadow", "no"],
        ["replay", "no"],
        ["conversations", "shared:"],
    ]
    assert graph[1][2].strip().endswith("a broken stream ends in failure frames")
    assert "legacy is behind an address and not declared shadow_safe" in graph[2][2]
    rungs = [line.split(None, 2) for line in steps.splitlines() if line.startswith(" ")]
    assert [row[:2] for row in rungs if row[0] in RUNGS] == [[rung, "yes"] for rung in RUNGS]
    taken = [" ".join(row) for row in rungs if row[0] not in RUNGS]
    assert [row.split(",")[0].strip() for row in taken] == [
        "in force",
        "takes gateway.enabled = true",
        "takes gateway.enabled = true",
        "in force",
        "takes gateway.enabled = true",
    ]
    assert "stacks.legacy.resumable = true" in taken[4]


@pytest.mark.parametrize("percent", [0, 10, 100])
@pytest.mark.parametrize("place", ["no_such:FLOWS", "legacy.chat:FLOWS", "types:SimpleNamespace"])
def test_nothing_is_promised_of_a_stack_without_the_flow(
    tmp_path: Path, percent: int, place: str
) -> None:
    """It cannot be loaded: no fallback, takeover or shadow, and nothing that it serves itself."""
    flow = f"[flows.chat]\nenable_langgraph = true\nlanggraph_percent = {percent}\n"
    more = f'[stacks]\ngraph = "{place}"\n{flow}fallback_to_graph = true\nshadow_percent = 50\n'
    status, said = doctor(tmp_path, more)
    assert (status, "missing stacks.graph: " in said) == (1, True)
    chat = said.partition("/chat/sse, chat")[2].partition("companion")[0]
    left = "graph is to serve it, and does not have it"
    assert (left in chat) == (percent > 0)
    assert ("served by legacy" in chat) == (percent < 100)
    rows = [line.split(None, 2) for line in chat.splitlines()[1:] if line.startswith(" ")]
    none = "graph does not have this flow"
    assert [(kind, answer, why.strip()) for kind, answer, why in rows] == [
        ("fallback", "no", none),
        ("takeover", "no", none),
        ("shadow", "no", none),
        ("replay", "yes", "from the tape"),
    ] * (percent < 100)


def test_what_the_gateway_makes_possible_is_said(tmp_path: Path) -> None:
    """With it a broken stream can be gone on with, and a shadow asks no model twice."""
    resumable = BOTH.replace("shadow_safe", "resumable = true\nshadow_safe")
    status, said = doctor(tmp_path, resumable)
    assert status == 1
    assert "its model must be called through the gateway ([gateway] enabled = true)" in said
    more = resumable.replace("[flows.chat]", "[gateway]\nenabled = true\n[flows.chat]")
    with socket.create_server(("127.0.0.1", 0)) as server:
        more = more.replace("shadow_percent", "fallback_to_graph = true\nshadow_percent")
        status, said = doctor(tmp_path, more, port=server.getsockname()[1])
    assert status == 0, said
    by_legacy = said.split("served by legacy")[1]
    assert (
        "graph continues the text, with the model's answers to legacy by the gateway" in by_legacy
    )
    assert "equal model calls of both through the gateway are made once" in by_legacy


@pytest.mark.parametrize(
    ("listen", "said"),
    [
        ("127.0.0.1:UNUSED", "note gateway: none runs at http://127.0.0.1:UNUSED"),
        ("127.0.0.1:TAKEN", "good gateway: http://127.0.0.1:TAKEN: reachable"),
        ("users", "note gateway: on the address of [server]: users reach it, too"),
    ],
)
def test_where_the_gateway_listens_is_said(
    tmp_path: Path, unused_port: int, listen: str, said: str
) -> None:
    """That no router runs is no fault; that users reach it is worth a note."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]

        def filled(text: str) -> str:
            return text.replace("UNUSED", str(unused_port)).replace("TAKEN", str(taken))

        gateway = f'[gateway]\nenabled = true\nlisten = "{filled(listen)}"\n[flows.chat]'
        _, printed = doctor(tmp_path, BOTH.replace("[flows.chat]", gateway), port=taken)
    assert filled(said) in " ".join(printed.split())


def test_whose_answers_shadows_are_told(tmp_path: Path) -> None:
    """Those that were served, or their own."""
    live = """
[shadow]
mode = "live"
tokens_per_day = 1000
{history}
[flows.session]
enable_langgraph = true
shadow_percent = 100
"""
    for history, replies in (
        ("", "the replies that were served"),
        ("own", "its own earlier replies"),
    ):
        more = live.replace("{history}", f'history = "{history}"' if history else "")
        _, said = doctor(tmp_path, more)
        assert f"graph plays the tape, and calls the model itself, after {replies}" in said


def test_flows_that_are_off_are_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A team's stacks need not have every flow; one that is on must be there."""
    (tmp_path / "stacks").mkdir()
    monkeypatch.chdir(tmp_path / "stacks")
    monkeypatch.syspath_prepend(str(tmp_path / "stacks"))
    Path("team_stack.py").write_text(
        "import legacy\nFLOWS = {n: legacy.FLOWS[n] for n in ('chat', 'session', 'companion')}\n",
        "utf-8",
    )
    (tmp_path / "set-up").mkdir()
    stacks = '[stacks]\nlegacy = "team_stack:FLOWS"\ngraph = "team_stack:FLOWS"\n'
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        status, said = doctor(tmp_path / "set-up", stacks, port=port)
        assert status == 0, said
        assert "it has no flow ops, pipeline, which are off" in said
        assert not any(path in said for path in ("/ops/react", "/api/chat,"))
        assert "is to serve it, and does not have it" not in said
        on = stacks + "[flows.ops]\nenable_langgraph = true\n"
        status, said = doctor(tmp_path / "set-up", on, port=port)
    assert status == 1
    assert "missing stacks.graph: team_stack:FLOWS: it has no flow ops\n" in said
