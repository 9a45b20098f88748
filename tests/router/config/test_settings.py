"""The configuration: good defaults, and refusals that say what to do."""

import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from contract.flows.chat import CHAT, ChatOptions
from router.config.addresses import read_secret, resolve_address
from router.config.errors import ConfigRefused
from router.config.loader import load_settings, parse_settings
from router.config.schema import RemoteStackSettings, Settings

SPECS = {"chat": CHAT}
ALONE = "enable_langgraph = true\nlanggraph_percent = 100\nlanggraph_fallback = false"
PROVIDER = '[providers.openai]\nbase_url = "http://127.0.0.1:1/v1"\n'

_MODEL = '[providers.p]\nbase_url = "http://h/"\n[models.m]\nprovider = "p"\n'


def read(text: str) -> Settings:
    """Parse a file called `cutover.toml`."""
    return parse_settings(text, "cutover.toml", SPECS)


def refusal(text: str) -> str:
    """Return the sentence a text is refused with."""
    with pytest.raises(ConfigRefused) as caught:
        read(text)
    return str(caught.value)


def test_an_empty_file_works() -> None:
    """Everything has a default, and every known flow is there: off, everything to legacy."""
    settings = read("")
    flow = settings.flows["chat"]
    assert flow.stage == "off"
    assert flow.langgraph_fallback
    assert not flow.fallback_to_graph
    assert flow.route_key == "message_id"
    assert flow.options == ChatOptions()
    assert settings.limits.exchange_bytes == 4_194_304
    assert settings.limits.total_bytes == 268_435_456
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8080)


def test_a_full_file_is_read() -> None:
    """Every section reaches its value."""
    settings = read(
        """
        [rollout]
        salt = "2026-11-chat"
        [flows.chat]
        enable_langgraph = true
        langgraph_percent = 10.125
        shadow_percent = 100
        route_key = "session_id"
        force_graph = ["qa-1"]
        [flows.chat.options]
        wire = "extended"
        yield_interval = 0.25
        [shadow]
        mode = "tail"
        [captures.redact]
        patterns = {badge = "B-[0-9]{6}", email = ""}
        [stores]
        locks = "redis://127.0.0.1/0"
        conversations = "env:DATABASE"
        [providers.openai]
        base_url = "http://127.0.0.1:1/v1"
        key_env = "OPENAI_API_KEY"
        [models."gpt-4.1"]
        provider = "openai"
        fallbacks = ["small"]
        [models.small]
        provider = "openai"
        model = "gpt-4.1-mini"
        """
    )
    flow = settings.flows["chat"]
    assert flow.langgraph_percent == Decimal("10.125")
    assert flow.shadow_percent == 100
    assert flow.options == ChatOptions(wire="extended", yield_interval=0.25)
    assert settings.models["gpt-4.1"].model == "gpt-4.1"
    assert {"badge", "phone"} <= {one.name for one in settings.patterns.all}
    assert "email" not in {one.name for one in settings.patterns.all}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[server]\nprot = 1", ["server.prot", "did you mean 'port'?"]),
        ("[sever]\nport = 1", ["sever", "did you mean 'server'?"]),
        ('[server]\nport = "80"', ["server.port = '80'", "must be a valid integer"]),
        ("[server]\nport = 70000", ["server.port = 70000", "less than or equal to 65535"]),
        ('[server]\ntrusted_proxies = ["::1", "x"]', ["trusted_proxies[1] = 'x'", "10.0.0.0/8"]),
        ("server = 3", ["server = 3", "must be a table"]),
        ("[flows.chta]", ["flows.chta", "did you mean 'chat'?"]),
        ("[flows]\nchat = 1", ["flows.chat = 1", "must be a table"]),
        ("[flows.chat]\nlanggraph_percent = 10.0001", ["= 10.0001", "steps of 0.001"]),
        ("[flows.chat]\nlanggraph_percent = 100.001", ["= 100.001", "0 to 100"]),
        ("[flows.chat]\nlanggraph_percent = -1", ["= -1", "0 to 100"]),
        ("[flows.chat]\nshadow_percent = nan", ["shadow_percent = NaN", "finite"]),
        ('[flows.chat]\nlanggraph_percent = "10"', ["= '10'", "must be a number"]),
        (
            "[flows.chat]\nlanggraph_percent = true",
            ["langgraph_percent = true", "must be a number"],
        ),
        ('[flows.chat]\nroute_key = "sesion_id"', ["route_key = 'sesion_id'", "'session_id'?"]),
        ('[flows.chat]\nforce_graph=["a"]\nforce_legacy=["a"]', ["force_graph = 'a'", "pinned"]),
        ("[flows.chat]\nforce_graph = [3]", ["flows.chat.force_graph[0] = 3", "valid string"]),
        ("[flows.chat.options]\nwier = 1", ["flows.chat.options.wier", "did you mean 'wire'?"]),
        ('[flows.chat.options]\nwire = "x"', ["options.wire = 'x'", "'strict', 'extended'"]),
        (
            '[flows.chat.options]\ntimezone = "Mars/X"',
            ["flows.chat.options", "no time zone", "'Mars/X'"],
        ),
        ('[flows.chat.options]\ntimezone = "America"', ["flows.chat.options", "'America'"]),
        ("[flows.chat]\noptions = 1", ["flows.chat.options = 1", "must be a table"]),
        ("[flows.chat.options.texts]\na = 1", ["flows.chat.options.texts"]),
        (
            "[flows.chat.options.texts]\nlenght = '…'",
            ["flows.chat.options", "no text is called 'lenght'", "'length'"],
        ),
        ('[shadow]\nmode = "loud"', ["shadow.mode = 'loud'", "'replay', 'tail', 'live'"]),
        ("[captures]\npercent = 0.0005", ["captures.percent = 0.0005", "steps"]),
        ("[captures.redact]\npath = []", ["captures.redact.path", "did you mean 'paths'?"]),
        ('[captures.redact]\npaths = ["body.x"]', ["redact.paths[0] = 'body.x'", "request"]),
        ("[captures.redact.patterns]\nx = '('", ["patterns.x = '('", "regular expression"]),
        ("[captures.redact.patterns]\nx = 'a*'", ["patterns.x", "empty text"]),
        ("[captures.redact.patterns]\nX = 'a'", ["patterns.X", "lower-case"]),
        ('[stores]\nlocks = "file"', ["stores.locks = 'file'", "'process', sqlite://…, redis://…"]),
        ('[stores]\nmemory = "ftp://x"', ["stores.memory", "sqlite://…"]),
        ('[stores]\npauses = "http://x"', ["stores.pauses", "postgresql://…, memory://…"]),
        ("[pauses]\nkeep_seconds = 0", ["pauses.keep_seconds"]),
        ('[pauses]\nkey_env = "no name"', ["pauses.key_env", "the name of an environment"]),
        ('[stores]\npins = "memory://"', ["stores.pins", "'process', sqlite://…, redis://…"]),
        ('[flows.chat]\nsticky = "always"', ["flows.chat.sticky = 'always'", "'conversation'"]),
        ('[flags]\ntenant = "x-tenant"', ["flags.tenant = 'x-tenant'", "'header:NAME'"]),
        ('[flags]\nuser = "header:X"', ["flags.user = 'header:X'", "'body:FIELD'"]),
        ('[flags]\nask = ["langgraph_persent"]', ["flags.ask", "did you mean 'langgraph_percent'"]),
        ("[rollout]\npin_seconds = 0", ["rollout.pin_seconds = 0", "greater than 0"]),
        ('[models.a]\nprovider = "x"', ["models.a.provider = 'x'", "unknown provider"]),
        ("[models.gpt-4.1]\nx = 1", ["models.gpt-4.1", 'quotes: [models."gpt-4.1"]']),
        (PROVIDER + '[models.a]\nprovider="openai"\nfallbacks=["a"]', ["own fallback"]),
        (PROVIDER + '[models.a]\nprovider="openai"\nfallbacks=["b"]', ["unknown model"]),
        ("[providers.p]\nkey_env = 'A'", ["providers.p", "base_url"]),
        ("[rollout]\nsalt = 2026-11-01", ["rollout.salt", "date(2026, 11, 1)", "valid string"]),
        ("[rollout", ["not TOML"]),
        (f"[server]\nport = {'9' * 5_000}", ["not TOML", "digits"]),
        (f"x = {'[' * 5_000}{']' * 5_000}", ["nested too deeply"]),
        (f"x{'.x' * 5_000} = 1", ["x: unknown section"]),
    ],
)
def test_a_refusal_names_file_key_value_and_what_is_allowed(text: str, parts: list[str]) -> None:
    """The sentence alone is enough to mend the mistake."""
    sentence = refusal(text)
    assert sentence.startswith("cutover.toml: ")
    for part in parts:
        assert part in sentence


@pytest.mark.parametrize(
    "text",
    [
        '[server]\nqa_key_env = "sk-hush hush"',
        '[captures]\npseudonym_key_env = "sk-hush!"',
        '[providers.p]\nbase_url = "http://u:hush@127.0.0.1/v1"',
        '[providers.p]\nbase_url = "ftp://127.0.0.1/v1?api_key=hush"',
        '[providers.p]\nbase_url = "http://127.0.0.1"\nkey_env = "sk-hush"',
        '[providers.p]\nbase_url = "http://127.0.0.1"\napi_key = "sk-hush"',
        '[stores]\nconversations = "postgresql://u:hush@127.0.0.1/db"',
        '[stores]\nlocks = "redis://:hush@127.0.0.1/0"',
        "[server]\nqa_key_env = ['hush']",
        '[stores]\nconversations = ["postgresql://u:hush@127.0.0.1/db"]',
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_repeated(text: str) -> None:
    """A secret pasted where its variable's name is due stays out of the error."""
    assert "hush" not in refusal(text)


@pytest.mark.parametrize(
    ("text", "sticky"),
    [
        ("", "none"),
        ('route_key = "session_id"', "conversation"),
        ('route_key = "user_id"', "conversation"),
        ('route_key = "session_id"\nsticky = "none"', "none"),
        ('sticky = "conversation"', "conversation"),
    ],
)
def test_conversations_are_frozen_unless_messages_are_routed(text: str, sticky: str) -> None:
    """Or where the file says otherwise, in both directions."""
    assert read(f"[flows.chat]\n{text}").flows["chat"].sticky == sticky


def test_a_flow_without_conversations_cannot_freeze_them() -> None:
    """Asked for it is refused; left to itself it is not sticky."""
    specs = {"chat": replace(CHAT, route_keys={"message_id": "message_id", "user_id": "user_id"})}
    found = parse_settings('[flows.chat]\nroute_key = "user_id"', "cutover.toml", specs)
    assert found.flows["chat"].sticky == "none"
    with pytest.raises(ConfigRefused, match="no route key 'session_id'"):
        parse_settings('[flows.chat]\nsticky = "conversation"', "cutover.toml", specs)


def test_the_version_follows_the_meaning() -> None:
    """Order, comments and the spelling of numbers do not matter; a value does."""
    a = read('[flows.chat]\nlanggraph_percent = 10\nforce_graph = ["a", "b"]')
    b = read('# hi\n[flows.chat]\nforce_graph = ["b", "a"]\nlanggraph_percent = 10.000')
    c = read("[flows.chat]\nlanggraph_percent = 10.001")
    assert a.version == b.version
    assert a == b
    assert a.version != c.version
    assert len(a.version) == 12


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("enable_langgraph = false\nlanggraph_percent = 50\nshadow_percent = 50", "off"),
        ("enable_langgraph = true", "off"),
        ("enable_langgraph = true\nshadow_percent = 0.001", "shadow"),
        ("enable_langgraph = true\nlanggraph_percent = 0.001", "ramp"),
        ("enable_langgraph = true\nlanggraph_percent = 99.999\nshadow_percent = 5", "ramp"),
        ("enable_langgraph = true\nlanggraph_percent = 100", "full"),
        (f"{ALONE}\nshadow_percent = 1", "full"),
        (ALONE, "retired"),
    ],
)
def test_the_stage_is_derived(text: str, stage: str) -> None:
    """A stage is what the switches amount to."""
    assert read(f"[flows.chat]\n{text}").flows["chat"].stage == stage


def test_a_file_is_loaded_or_refused(tmp_path: Path) -> None:
    """What cannot be read is a refusal like any other, naming the file."""
    path = tmp_path / "cutover.toml"
    with pytest.raises(ConfigRefused, match=r"cutover\.toml: cannot be read: no such file"):
        load_settings(path, SPECS)
    path.write_bytes(b"# \xff")
    with pytest.raises(ConfigRefused, match="not UTF-8 at byte 2"):
        load_settings(path, SPECS)
    path.write_text("[flows.chat]\nlanggraph_percent = 2.5", "utf-8")
    assert load_settings(path, SPECS).flows["chat"].langgraph_percent == Decimal("2.500")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        pytest.param("device", "cannot be read: a device, not a file", id="a device without end"),
        pytest.param("pipe", "cannot be read: a pipe, not a file", id="a pipe nothing writes to"),
        pytest.param("folder", "cannot be read: is a directory", id="a folder"),
        pytest.param("long", "longer than 1,048,576 bytes", id="a file over 1 MiB"),
    ],
)
def test_only_regular_files_of_bounded_size_are_read(tmp_path: Path, kind: str, why: str) -> None:
    """A link to a device took all memory, and the router with it."""
    path = tmp_path / "cutover.toml"
    match kind:
        case "device":
            path.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case _:
            path.write_bytes(b"#" * (1 + (1 << 20)))
    with pytest.raises(ConfigRefused, match=rf"cutover\.toml: {why}$"):
        load_settings(path, SPECS)


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    """Mounted configurations are links, and the longest one that is allowed is read."""
    path, real = tmp_path / "cutover.toml", tmp_path / "real.toml"
    real.write_text("[flows.chat]\nlanggraph_percent = 2\n".ljust(1 << 20, "#"), "utf-8")
    path.symlink_to(real)
    assert load_settings(path, SPECS).flows["chat"].langgraph_percent == 2


def test_a_byte_order_mark_is_taken_off(tmp_path: Path) -> None:
    """Some editors write one."""
    path = tmp_path / "cutover.toml"
    path.write_text("[flows.chat]\nlanggraph_percent = 7\n", encoding="utf-8-sig")
    assert load_settings(path, SPECS).flows["chat"].langgraph_percent == Decimal(7)


def test_an_address_may_come_from_the_environment() -> None:
    """A store with a password in its address is named by a variable."""
    assert resolve_address("env:DB", {"DB": "postgresql://u:p@h/d"}) == "postgresql://u:p@h/d"
    assert resolve_address("sqlite:///x", {}) == "sqlite:///x"
    with pytest.raises(ConfigRefused, match="DB: not set"):
        resolve_address("env:DB", {})
    with pytest.raises(ConfigRefused, match="DB: no address") as refused:
        resolve_address("env:DB", {"DB": "hunter2"})
    assert "hunter2" not in str(refused.value)


def test_a_secret_comes_from_the_environment() -> None:
    """None is fine where none is named; one that is named must be there."""
    assert read_secret("", {}) == b""
    assert read_secret("QA", {"QA": "hush"}) == b"hush"
    with pytest.raises(ConfigRefused, match="QA: not set"):
        read_secret("QA", {"QA": ""})


def test_a_gateway_others_can_reach_needs_a_key() -> None:
    """On loopback it may go without."""
    outside = '[server]\nhost = "0.0.0.0"\n'
    assert "gateway.key_env" in refusal(f"{outside}[gateway]\nenabled = true")
    for good in (
        f'{outside}[gateway]\nenabled = true\nkey_env = "KEY"',
        f"{outside}[gateway]\nenabled = false",
        "[gateway]\nenabled = true",
        '[server]\nhost = "localhost"\n[gateway]\nenabled = true',
        '[server]\nhost = "::1"\n[gateway]\nenabled = true',
    ):
        read(good)
    assert "gateway.key_env" in refusal('[gateway]\nkey_env = "not a name"')


def test_shadows_that_ask_the_model_need_a_budget() -> None:
    """In tokens or in money: no bill is a surprise."""
    told = refusal('[shadow]\nmode = "live"')
    assert "shadow.mode = 'live'" in told
    assert "tokens_per_day or cost_per_day" in told
    live, priced = '[shadow]\nmode = "live"\n', f"{_MODEL}input_price = 1.0\noutput_price = 2.0\n"
    assert read(f"{live}tokens_per_day = 1000").shadow.mode == "live"
    assert read(f"{live}cost_per_day = 0.5\n{priced}").shadow.mode == "live"


@pytest.mark.parametrize(
    ("models", "which"), [("", "no model has a price"), ("MODEL", "models.m has no price")]
)
def test_a_cost_budget_needs_prices(models: str, which: str) -> None:
    """Of a model without a price any number of answers would cost nothing."""
    told = refusal(f'[shadow]\nmode = "live"\ncost_per_day = 0.5\n{models and _MODEL}')
    assert "shadow.cost_per_day = 0.5" in told
    assert which in told


def test_own_replies_need_a_model_that_is_asked() -> None:
    """A shadow that plays the tape answers nothing of its own."""
    told = refusal('[shadow]\nhistory = "own"')
    assert "shadow.history = 'own'" in told
    assert 'mode = "live"' in told
    assert "'served', 'own'" in refusal('[shadow]\nhistory = "mine"')
    own = '[shadow]\nmode = "live"\nhistory = "own"\ntokens_per_day = 1000'
    assert read(own).shadow.history == "own"


@pytest.mark.parametrize("kind", ["Text/HTML", "text/html; charset=utf-8", "html", "text/é"])
def test_no_stream_is_called_what_none_can_be(kind: str) -> None:
    """Answers are held against it in lower case, without parameters: it would never fit."""
    stack = '[stacks.graph]\nurl = "http://far"\nmedia_types = ["%s"]'
    assert f"stacks.graph.media_types[0] = {kind!r}" in refusal(stack % kind)
    assert read(stack % "text/html").stacks.place("graph")


def test_a_stack_is_resumable_only_through_the_gateway() -> None:
    """The refusal says what is due."""
    stack = '[stacks.graph]\nurl = "http://far"\nresumable = true\n'
    gateway = "[gateway]\nenabled = true\n"
    told = refusal(stack)
    assert "stacks.graph.resumable = true" in told
    assert "[gateway] enabled = true" in told
    place = read(stack + gateway).stacks.place("graph")
    assert isinstance(place, RemoteStackSettings)
    assert place.resumable


@pytest.mark.parametrize("path", ["s3://user:pass-word@bucket/x", "ftp://:pass-word@host/x"])
def test_captures_take_no_password(path: str) -> None:
    """Nor does the refusal repeat it."""
    told = refusal(f'[captures]\npath = "{path}"')
    assert "captures.path" in told
    assert "a password may not stand in the file" in told
    assert "pass-word" not in told
    read('[captures]\npath = "s3://bucket/x"')


@pytest.mark.parametrize(("tool", "write"), [(30, 30), (40, 35), (35, 35.0)])
def test_a_tool_must_end_before_its_call_does(tool: float, write: float) -> None:
    """Stopped from outside it has no result, and the reply fails."""
    told = refusal(f"[limits]\ntool_seconds = {tool}\nwrite_seconds = {write}")
    assert "limits.tool_seconds" in told
    assert "less than write_seconds" in told
