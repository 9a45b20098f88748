"""Pieces of configurations, and how a text is read as `cutover.toml`."""

from __future__ import annotations

from contract.flows.chat import CHAT
from router.config.loader import parse_settings
from router.config.schema import Settings

SPECS = {"chat": CHAT}
MODEL = '[providers.p]\nbase_url = "http://h/"\n[models.m]\nprovider = "p"\n'
LIVE = '[shadow]\nmode = "live"\n'
STACK = '[stacks.graph]\nurl = "http://far"\n'
STACKS = '[stacks]\nlegacy = "http://old:1/"\ngraph = "http://new:1/"\n'
FLOW = '[flows.support]\npath = "/api/support"\ndialect = "openai"\n'
MCP_URL = 'url = "http://127.0.0.1:1/mcp"\n'


def read(text: str) -> Settings:
    """Read a file called `cutover.toml`; the only flow that is not declared there is the chat."""
    return parse_settings(text, "cutover.toml", SPECS)
