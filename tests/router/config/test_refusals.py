"""Configurations that are refused: each sentence says where, what, and what to do."""

from __future__ import annotations

import pytest

from router.config.errors import ConfigRefused
from tests.router.config.texts import FLOW, LIVE, MCP_URL, MODEL, STACK, STACKS, read

PROVIDER = '[providers.openai]\nbase_url = "http://127.0.0.1:1/v1"\n'
SERVICE = f"{STACK}shadow_safe = true\n"
OUTSIDE = '[server]\nhost = "0.0.0.0"\n[gateway]\nenabled = true\n'
GATEWAY = "[gateway]\nenabled = true\n"
SHADOWED = "[flows.chat]\nenable_langgraph = true\nshadow_percent = 5\n[stacks]\n"
UNSHADOWED = "flows.chat.shadow_percent = 5: "
DECLARED = STACKS + FLOW


def servers(**prefixes: str) -> str:
    """Write servers of tools with these prefixes."""
    return "\n".join(
        f'[tools.mcp.{name}]\n{MCP_URL}prefix = "{prefix}"' for name, prefix in prefixes.items()
    )


def refusal(text: str) -> str:
    """Return the sentence a text is refused with, behind the name of its file."""
    with pytest.raises(ConfigRefused) as caught:
        read(text)
    return str(caught.value)


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
        (
            '[flows.chat]\nhistory = "own"\nsticky = "none"\n[stacks]\ngraph = "http://g"',
            ["flows.chat.sticky = 'none'", 'history = "own"'],
        ),
        ('[flows.chat]\nhistory = "own"', ["flows.chat.history = 'own'", "share"]),
        (
            '[flows.own]\npath = "/own"\ndialect = "openai"\nhistory = "own"',
            ["flows.own.history = 'own'", "'session_id'"],
        ),
        (
            f'[flows.chat]\nhistory = "own"\nshadow_percent = 1\n{STACK}[server]\nworkers = 2',
            ["flows.chat.shadow_percent = 1", "workers = 1"],
        ),
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
        (f'{OUTSIDE}listen = "users"', ["gateway.key_env", "[server] host"]),
        (f'{GATEWAY}listen = "0.0.0.0:8081"', ["gateway.key_env", "[gateway] listen"]),
        (f'{GATEWAY}listen = "127.0.0.1:8080"', ["gateway.listen", 'listen = "users"']),
        (f"{GATEWAY}listen = 8081", ["gateway.listen"]),
        *(
            (f'{GATEWAY}listen = "{wrong}"', ["gateway.listen", "'users'", "host:port"])
            for wrong in ("", "8081", "localhost", "a:65536", "::1:8081", "http://a:1", "user")
        ),
        ('[gateway]\nkey_env = "not a name"', ["gateway.key_env"]),
        (LIVE, ["shadow.mode = 'live'", "tokens_per_day, cost_per_day or requests_per_day"]),
        *(
            (
                f"[shadow]\n{key} = 5\n{SERVICE}",
                [f"shadow.{key} = 5", "stacks.graph is a service", "requests_per_day instead"],
            )
            for key in ("tokens_per_day", "cost_per_day")
        ),
        (
            f"[shadow]\ntokens_per_day = 5\ncost_per_day = 5\n[gateway]\nenabled = true\n{SERVICE}",
            ["shadow.cost_per_day = 5", "no model has a price"],
        ),
        (f"{LIVE}cost_per_day = 0.5", ["shadow.cost_per_day = 0.5", "no model has a price"]),
        (
            f"{LIVE}cost_per_day = 0.5\n{MODEL}",
            ["shadow.cost_per_day = 0.5", "models.m has no price"],
        ),
        ('[shadow]\nhistory = "own"', ["shadow.history = 'own'", 'mode = "live"']),
        ('[shadow]\nhistory = "mine"', ["'served', 'own'"]),
        *(
            (f'{STACK}media_types = ["{kind}"]', [f"stacks.graph.media_types[0] = {kind!r}"])
            for kind in ("Text/HTML", "text/html; charset=utf-8", "html", "text/é")
        ),
        (
            f"{STACK}resumable = true",
            ["stacks.graph.resumable = true", "[gateway] enabled = true"],
        ),
        *(
            (
                f"[limits]\ntool_seconds = {tool}\nwrite_seconds = {write}",
                ["limits.tool_seconds", "less than write_seconds"],
            )
            for tool, write in ((30, 30), (40, 35), (35, 35.0))
        ),
        (
            '[limits.operations]\n"worker.run" = 600.0',
            ["limits.operations = 'worker.run'", "unknown operation that", "'workers.run'?"],
        ),
        (
            "[limits.operations]\nmodel.stream = 600.0",
            ["limits.operations = 'model.stream'", "unknown operation that writes"],
        ),
        (
            '[limits.operations]\n"workers.run" = 0',
            ["limits.operations.workers.run = 0", "greater than 0"],
        ),
        (
            '[limits.operations]\n"tools.run" = 30',
            ["limits.operations", "'tools.run' must be more than tool_seconds"],
        ),
        ("[limits.tools]\nbuild = 'long'", ["limits.tools.build = 'long'", "valid number"]),
        *(
            (servers(**prefixes), ["might bear the same name"])
            for prefixes in (
                {"a": "x_", "b": "x_y_"},
                {"a": "x_y_", "b": "x_"},
                {"a": "", "b": "b_"},
            )
        ),
        ("[tools.mpc.a]", ["tools.mpc", "did you mean 'mcp'"]),
        (
            '[tools.python]\nmodules = ["app/tools.py"]',
            ["tools.python.modules[0]", "such as app.tools"],
        ),
        ("[tools.mcp.a]", ["tools.mcp.a", "one of command and url"]),
        (f'[tools.mcp.a]\n{MCP_URL}command = ["x"]', ["tools.mcp.a", "one of command and url"]),
        ('[tools.mcp.a]\ncommand = [""]', ["tools.mcp.a.command", "must begin with a program"]),
        ('[tools.mcp.a]\ncommand = "x y"', ["tools.mcp.a.command", "'x y'"]),
        (f"[tools.mcp.a]\n{MCP_URL}comand = []", ["tools.mcp.a.comand", "did you mean 'command'"]),
        (f'[tools.mcp.a]\n{MCP_URL}env = ["A"]', ["tools.mcp.a.env", "only a url has a token_env"]),
        (
            '[tools.mcp.a]\ncommand = ["x"]\ntoken_env = "A"',
            ["tools.mcp.a.token_env", "only a url has a token_env"],
        ),
        ('[tools.mcp.a]\nurl = "ftp://x"', ["tools.mcp.a.url", "http://"]),
        (f'[tools.mcp.a]\n{MCP_URL}prefix = "a.b"', ["tools.mcp.a.prefix", "letters"]),
        (f'[tools.mcp.a]\n{MCP_URL}read_only = "yes"', ["tools.mcp.a.read_only"]),
        (f"[tools.mcp.a]\n{MCP_URL}timeout_seconds = 0", ["tools.mcp.a.timeout_seconds"]),
        (f"[tools.mcp.a__b]\n{MCP_URL}", ["tools.mcp.a__b", "single '_'"]),
        (f"[tools.mcp.'a.b']\n{MCP_URL}", ["tools.mcp.a.b", "letters"]),
        (f"[tools.mcp]\n{MCP_URL}", ["tools.mcp.url", "must be a table"]),
        ("[flows.support]\n", ["flows.support: unknown flow; known: chat; one of your own needs"]),
        ("[flows.chta]\nmax_streams = 1\n", ["did you mean 'chat'?"]),
        ('[flows.support]\npath = "/x"\n', ["flows.support.dialect: required"]),
        ('[flows.support]\ndialect = "openai"\n', ["flows.support.path: required"]),
        ('[flows.chat]\npath = "/x"\n', ["flow 'chat' is built in"]),
        (DECLARED.replace("openai", "opnai"), ["unknown dialect; did you mean 'openai'?"]),
        (
            DECLARED.replace('"openai"', "{ framng = 1 }"),
            ["dialect.framng: unknown key; did you mean"],
        ),
        (
            DECLARED.replace('"openai"', '{ text = { a = "b..c" } }'),
            ["flows.support.dialect.text.a: "],
        ),
        (DECLARED.replace('"openai"', "7"), ["must be the name of a dialect, or a table"]),
        (DECLARED.replace("/api/support", "/chat/sse"), ["already the path of flow 'chat'"]),
        *(
            (DECLARED.replace("/api/support", own), ["the router itself answers there"])
            for own in ("/healthz", "/effects", "/effects/lease", "/mcp/shop", "/exchanges/e/v1")
        ),
        (DECLARED.replace("/api/support", "/a/{b}"), ["must be a plain path"]),
        (DECLARED.replace("/api/support", "support"), ["must be a plain path"]),
        (DECLARED + "langgraph_percnt = 1\n", ["did you mean 'langgraph_percent'?"]),
        (DECLARED + 'route_keys = { session_id = "a..b" }\n', ["must be a field of the body"]),
        (DECLARED + 'route_key = "user_id"\n', ["unknown route key"]),
        (DECLARED + "options = { model_id = 1 }\n", ["unknown key"]),
        (DECLARED + "declared = {}\n", ["unknown key"]),
        (DECLARED + 'prompts = "p"\n', ["flows.support.prompts = 'p': ", "has its prompts there"]),
        (DECLARED.replace("support", '"a b"', 1), ["a name has letters, digits"]),
        ('[stacks.graph]\nurl = "http://h"\nshadowsafe = true', ["did you mean 'shadow_safe'?"]),
        ('[stacks.graph]\nurl = "http://h"\nidle_seconds = 0', ["stacks.graph.idle_seconds = 0"]),
        ('[stacks.graph]\nurl = "h"', ["stacks.graph.url = 'h': allowed: http://"]),
        ('[stacks]\ngraph = "http://"', ["stacks.graph = 'http://': must be a URL"]),
        ('[stacks]\ngraph = "http://h:65536"', ["stacks.graph = 'http://h:65536': must be a URL"]),
        ('[stacks.graph]\nurl = "http://h"\npaths = { chatt = "/a" }', ["did you mean 'chat'?"]),
        ('[stacks.graph]\nurl = "http://h"\npaths = { chat = "a" }', ["must be a path"]),
        ("[stacks.graph]\nshadow_safe = true", ["stacks.graph.url: required"]),
        (f'{SHADOWED}graph = "http://b"', [UNSHADOWED, "graph is behind an address and not"]),
        (f'{SHADOWED}legacy = "http://a"', [UNSHADOWED, "there is no tape for graph, in this"]),
        (
            f'{SHADOWED}legacy = "http://a"\ngraph = "http://b"',
            [UNSHADOWED, "graph is behind an address and not declared shadow_safe"],
        ),
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
        '[tools.mcp.a]\nurl = "http://user:hush-hush@127.0.0.1/mcp"',
        f'[tools.mcp.a]\n{MCP_URL}token_env = "sk-hush"',
        '[tools.mcp.a]\ncommand = ["x"]\nenv = ["KEY=hush"]',
        '[stacks]\ngraph = "http://u:hush@h/"',
        '[captures]\npath = "s3://user:hush@bucket/x"',
        '[captures]\npath = "ftp://:hush@host/x"',
        '[captures]\npath = "simplecache::s3://user:hush@bucket/x"',
        '[captures]\npath = "s3://bucket/x?key=AKIA&secret=hush"',
        '[captures]\npath = "abfs://box/x?account_key=hush"',
        '[captures]\npath = "abfs://box/x?sig=hush"',
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_repeated(text: str) -> None:
    """A secret pasted where its variable's name is due stays out of the error."""
    sentence = refusal(text)
    assert "hush" not in sentence
    in_an_address = "hush@" in text and "= [" not in text
    assert ("a password may not stand in the file" in sentence) == in_an_address


def test_an_option_that_holds_a_secret_is_named() -> None:
    """The value is not; other options of an address are taken."""
    sentence = refusal('[captures]\npath = "s3://bucket/x?versions=1&secret=hush"')
    assert "'secret' may not stand in the file: leave it to the variables or files" in sentence
    path = "s3://bucket/x?versions=1"
    assert read(f'[captures]\npath = "{path}"').captures.path == path
